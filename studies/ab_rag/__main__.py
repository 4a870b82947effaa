"""``python -m studies.ab_rag``."""

import sys
from functools import partial

from studies.ab_rag.study import run
from studies.command import study_app
from suffice.cli import main as command_line

main = partial(command_line.main, app=study_app("ab_rag", run))

if __name__ == "__main__":
    sys.exit(main())
