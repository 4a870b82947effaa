"""``python -m studies.ab_rag``."""

import sys

from studies.ab_rag.study import run
from studies.command import study_main

main = study_main("ab_rag", run)

if __name__ == "__main__":
    sys.exit(main())
