"""``python -m studies.hidden_constraints``."""

import sys

from studies.command import study_main
from studies.hidden_constraints.study import run

main = study_main("hidden_constraints", run)

if __name__ == "__main__":
    sys.exit(main())
