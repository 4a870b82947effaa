"""``python -m studies.retrieval``."""

import sys

from studies.command import run_study
from studies.retrieval.run import STUDY

sys.exit(run_study(STUDY, "retrieval"))
