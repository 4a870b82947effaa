"""``python -m studies.stop_rag``."""

import sys

from studies.command import study_main
from studies.stop_rag.study import run

main = study_main("stop_rag", run)

if __name__ == "__main__":
    sys.exit(main())
