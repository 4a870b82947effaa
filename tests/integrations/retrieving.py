"""Notes that the tests of frameworks' retrievers search."""

from __future__ import annotations

import re

TEXTS = {
    "boats": "a red boat at sea",
    "trees": "an old tree by the harbour",
    "harbour": "the green boat of the harbour master",
    "colours": "green is a colour between blue and yellow",
    "sea": "the sea is deep and blue",
    "masters": "the master of the ship is old",
}
QUERIES = ("green boat", "old tree", "deep blue sea")
_WORDS = sorted({word for text in TEXTS.values() for word in text.split() if len(word) > 3})


def bag(text: str) -> list[float]:
    """Counts of the longer words."""
    words = re.findall(r"\w+", text)
    return [0.01, *(float(words.count(word)) for word in _WORDS)]
