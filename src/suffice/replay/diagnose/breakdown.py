"""A replay's scores by type of question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.numbers.units import unit_means
from suffice.replay.diagnose.tables import type_table
from suffice.replay.run.references import of_rounds, replayed
from suffice.replay.run.results import ReplayResult
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.signals.columns.texts import NONE, Texts
from suffice.trace.rounds.table import TraceSet

FEW_QUESTIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeScores:
    """One policy on one type: mean scores of labelled questions, mean rounds of all.

    ``delta_f1`` is the paired difference to the replay's baseline on the same questions. ``None``: no
    question of the type is labelled.
    """

    policy: str
    em: float | None
    f1: float | None
    mean_rounds: float | None
    delta_f1: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeBreakdown:
    """Every policy on the questions of one type (``None``: those without one).

    ``few``: fewer than 10 labelled questions, too few to read anything into.
    """

    type: str | None
    questions: int
    labelled: int
    policies: tuple[TypeScores, ...]

    @property
    def few(self) -> bool:
        """Whether there are too few questions."""
        return self.labelled < FEW_QUESTIONS

    @staticmethod
    def side_by_side(types: Sequence[TypeBreakdown], baseline: str | None) -> Table:
        """Every policy on every type of question; no difference to itself for the ``baseline``."""
        return type_table(types, baseline)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "type": self.type,
            "questions": self.questions,
            "labelled": self.labelled,
            "few": self.few,
            "policies": as_json(self.policies),
        }


def breakdown(traces: TraceSet | Measures, result: ReplayResult) -> tuple[TypeBreakdown, ...]:
    """The replay ``result`` of ``traces`` by question type, types sorted, untyped questions last.

    The closed book is left out: it takes none of the rounds.

    Each type resamples its own questions, with the replay's seed and number of resamples.
    """
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored = measures.scores(result.f1_kind)
    types = Texts.of(measures.traces.first_rounds("question_type"))
    codes = {kind: code for code, kind in enumerate(types.distinct.to_pylist())}
    rows = {kind: types.codes == codes[kind] for kind in sorted(codes)}
    untyped = types.codes == NONE
    return tuple(
        _of_type(kind, of_kind, scored, result, measures.units)
        for kind, of_kind in (*rows.items(), (None, untyped))
        if of_kind.any()
    )


def _of_type(
    kind: str | None,
    rows: NDArray[np.bool_],
    scored: Outcomes,
    result: ReplayResult,
    units: NDArray[np.intp],
) -> TypeBreakdown:
    labelled = rows & scored.labelled & scored.metric.gold
    f1 = np.stack([policy.at_stops.scores["f1"][labelled] for policy in result.policies], axis=1)
    f1 = unit_means(f1, units[labelled])
    names = [policy.name for policy in result.policies]
    delta = f1 - f1[:, [names.index(result.baseline)]]
    draws = (
        resampled_means(delta, resamples=result.resamples, seed=result.seed)
        if labelled.any()
        else None
    )
    policies = []
    for number, policy in enumerate(result.policies):
        rounds = policy.at_stops.costs["rounds"]
        differs = None if draws is None else _mean(delta[:, number])
        policies.append(
            TypeScores(
                policy=policy.name,
                em=_mean(unit_means(policy.at_stops.scores["em"][labelled], units[labelled])),
                f1=_mean(f1[:, number]),
                mean_rounds=None
                if rounds is None
                else _mean(unit_means(rounds[rows], units[rows])),
                delta_f1=None
                if draws is None or differs is None
                else percentile_interval(differs, draws[:, number]),
            )
        )
    return TypeBreakdown(
        type=kind,
        questions=int(rows.sum()),
        labelled=int(labelled.sum()),
        policies=tuple(policies),
    )


def _mean(values: NDArray[np.float64]) -> float | None:
    """``None``: of no question, or not known of some."""
    mean = float(values.mean()) if len(values) else np.nan
    return None if np.isnan(mean) else mean
