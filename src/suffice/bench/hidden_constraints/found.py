"""What the hidden-constraint experiment finds, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suffice._version import VERSION
from suffice.bench.hidden_constraints.judge import Agreement
from suffice.bench.hidden_constraints.settings import HiddenConstraintsSettings
from suffice.numbers.intervals.bootstrap import Interval
from suffice.results.as_json import as_json

MEASURES = (
    "semantic",
    "proxy",
    "grounded_proxy",
    "checked",
    "covered",
    "token_in_document",
    "documents_read",
    "documents_distinct",
    "retrievals",
    "steps",
    "llm_calls",
    "prompt_tokens",
    "completion_tokens",
    "seconds",
    "malformed",
)
"""What is measured of a run.

``semantic``: the judge says the plan satisfies the constraint. ``proxy``: its token stands in the plan.
``grounded_proxy``: and a document that carries it was retrieved. ``checked``: the deterministic checker's
word. ``covered``: such a document was retrieved. ``token_in_document``: some retrieved text holds the token.
``documents_read`` counts repeats, as the paper does; ``documents_distinct`` does not. ``malformed``: the
final JSON could not be read.
"""
FIRST_RETRIEVED = "oracle_rank"
"""Rank of the first document that carries the constraint, in the retrieval that found it best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A mean over tasks and seeds.

    ``clustered`` is the 95% bootstrap interval over tasks, each with all its seeds; ``seed_half_width``
    half of the 95% Student t interval of the seeds' means (the paper's), ``None`` with one seed.
    """

    mean: float
    clustered: Interval
    seed_half_width: float | None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        low, high = self.clustered.low, self.clustered.high
        return {
            "mean": self.mean,
            "low": low,
            "high": high,
            "seed_half_width": self.seed_half_width,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """An agent with a retriever.

    Parameters
    ----------
    agent, retriever
        ``retriever`` is ``None`` for an agent that has none.
    runs, failed
        Runs that finished, and those that did not and enter no mean.
    measures
        By name; a measure no run has is left out.
    oracle_rank
        Mean :data:`FIRST_RETRIEVED` over runs that retrieved such a document; ``None``: none did.
    satisfied_covered, satisfied_uncovered
        Semantic success where a constraint document was retrieved, and where none was; ``None``: no such
        run.
    """

    agent: str
    retriever: str | None
    runs: int
    failed: int
    measures: Mapping[str, Estimate]
    oracle_rank: float | None
    satisfied_covered: float | None
    satisfied_uncovered: float | None

    def mean(self, name: str) -> float | None:
        """A measure's mean; ``None`` where no run has it."""
        return self.measures[name].mean if name in self.measures else None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: the contract's fields, then everything else."""
        named = ("semantic", "proxy", "grounded_proxy", "documents_read", "retrievals", "steps")
        rest = [name for name in MEASURES if name not in named]
        return {
            "agent": self.agent,
            "retriever": self.retriever,
            **{name: self.mean(name) for name in (*named, *rest)},
            "oracle_rank": self.oracle_rank,
            "satisfied_covered": self.satisfied_covered,
            "satisfied_uncovered": self.satisfied_uncovered,
            "runs": self.runs,
            "failed": self.failed,
            "intervals": {name: each.to_json() for name, each in self.measures.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A retriever asked with goal and context: shares of tasks, and the mean rank where one was found.

    ``rank`` is the mean over the ``ranked`` tasks whose documents the retriever returned when asked for the
    whole corpus (a fused pool ends early); ``None``: over none.
    """

    retriever: str
    recall: Mapping[int, float]
    rank: float | None
    ranked: int
    in_ten: int

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        shares = {f"recall@{k}": value for k, value in self.recall.items()}
        return {
            "retriever": self.retriever,
            **shares,
            "mean_rank": self.rank,
            "ranked": self.ranked,
            "in_ten": self.in_ten,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Contrast:
    """A paired difference of two agents with one retriever; all of a study hold at once (95%)."""

    retriever: str
    measure: str
    agent: str
    against: str
    difference: Interval
    alone: Interval

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "retriever": self.retriever,
            "measure": self.measure,
            "agent": self.agent,
            "against": self.against,
            "difference": as_json(self.difference),
            "alone": as_json(self.alone),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """A gate with other numbers, in one seed; ``taus`` are (tau_low, tau_high) of one of the sweep."""

    experiment: str
    name: str
    cell: Cell
    unreachable: tuple[str, ...]
    taus: tuple[float, float] | None = None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "experiment": self.experiment,
            "name": self.name,
            "taus": None if self.taus is None else list(self.taus),
            **self.cell.to_json(),
            "unreachable": list(self.unreachable),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTrace:
    """The gated agent's confidence and contradiction by step, in the first seed; tuples by step.

    ``count`` steps were decided; the rest are means, the confidence's standard error, median, and 10th
    and 90th percentiles.
    """

    agent: str
    retriever: str
    count: tuple[int, ...]
    confidence: tuple[float, ...]
    error: tuple[float, ...]
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    contradiction: tuple[float, ...]
    actions: tuple[Mapping[str, int], ...]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**asdict(self), "actions": [dict(each) for each in self.actions]}


@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenConstraintsStudy:
    """Everything the experiment found.

    ``decomposition`` names for every retriever its recall@10 and the best agent's semantic success;
    ``critical`` is what the contrasts' intervals are wide by, NaN without any.
    """

    settings: HiddenConstraintsSettings
    model: str
    judge: str
    tasks: int
    hard_small: int
    documents: int
    cells: tuple[Cell, ...]
    recalls: tuple[Recall, ...]
    contrasts: tuple[Contrast, ...]
    critical: float
    variants: tuple[Variant, ...]
    steps: tuple[StepTrace, ...]
    agreement: Agreement | None
    notes: tuple[str, ...]

    @property
    def decomposition(self) -> tuple[tuple[str, float, float, str], ...]:
        """(retriever, recall@10, best semantic success, its agent) in the order they were asked for.

        A retriever none of whose runs was judged is left out.
        """
        found = []
        for each in self.recalls:
            judged = {
                cell.agent: success
                for cell in self.cells
                if cell.retriever == each.retriever
                and (success := cell.mean("semantic")) is not None
            }
            if judged:
                best = max(judged, key=lambda agent: judged[agent])
                found.append((each.retriever, each.recall[10], judged[best], best))
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: the contract's fields first."""
        return {
            "benchmark": {
                "tasks": self.tasks,
                "hard_small": self.hard_small,
                "documents": self.documents,
            },
            "results": [each.to_json() for each in self.cells],
            "recall": [each.to_json() for each in self.recalls],
            "decomposition": [
                {"retriever": name, "recall@10": recall, "best_semantic": best, "agent": agent}
                for name, recall, best, agent in self.decomposition
            ],
            "contrasts": [each.to_json() for each in self.contrasts],
            "critical": None if math.isnan(self.critical) else self.critical,
            "variants": [each.to_json() for each in self.variants],
            "steps": [each.to_json() for each in self.steps],
            "agreement": None if self.agreement is None else self.agreement.to_json(),
            "model": self.model,
            "judge": self.judge,
            "settings": self.settings.to_json(),
            "notes": list(self.notes),
            "version": VERSION,
        }
