"""What policies are held against: oracles that see the gold answers, and the model without retrieval."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, CostBook
from suffice.measures.scores import Outcomes
from suffice.replay.run.results import ReplayResult
from suffice.trace.rounds.table import TraceSet

CLOSED_BOOK = "closed-book"


def closed_book_rounds(traces: TraceSet) -> TraceSet:
    """The answers without passages, as a trace set with one round a question and the same gold.

    Raises
    ------
    UsageError
        When a question has no round 0, with how to record it.
    """
    found = traces.closed_book_rounds()
    missing = sorted({*traces.question_ids} - {*found.question_ids})
    if missing:
        raise UsageError(
            f"policy {CLOSED_BOOK!r} needs round 0, the answer without passages, which "
            f"{len(missing)} of {traces.n_questions} questions of {traces.origin.source} lack (the first: "
            f"{missing[0]!r}); record them with: suffice record ... --closed-book --out OTHER_TRACES"
        )
    return found


def closed_book_costs(
    rounds: TraceSet, model: CostModel, axis: CostAxis
) -> Mapping[str, NDArray[np.float64] | None]:
    """Each cost of round 0, (n_questions, 1); ``None``: unknown. It is no round of retrieval.

    Raises
    ------
    UsageError
        When the cost that policies are compared at is unknown for round 0.
    """
    paid = CostBook(rounds, model).sums(CostReads())
    costs = {**paid, "rounds": np.zeros((rounds.n_questions, 1))}
    if costs[axis.name] is None:
        known = ", ".join(name for name, values in costs.items() if values is not None)
        raise UsageError(
            f"policy {CLOSED_BOOK!r}: cost {axis.name!r} is not recorded in every round 0; compare at "
            f"another with --cost, known here: {known}"
        )
    return costs


def of_rounds(result: ReplayResult) -> ReplayResult:
    """The replay without policies that answer before round 1, whose scores are of no round.

    Raises
    ------
    UsageError
        When the baseline is such a policy.
    """
    kept = tuple(each for each in result.policies if each.kind != CLOSED_BOOK)
    if result.baseline not in (each.name for each in kept):
        raise UsageError(f"the baseline {result.baseline!r} takes none of the recorded rounds")
    return replace(result, policies=kept)


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
