"""``python -m studies.hidden_constraints``."""

import sys
from functools import partial

from studies.command import study_app
from studies.hidden_constraints.study import run
from suffice.cli import main as command_line

main = partial(command_line.main, app=study_app("hidden_constraints", run))

if __name__ == "__main__":
    sys.exit(main())
