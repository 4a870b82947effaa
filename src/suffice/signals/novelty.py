"""Novelty: whether the round's search was a new one, and how far what it brought repeats what was read."""

from __future__ import annotations

import math
from collections import Counter

from suffice.protocols import Absence
from suffice.scoring import answer_form
from suffice.signals.answer_stability import added_nothing
from suffice.signals.evidence import PASSAGES_UNKNOWN, TEXT_UNKNOWN, seen_passages, token_set
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec, unrecorded
from suffice.trace.rounds.records import LoopView, Passage


def _new_and_earlier(view: LoopView) -> tuple[list[Passage], list[Passage]] | None:
    """The round's new passages and all earlier ones; ``None`` where there is nothing to compare."""
    earlier = seen_passages(view.rounds[:-1])
    seen = seen_passages(view.rounds)
    if not earlier or seen is None or len(seen) == len(earlier):
        return None
    if any(passage.text is None for passage in seen.values()):
        return None
    new = [passage for key, passage in seen.items() if key not in earlier]
    return new, list(earlier.values())


def overlap(view: LoopView) -> float:
    """Token-set Jaccard of the round's new passages and all earlier ones (paper 0; published).

    Tokens of title and text; in [0, 1], high: little news. It falls with the round by construction,
    as the earlier set only grows. Undefined in round 1, without a new passage or an earlier one,
    and when a passage seen so far was recorded without its text.
    """
    pair = _new_and_earlier(view)
    if pair is None:
        return UNDEFINED
    new, earlier = (frozenset[str]().union(*map(token_set, passages)) for passages in pair)
    union = len(new | earlier)
    return len(new & earlier) / union if union else UNDEFINED


def overlap_idf(view: LoopView) -> float:
    """The same with each token weighing ln((N + 1) / (df + 1)) + 1 over the N passages seen so far.

    The paper's text; its code used the plain form in every rule, and took N over all candidates,
    which a trace does not hold.
    """
    pair = _new_and_earlier(view)
    if pair is None:
        return UNDEFINED
    new, earlier = pair
    document_frequency = Counter(token for text in new + earlier for token in token_set(text))
    passages = len(new) + len(earlier)
    weight = {
        token: math.log((passages + 1) / (df + 1)) + 1 for token, df in document_frequency.items()
    }
    if not weight:
        return UNDEFINED
    in_new = frozenset[str]().union(*map(token_set, new))
    in_earlier = frozenset[str]().union(*map(token_set, earlier))
    # fsum rounds once, so the value does not hang on the order of a set.
    return math.fsum(weight[token] for token in in_new & in_earlier) / math.fsum(weight.values())


_NOT_COMPARED = (
    PASSAGES_UNKNOWN,
    Absence("there is no earlier passage", lambda view: not seen_passages(view.rounds[:-1])),
    Absence(
        "the round added no new passage",
        lambda view: added_nothing(view.current, view.rounds[:-1]),
        "record with --corpus pooled, or read new_passages, which is 0 there",
    ),
    TEXT_UNKNOWN,
    Absence("the passages hold no word", lambda _: True),
)
OVERLAP = SignalSpec(
    name="overlap",
    summary="share of their words that new and earlier passages have in common",
    needs=("passages",),
    answers=False,
    low=0.0,
    high=1.0,
    compute=overlap,
    in_columns=InColumns("novelty", "overlap"),
    undefined=_NOT_COMPARED,
)
OVERLAP_IDF = SignalSpec(
    name="overlap_idf",
    summary="share of their words that new and earlier passages have in common, rare ones counting more",
    needs=("passages",),
    answers=False,
    low=0.0,
    high=1.0,
    compute=overlap_idf,
    in_columns=InColumns("novelty", "overlap_idf"),
    undefined=_NOT_COMPARED,
)


def new_passages(view: LoopView) -> float:
    """Share of the distinct passages that the round found, by id, that no earlier round did, in [0, 1].

    Found are those it lists and those recorded as found again. 0.0 where it found none; 1.0 in round 1
    with a passage. Undefined where the round's passages were not recorded, or those of an earlier round,
    unless nothing is new in any case.
    """
    if view.current.passages is None:
        return UNDEFINED
    listed = {passage.id for passage in view.current.passages}
    seen = {passage.id for round_ in view.rounds[:-1] for passage in round_.passages or ()}
    new = listed - seen
    if not new:
        return 0.0
    if any(round_.passages is None for round_ in view.rounds[:-1]):
        return UNDEFINED
    return len(new) / len(listed.union(passage.id for passage in view.current.refound or ()))


NEW_PASSAGES = SignalSpec(
    name="new_passages",
    summary="share of the round's passages that no earlier round found",
    needs=("passages",),
    reads=("refound",),
    answers=False,
    low=0.0,
    high=1.0,
    direction="low",
    compute=new_passages,
    in_columns=InColumns("novelty", "new_passages"),
    undefined=(
        unrecorded("passages", "the round's passages were"),
        Absence(
            "an earlier round's passages were not recorded",
            lambda view: seen_passages(view.rounds[:-1]) is None,
        ),
    ),
)


def query_repeats(view: LoopView) -> float:
    """1.0 when the round's query, normalised like an answer, was sent in an earlier round, else 0.0.

    Undefined in round 1, where the round's query was not recorded, or where it is not found among the
    earlier ones and one of those was not recorded. A loop that reads on in one ranking sends one query,
    and repeats it by construction.
    """
    query = view.current.query
    if query is None or view.previous is None:
        return UNDEFINED
    earlier = [round_.query for round_ in view.rounds[:-1]]
    if answer_form(query) in {answer_form(sent) for sent in earlier if sent is not None}:
        return 1.0
    return UNDEFINED if None in earlier else 0.0


QUERY_REPEATS = SignalSpec(
    name="query_repeats",
    summary="1 when the round's query was sent before",
    needs=("query",),
    answers=False,
    low=0.0,
    high=1.0,
    compute=query_repeats,
    in_columns=InColumns("answers", "query_repeats"),
    undefined=(
        unrecorded("query", "the round's query was"),
        Absence("there is no earlier query", lambda view: view.previous is None),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
    binary=True,
)
