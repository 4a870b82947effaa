"""``python -m studies.stop_rag``."""

import sys

from studies.stop_rag.study import STUDY

main = STUDY.main

if __name__ == "__main__":
    sys.exit(main())
