"""Novelty: whether the round's search was a new one, and whether it brought anything new."""

from __future__ import annotations

from suffice.protocols import Absence
from suffice.scoring import normalize_answer
from suffice.signals.evidence import seen_passages
from suffice.signals.spec import UNDEFINED, SignalSpec, unrecorded
from suffice.trace.rounds.records import LoopView


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
    if normalize_answer(query) in {normalize_answer(sent) for sent in earlier if sent is not None}:
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
    undefined=(
        unrecorded("query", "the round's query was"),
        Absence("there is no earlier query", lambda view: view.previous is None),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
    binary=True,
)
