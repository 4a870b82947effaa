"""``python -m studies.retrieval``."""

import sys

from studies.retrieval.study import STUDY

sys.exit(STUDY.main())
