"""``python -m studies.ab_rag``."""

import sys

from studies.ab_rag.study import STUDY

sys.exit(STUDY.main())
