"""``python -m studies.retrieval``."""

import sys

from studies.retrieval.study import STUDY

main = STUDY.main

if __name__ == "__main__":
    sys.exit(main())
