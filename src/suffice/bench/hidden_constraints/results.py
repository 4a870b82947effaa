"""What the hidden-constraint experiment finds, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suffice._version import VERSION
from suffice.bench.hidden_constraints.judge import Agreement
from suffice.bench.hidden_constraints.runs import VANILLA, HiddenConstraintsSettings, published_gate
from suffice.loops.planning.controls import GATED
from suffice.loops.record.session import RecordSummary
from suffice.numbers.intervals.bootstrap import Interval
from suffice.policies.gate.settings import unreachable
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular

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
    "trajectory_cost",
)
"""What is measured of a run.

``semantic``: the judge says the plan satisfies the constraint. ``proxy``: its token stands in the plan.
``grounded_proxy``: and a document that carries it was retrieved. ``checked``: the deterministic checker's
word. ``covered``: such a document was retrieved. ``token_in_document``: some retrieved text holds the token.
``documents_read`` counts repeats, as the paper does; ``documents_distinct`` does not. ``malformed``: the
final JSON could not be read. ``trajectory_cost``: J, see
:func:`suffice.bench.hidden_constraints.scores.trajectory_cost`.
"""
FIRST_RETRIEVED = "oracle_rank"
"""Rank of the first document that carries the constraint, in the retrieval that found it best."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMean:
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
class AgentFigures:
    """An agent with its retriever, ``None`` for one that has none.

    ``failed`` runs enter no mean; a measure no run has is left out. ``oracle_rank`` is the mean
    :data:`FIRST_RETRIEVED`; ``satisfied_covered`` and ``satisfied_uncovered`` are semantic success where a
    constraint document was retrieved, and where none was. ``None``: there is no such run.
    """

    agent: str
    retriever: str | None
    runs: int
    failed: int
    measures: Mapping[str, TaskMean]
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
            "intervals": as_json(self.measures),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """A retriever asked with goal and context: shares of tasks, and the mean rank where one was found.

    ``rank`` is the mean over the ``ranked`` tasks whose documents the retriever returned when asked for the
    whole corpus (a fused pool ends early); ``None``: over none. ``rank_in_ten`` is the mean over the
    ``in_ten`` tasks that have one among the first ten, as the paper's Table 3 has it.
    """

    retriever: str
    recall: Mapping[int, float]
    rank: float | None
    ranked: int
    in_ten: int
    rank_in_ten: float | None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        shares = {f"recall@{k}": value for k, value in self.recall.items()}
        return {
            "retriever": self.retriever,
            **shares,
            "mean_rank": self.rank,
            "ranked": self.ranked,
            "in_ten": self.in_ten,
            "mean_rank_in_ten": self.rank_in_ten,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedDifference:
    """A paired difference of two agents with one retriever; all of a study hold at once (95%)."""

    retriever: str
    measure: str
    agent: str
    against: str
    difference: Interval
    alone: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class GateVariant:
    """A gate with other numbers, in one seed; ``taus`` are (tau_low, tau_high) of one of the sweep."""

    experiment: str
    name: str
    cell: AgentFigures
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleStep:
    """A decision of an example run; ``documents`` were retrieved, ``chosen`` was appended to the plan."""

    confidence: float
    contradiction: float
    action: str
    blocked: str | None
    documents: int
    chosen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleRun:
    """One run of a gated agent, step by step; ``semantic`` is ``None`` where nobody judged it."""

    agent: str
    retriever: str
    task: str
    goal: str
    seed: int
    tau_low: float
    tau_high: float
    steps: tuple[ExampleStep, ...]
    proxy: bool
    semantic: bool | None
    covered: bool


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class HiddenConstraintsStudy(Tabular):
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
    cells: tuple[AgentFigures, ...]
    recalls: tuple[Recall, ...]
    contrasts: tuple[PairedDifference, ...]
    critical: float
    variants: tuple[GateVariant, ...]
    steps: tuple[StepTrace, ...]
    examples: tuple[ExampleRun, ...]
    agreement: Agreement | None
    notes: tuple[str, ...]

    def tables(self) -> Sequence[Table]:
        """Success, costs, retrieval, thresholds and differences, and what is to be said of them."""
        from suffice.bench.hidden_constraints.show import tables_of

        return tables_of(self)

    @property
    def decomposition(self) -> tuple[tuple[str, float, float, str], ...]:
        """(retriever, recall@10, best semantic success, its agent) in the order they were asked for.

        A retriever none of whose runs was judged is left out.
        """
        rows = []
        for recall in self.recalls:
            judged = {
                cell.agent: success
                for cell in self.cells
                if cell.retriever == recall.retriever
                and (success := cell.mean("semantic")) is not None
            }
            if judged:
                best = max(judged, key=lambda agent: judged[agent])
                rows.append((recall.retriever, recall.recall[10], judged[best], best))
        return tuple(rows)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON: the contract's fields first."""
        return {
            "benchmark": {
                "tasks": self.tasks,
                "hard_small": self.hard_small,
                "documents": self.documents,
            },
            "results": as_json(self.cells),
            "recall": as_json(self.recalls),
            "decomposition": [
                {"retriever": name, "recall@10": recall, "best_semantic": best, "agent": agent}
                for name, recall, best, agent in self.decomposition
            ],
            "contrasts": as_json(self.contrasts),
            "critical": as_json(self.critical),
            "variants": as_json(self.variants),
            "steps": as_json(self.steps),
            "examples": as_json(self.examples),
            "agreement": as_json(self.agreement),
            "model": self.model,
            "judge": self.judge,
            "settings": self.settings.to_json(),
            "notes": list(self.notes),
            "version": VERSION,
        }


# --- notes ----------------------------------------------------------------------------------------
def study_notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> HiddenConstraintsStudy:
    """The study with its notes."""
    return replace(study, notes=tuple(_notes(study, summary)))


def _notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> Iterator[str]:
    settings = study.settings
    steps = settings.planning.max_steps
    if GATED in settings.agents:
        for action in unreachable(published_gate(settings), steps):
            yield f"the published gate: {action}"
    for name, gate in settings.gates.items():
        for action in unreachable(gate, steps):
            yield f"the gate {name}: {action}"
    cells = (*study.cells, *(variant.cell for variant in study.variants))
    failed = sum(cell.failed for cell in cells)
    if failed:
        kept = "; their reasons are in plans/record.db, and running the same again tries them again"
        yield f"{failed} runs failed and enter no mean" + (kept if settings.folder else "")
    if summary.recorded == 0 and summary.failed == 0:
        yield "nothing was run anew: all runs were recorded before"
    yield from _of_the_model(study)
    for asked in study.recalls:
        covered = [
            cell.mean("covered") for cell in study.cells if cell.retriever == asked.retriever
        ]
        if covered and not any(covered):
            yield (
                f"with {asked.retriever} no run retrieved a document that carries its constraint: semantic "
                "success is what a plan gets right unread"
            )
    if study.contrasts and failed:
        yield "tasks without a run of every agent and retriever are left out of all differences"


def _of_the_model(study: HiddenConstraintsStudy) -> Iterator[str]:
    leaked = [c for c in study.cells if c.agent == VANILLA and (c.mean("proxy") or 0.0) > 0.0]
    if leaked:
        yield (
            f"{VANILLA} names {leaked[0].mean('proxy'):.0%} of the tokens without ever retrieving: they leak"
        )
    malformed = [cell.mean("malformed") or 0.0 for cell in study.cells]
    if malformed and max(malformed) > 0.0:
        worst = max(study.cells, key=lambda cell: cell.mean("malformed") or 0.0)
        yield (
            f"the final JSON could not be read in up to {max(malformed):.0%} of the runs "
            f"({worst.agent}, {worst.retriever or 'no retriever'}); the steps as drafted are judged there"
        )
    judged = study.agreement
    if judged is not None and judged.unreadable:
        yield f"{judged.unreadable} verdicts of the judge could not be read and count as not satisfied"
    if study.settings.seeds == 1:
        yield "one seed: no interval over seeds"
