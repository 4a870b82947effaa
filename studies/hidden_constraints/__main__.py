"""``python -m studies.hidden_constraints``, and its commands ``sheet``, ``judge`` and ``table7``."""

import sys
from collections.abc import Sequence

from studies.hidden_constraints import people, study


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command named by the first word, else the experiment."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] and words[0] in people.COMMANDS:
        return people.main(words)
    return study.STUDY.main(words)


if __name__ == "__main__":
    sys.exit(main())
