"""The model without retrieval: round 0 of a record, scored beside the policies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.replay.costing import CostAxis, CostBook
from suffice.replay.results import ReplayResult
from suffice.trace.table import TraceSet

__all__ = ["CLOSED_BOOK", "closed_book_costs", "closed_book_rounds", "of_rounds"]

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
