"""What policies are held against: oracles that see the gold answers, and the model without retrieval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import Seen
from suffice.replay.run.results import ReplayResult
from suffice.trace.rounds.table import TraceSet

CLOSED_BOOK = "closed-book"


def closed_book_rounds(traces: TraceSet | Measures) -> Measures:
    """The answers without passages, measured as one round a question under the same gold."""
    measures = Measures.of(traces)
    asked, closed_book = measures.traces, measures.closed_book()
    missing = sorted({*asked.question_ids} - {*closed_book.traces.question_ids})
    if missing:
        raise UsageError(
            f"policy {CLOSED_BOOK!r} needs round 0, the answer without passages, which "
            f"{len(missing)} of {asked.n_questions} questions of {asked.origin.source} lack (the first: "
            f"{missing[0]!r}); record them with: suffice record ... --closed-book --out OTHER_TRACES"
        )
    return closed_book


def closed_book_costs(
    rounds: Measures, model: CostModel, axis: str | None
) -> Mapping[str, NDArray[np.float64] | None]:
    """Each cost of round 0, (n_questions, 1); ``None``: unknown. It is no round of retrieval.

    ``axis`` is the one that policies are compared at; ``None``: not known yet.
    """
    paid = rounds.costs(model).at_stops(CostReads())
    costs = {**paid, "rounds": np.zeros((rounds.traces.n_questions, 1))}
    if axis is not None and costs[axis] is None:
        known = ", ".join(name for name, values in costs.items() if values is not None)
        raise UsageError(
            f"policy {CLOSED_BOOK!r}: cost {axis!r} is not recorded in every round 0; compare at "
            f"another (--cost, in Python cost=), known here: {known}"
        )
    return costs


def of_rounds(result: ReplayResult) -> ReplayResult:
    """The replay without policies that answer before round 1, whose scores are of no round."""
    kept = tuple(policy for policy in result.policies if policy.kind != CLOSED_BOOK)
    if result.baseline not in (policy.name for policy in kept):
        raise UsageError(f"the baseline {result.baseline!r} takes none of the recorded rounds")
    return replace(result, policies=kept)


def replayed(traces: TraceSet | Measures, result: ReplayResult) -> Measures:
    """The measures of the traces, which must be those of the replay."""
    measures = Measures.of(traces).by(result.metric.name)
    if measures.traces.question_ids != tuple(result.question_ids):
        raise UsageError(
            f"the replay has {result.questions} questions and these traces "
            f"{measures.traces.n_questions} others; pass the traces that were replayed"
        )
    return measures


def oracle_em(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """The earliest round with an exact match, else the last recorded one (paper 0, text)."""
    right = outcomes.em == 1.0
    return np.where(right.any(axis=1), right.argmax(axis=1) + 1, last).astype(np.int16)


def oracle_f1(outcomes: Outcomes, last: NDArray[np.int16]) -> NDArray[np.int16]:
    """The first round that reaches the question's best F1 (paper 0, tables).

    An all-wrong question stops at round 1; an unlabelled one at its last round.
    """
    scored = np.where(np.isnan(outcomes.f1), -1.0, outcomes.f1)
    return np.where(outcomes.labelled, scored.argmax(axis=1) + 1, last).astype(np.int16)


ORACLES: Mapping[str, Callable[[Outcomes, NDArray[np.int16]], NDArray[np.int16]]] = (
    MappingProxyType({"oracle-em": oracle_em, "oracle-f1": oracle_f1})
)


def settled(name: str, outcomes: Outcomes, seen: Seen) -> NDArray[np.bool_]:
    """Questions of which an oracle knows its stop there, whatever lies past, (n_questions,).

    The first of the greatest F1 is known where that is 1; every stop of ``oracle-em`` is.
    """
    if name != "oracle-f1":
        return np.ones(len(seen.last), bool)
    until = np.minimum(seen.until, seen.last)[:, None]
    known = np.arange(outcomes.f1.shape[1]) < until
    return np.asarray((known & (outcomes.f1 == 1.0)).any(axis=1))
