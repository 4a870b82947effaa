"""Whether a search was a new one, and whether it brought anything new."""

from __future__ import annotations

import math

import pytest

from suffice.signals.novelty import new_passages, query_repeats
from suffice.trace.rounds.records import LoopView, Passage, Round


def found(ids: str | None, again: str | None = None) -> Round:
    passages, refound = (
        None if names is None else tuple(Passage(id=name) for name in names)
        for names in (ids, again)
    )
    return Round(answer="", passages=passages, refound=refound)


@pytest.mark.parametrize(
    ("rounds", "share"),
    [
        ([found("ab")], 1.0),
        ([found("ab"), found("abcd")], 0.5),
        ([found("ab"), found("aab")], 0.0),
        ([found("ab"), found("")], 0.0),
        ([found("")], 0.0),
        ([found("ab"), found("c", again="aba")], 1 / 3),
        ([found("ab"), found("ccd")], 1.0),
        ([found(None)], math.nan),
        ([found("a"), found(None)], math.nan),
        ([found(None), found("a")], math.nan),
        ([found(None), found("a"), found("a")], 0.0),
    ],
)
def test_share_of_the_passages_that_are_new(rounds: list[Round], share: float) -> None:
    assert new_passages(LoopView("q", tuple(rounds))) == pytest.approx(share, nan_ok=True)


@pytest.mark.parametrize(
    ("queries", "repeats"),
    [
        (["who founded it"], math.nan),
        (["who founded it", "Who founded it?"], 1.0),
        (["who founded it", "when was it built", "Who founded it?"], 1.0),
        (["who founded it", "when was it built"], 0.0),
        (["who founded it", None], math.nan),
        ([None, "who founded it"], math.nan),
        ([None, "who founded it", "who founded it"], 1.0),
    ],
)
def test_a_query_sent_before_repeats(queries: list[str | None], repeats: float) -> None:
    rounds = tuple(Round(answer="", query=query) for query in queries)
    assert query_repeats(LoopView("q", rounds)) == pytest.approx(repeats, nan_ok=True)
