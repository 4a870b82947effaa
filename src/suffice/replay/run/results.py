"""What a replay found, ready for a table, JSON and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.costs.usage import CostModel
from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval
from suffice.protocols import StopPolicy
from suffice.replay.run.answer_sets import AnswerSetResult
from suffice.replay.run.frontier import Frontier
from suffice.scoring import F1Kind

_OTHERWISE_NAMED = frozenset(
    {"rounds"}
)  # in JSON mean_rounds; "rounds" holds those of each question


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyResult:
    """One policy's scores and costs.

    Scores are fractions, means over labelled questions (``None``: no question is labelled); costs are
    means per question over all questions, by the names of :data:`suffice.costs.usage.COSTS` (``None``:
    unknown). ``stops`` (n_questions,) is the
    round taken; ``beyond_record`` counts questions for which the policy wanted a later one.
    ``retained_f1`` is F1 over the full budget's, ``frontier_gain`` F1 minus that of the fixed-k
    frontier at the same cost. ``precision`` and ``recall`` are of the passages retrieved up to the
    stop, means over the questions where they are known (``None``: nowhere). ``confidence``
    (n_questions,) is the policy's own at the stop round (``None``: it has none) and ``auroc`` its AUROC
    against exact match there. ``sets`` are the answer sets of a policy that gives them.
    """

    name: str
    kind: str
    preset: str | None
    hash: str
    em: float | None
    f1: float | None
    acc: float | None
    mean_rounds: float
    costs: Mapping[str, float | None]
    stops: NDArray[np.int16]
    beyond_record: int
    f1_interval: Interval | None = None
    delta_f1: Interval | None = None
    retained_f1: float | None = None
    frontier_gain: Interval | None = None
    p95_rounds: float = 0.0
    precision: float | None = None
    recall: float | None = None
    policy: StopPolicy | None = None
    confidence: NDArray[np.float64] | None = None
    auroc: float | None = None
    sets: AnswerSetResult | None = None

    @property
    def stop_counts(self) -> dict[int, int]:
        """How many questions stop at each round at which any does."""
        rounds, counts = np.unique(self.stops, return_counts=True)
        return dict(zip(rounds.tolist(), counts.tolist(), strict=True))

    def to_json(self, question_ids: tuple[str, ...] | None = None) -> dict[str, Any]:
        """The entry of ``replay --json``; with ids also the stop round of every question."""
        entry: dict[str, Any] = {
            "name": self.name,
            "kind": self.kind,
            "preset": self.preset,
            "hash": self.hash,
            "em": self.em,
            "f1": self.f1,
            "acc": self.acc,
            "mean_rounds": self.mean_rounds,
            **{name: paid for name, paid in self.costs.items() if name not in _OTHERWISE_NAMED},
            "stop_rounds": {str(number): stopped for number, stopped in self.stop_counts.items()},
            "beyond_record": self.beyond_record,
            "delta_f1": _interval(self.delta_f1),
            "retained_f1": self.retained_f1,
            "f1_interval": _interval(self.f1_interval),
            "frontier_gain": _interval(self.frontier_gain),
            "p95_rounds": self.p95_rounds,
        }
        if self.recall is not None:
            entry |= {"precision": self.precision, "recall": self.recall}
        if self.confidence is not None:
            entry["auroc"] = self.auroc
        if self.sets is not None:
            entry.update(self.sets.to_json(question_ids))
        if question_ids is not None:
            entry["rounds"] = dict(zip(question_ids, self.stops.tolist(), strict=True))
        return entry


def _interval(interval: Interval | None) -> dict[str, float] | None:
    return None if interval is None else interval.to_json()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """Policies side by side on one trace set.

    ``notes`` are sentences a reader must know: splits chosen by default, rounds taken for missing
    ones, in-sample scores, prices. ``cost`` is what policies are compared at, ``cost_model`` what
    priced it.
    """

    questions: int
    labelled: int
    max_rounds: int
    baseline: str
    split: str | None
    f1_kind: F1Kind
    seed: int
    resamples: int
    source: str
    policies: tuple[PolicyResult, ...]
    frontier: Frontier | None
    question_ids: tuple[str, ...]
    cost: CostAxis
    cost_model: CostModel
    notes: tuple[str, ...] = field(default=())

    def to_json(self, *, per_question: bool = False) -> dict[str, Any]:
        """The document of ``replay --json``: strict JSON, null where undefined."""
        ids = self.question_ids if per_question else None
        frontier = self.frontier
        return {
            "questions": self.questions,
            "labelled": self.labelled,
            "max_rounds": self.max_rounds,
            "baseline": self.baseline,
            "split": self.split,
            "f1_kind": self.f1_kind,
            "seed": self.seed,
            "bootstrap": self.resamples,
            "version": VERSION,
            "traces": self.source,
            "cost": self.cost.name,
            "prices": None if self.cost_model.prices is None else self.cost_model.prices.to_json(),
            "energy": self.cost_model.energy.to_json() if self._energy_used() else None,
            "policies": [policy.to_json(ids) for policy in self.policies],
            "frontier": None
            if frontier is None
            else {
                "cost": frontier.cost_name,
                "costs": list(frontier.costs),
                "f1": list(frontier.f1),
            },
            "notes": list(self.notes),
        }

    def _energy_used(self) -> bool:
        return any(policy.costs.get("joules") is not None for policy in self.policies)
