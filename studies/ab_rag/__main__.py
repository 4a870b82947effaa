"""``python -m studies.ab_rag``."""

import sys

from studies.ab_rag.study import STUDY

main = STUDY.main

if __name__ == "__main__":
    sys.exit(main())
