"""Whether a search was a new one, what it brought, and its overlap against hand-made token sets."""

from __future__ import annotations

import math

import pytest

from suffice.signals.novelty import NEW_PASSAGES, OVERLAP, OVERLAP_IDF, QUERY_REPEATS
from suffice.trace.rounds.records import LoopView, Passage, Round

BOTH = pytest.mark.parametrize("spec", [OVERLAP, OVERLAP_IDF], ids=lambda spec: spec.name)


def passage(number: int, text: str | None, title: str = "") -> Passage:
    return Passage(id=str(number), text=text, title=title)


def view(*rounds: tuple[Passage, ...] | None) -> LoopView:
    return LoopView("q", tuple(Round(answer="", passages=each) for each in rounds))


def test_jaccard_of_the_token_sets() -> None:
    # Earlier {a, b, c}, new {b, c, d, e}: 2 of 5; case, order and repetition do not matter.
    assert OVERLAP(view((passage(1, "A b, c! c"),), (passage(2, "e D c b"),))) == 2 / 5


def test_idf_weighs_rare_tokens_more() -> None:
    # Two passages, N = 2: shared b has df 2, weight ln(3/3) + 1 = 1; a and c df 1, ln(3/2) + 1.
    rare = math.log(3 / 2) + 1
    rounds = view((passage(1, "a b"),), (passage(2, "b c"),))
    assert OVERLAP_IDF(rounds) == pytest.approx(1 / (1 + 2 * rare), abs=1e-15)
    assert OVERLAP(rounds) == 1 / 3


def test_idf_counts_every_passage_seen() -> None:
    # N = 3: x in passages 1, 2, 3 weighs ln(4/4) + 1; y in 1 and 3 ln(4/3) + 1; z in 2, w in 3 ln 2 + 1.
    rounds = view((passage(1, "x y"),), (passage(2, "x z"),), (passage(3, "x y w"),))
    x, y, single = 1.0, math.log(4 / 3) + 1, math.log(2) + 1
    assert OVERLAP_IDF(rounds) == pytest.approx((x + y) / (x + y + 2 * single), abs=1e-15)


def test_the_earlier_set_is_the_union_of_all_earlier_rounds_and_titles_count() -> None:
    rounds = view(
        (passage(1, "a"),), (passage(2, "b", title="Title"),), (passage(3, "c", title="title a"),)
    )
    # Earlier {a, title, b}, new {title, a, c}: 2 of 4.
    assert OVERLAP(rounds) == 2 / 4


def test_only_new_passages_count_as_new() -> None:
    first, second = passage(1, "a b"), passage(2, "c")
    assert OVERLAP(view((first,), (first, second))) == 0.0


@BOTH
def test_ends_of_the_range(spec: object) -> None:
    assert callable(spec)
    assert spec(view((passage(1, "a b"),), (passage(2, "b a"),))) == 1.0
    assert spec(view((passage(1, "a b"),), (passage(2, "c"),))) == 0.0


@BOTH
def test_undefined_where_there_is_nothing_to_compare(spec: object) -> None:
    assert callable(spec)
    one = passage(1, "a")
    for rounds in (
        view((one,)),  # round 1
        view((one,), (one,)),  # nothing new
        view((one,), ()),  # nothing at all
        view((), (one,)),  # nothing earlier
        view(None, (one,)),  # earlier passages not recorded
        view((one,), None),  # new ones not recorded
        view((one,), (passage(2, None),)),  # text not recorded
        view((passage(1, None),), (passage(2, "a"),)),
        view((passage(1, ""),), (passage(2, "?!"),)),  # no tokens
    ):
        assert math.isnan(spec(rounds)), rounds


def test_later_rounds_do_not_change_earlier_values() -> None:
    rounds = view((passage(1, "a b"),), (passage(2, "b c"),), (passage(3, "a b c d"),))
    early = LoopView("q", rounds.rounds[:2])
    assert OVERLAP_IDF(early) == OVERLAP_IDF(view((passage(1, "a b"),), (passage(2, "b c"),)))


# --- new passages and repeated queries
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
    assert NEW_PASSAGES(LoopView("q", tuple(rounds))) == pytest.approx(share, nan_ok=True)


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
    assert QUERY_REPEATS(LoopView("q", rounds)) == pytest.approx(repeats, nan_ok=True)
