"""``python -m studies.hidden_constraints``, and its commands ``sheet`` and ``judge``."""

import sys
from functools import partial

from studies.command import study_app
from studies.hidden_constraints import people, study
from suffice.cli import main as command_line

APP = study_app("hidden_constraints", study.run)
APP.command(people.sheet)
APP.command(people.rate, name="judge")
main = partial(command_line.main, app=APP)

if __name__ == "__main__":
    sys.exit(main())
