"""What every index shares: order, ids, fingerprints."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.retrieval.ranking import best_first, check_ids, corpus_fingerprint
from suffice.trace.rounds.records import Passage

PASSAGES = (Passage(id="a", text="x"), Passage(id="b", title="T"), Passage(id="c", text="x"))


def test_best_first_equals_a_full_stable_sort() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        scores = rng.integers(0, 6, size=rng.integers(1, 30)).astype(np.float32)
        k = int(rng.integers(1, 33))
        slow = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
        assert best_first(scores, k).tolist() == slow


def test_repeated_ids_are_named_five_at_most() -> None:
    check_ids(PASSAGES)
    repeated = [Passage(id=str(number % 7)) for number in range(14)]
    with pytest.raises(DataError, match=r"'0', '1', '2', '3', '4' and 2 more"):
        check_ids(repeated)


def test_a_fingerprint_tells_texts_titles_ids_and_order() -> None:
    whole = corpus_fingerprint(PASSAGES)
    assert whole == corpus_fingerprint(list(PASSAGES))
    others = [
        PASSAGES[::-1],
        PASSAGES[:2],
        (*PASSAGES[:2], Passage(id="c", text="y")),
        (*PASSAGES[:2], Passage(id="c", title="x")),
        (Passage(id="a", text=None), *PASSAGES[1:]),
    ]
    assert len({whole, *map(corpus_fingerprint, others)}) == 6
    assert corpus_fingerprint([Passage(id="\ud800")]) != corpus_fingerprint([Passage(id="?")])
