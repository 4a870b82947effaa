"""``python -m studies.training reranker`` and ``python -m studies.training contradiction``."""

import sys
from collections.abc import Sequence

from studies.command import Study
from studies.training import contradiction, reranker
from suffice.cli.output import say

STUDIES: dict[str, Study] = {"reranker": reranker.STUDY, "contradiction": contradiction.STUDY}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the training named by the first word."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not words or words[0] not in STUDIES:
        say(f"name what to train: {' or '.join(STUDIES)}", lead="python -m studies.training:")
        return 2
    return STUDIES[words[0]].main(words[1:])


if __name__ == "__main__":
    sys.exit(main())
