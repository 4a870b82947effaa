"""``python -m studies.micp RECORD ...``, and ``python -m studies.micp populations``."""

import sys
from collections.abc import Sequence

from studies.micp import populations, study


def main(argv: Sequence[str] | None = None) -> int:
    """Run the study named by the first word, else the one on records."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["populations"]:
        return populations.STUDY.main(words[1:])
    return study.STUDY.main(words)


if __name__ == "__main__":
    sys.exit(main())
