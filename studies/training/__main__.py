"""``python -m studies.training reranker`` and ``python -m studies.training contradiction``."""

import sys
from functools import partial

from studies.training import contradiction, reranker
from suffice.cli import main as command_line
from suffice.cli.parser import make_app

APP = make_app(
    "python -m studies.training", "Trains the small networks that are shipped, or trained by hand."
)
APP.command(reranker.run, name="reranker")
APP.command(contradiction.run, name="contradiction")
main = partial(command_line.main, app=APP)

if __name__ == "__main__":
    sys.exit(main())
