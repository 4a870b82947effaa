"""``python -m studies.tasr RECORD RECORD ...``."""

import sys

from studies.command import study_main
from studies.tasr.macro import run

main = study_main("tasr", run)

if __name__ == "__main__":
    sys.exit(main())
