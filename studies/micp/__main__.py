"""``python -m studies.micp RECORD ...``, and ``python -m studies.micp populations``."""

import sys

from studies.command import study_main
from studies.micp.populations import populations
from studies.micp.study import run

main = study_main("micp", run, populations=populations)

if __name__ == "__main__":
    sys.exit(main())
