"""``python -m studies.micp RECORD ...``, and ``python -m studies.micp populations``."""

import sys
from functools import partial

from studies.command import study_app
from studies.micp.populations import populations
from studies.micp.study import run
from suffice.cli import main as command_line

APP = study_app("micp", run)
APP.command(populations)
main = partial(command_line.main, app=APP)

if __name__ == "__main__":
    sys.exit(main())
