"""``python -m studies.training contradiction``."""

import sys
from functools import partial

from studies.training import contradiction
from suffice.cli import main as command_line
from suffice.cli.parser import make_app

APP = make_app("python -m studies.training", "Trains the small networks that are shipped.")
APP.command(contradiction.run, name="contradiction")
main = partial(command_line.main, app=APP)

if __name__ == "__main__":
    sys.exit(main())
