"""``python -m studies.stop_rag``."""

import sys
from functools import partial

from studies.command import study_app
from studies.stop_rag.study import run
from suffice.cli import main as command_line

main = partial(command_line.main, app=study_app("stop_rag", run))

if __name__ == "__main__":
    sys.exit(main())
