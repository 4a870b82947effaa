"""``python -m studies.ab_rag``."""

import sys

from studies.ab_rag.run import STUDY
from studies.command import run_study

sys.exit(run_study(STUDY, "ab_rag"))
