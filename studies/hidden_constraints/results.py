"""What the hidden-constraint experiment finds, as data and as tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from studies.hidden_constraints.judge import Agreement
from studies.hidden_constraints.published import arrangement
from studies.hidden_constraints.runs import ORACLE, VANILLA, HiddenConstraintsSettings
from studies.repetitions import seeds_named
from suffice._version import VERSION
from suffice.numbers.intervals.bootstrap import Interval
from suffice.results.as_json import as_json
from suffice.results.formats import UNKNOWN, counted
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Kind, Table, Value, notes_table
from suffice.results.tabular import Tabular

_SCORES = ("semantic", "proxy", "grounded_proxy")
_SPENT = ("documents_read", "retrievals", "steps")
MEASURES = (
    *_SCORES,
    *_SPENT,
    *(
        "checked",
        "covered",
        "token_in_document",
        "documents_distinct",
        "llm_calls",
        "prompt_tokens",
    ),
    *("completion_tokens", "seconds", "malformed", "trajectory_cost"),
)
"""What is measured of a run.

``semantic``: the judge says the plan satisfies the constraint. ``proxy``: its token stands in the plan.
``grounded_proxy``: and a document that carries it was retrieved. ``checked``: the deterministic checker's
word. ``covered``: such a document was retrieved. ``token_in_document``: some retrieved text holds the token.
``documents_read`` counts repeats, as the paper does; ``documents_distinct`` does not. ``malformed``: the
final JSON could not be read. ``trajectory_cost``: J of Eq. 5.
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
        ends = {"low": self.clustered.low, "high": self.clustered.high}
        return {"mean": self.mean, **ends, "seed_half_width": self.seed_half_width}

    def shown(self, *, scale: float = 1.0, digits: int = 2) -> str:
        """The mean with what the seeds and what the tasks say of it.

        >>> interval = Interval(estimate=6.5, low=5.25, high=8.0)
        >>> TaskMean(mean=6.5, clustered=interval, seed_half_width=0.5).shown()
        '6.50 +-0.50 [5.25, 8.00]'
        """
        ends = (self.clustered.low, self.clustered.high)
        low, high = (f"{scale * end:z.{digits}f}" for end in ends)
        half = self.seed_half_width
        spread = "" if half is None else f" +-{scale * half:.{digits}f}"
        return f"{scale * self.mean:z.{digits}f}{spread} [{low}, {high}]"


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

    def cell(self, name: str, *, share: bool) -> Cell | None:
        """A measure as tables show it, a share in percent."""
        measured = self.measures.get(name)
        if measured is None:
            return None
        scale, digits = (100.0, 1) if share else (1.0, 2)
        return Cell(measured.clustered, measured.shown(scale=scale, digits=digits))

    def to_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "retriever": self.retriever,
            **{name: self.mean(name) for name in MEASURES},
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
    whole corpus (a fused pool ends early); ``rank_in_ten`` over the ``in_ten`` tasks that have one among the
    first ten, as the paper's Table 3 has it. ``None``: over none.
    """

    retriever: str
    recall: Mapping[int, float]
    rank: float | None
    ranked: int
    in_ten: int
    rank_in_ten: float | None

    def to_json(self) -> dict[str, Any]:
        return {
            "retriever": self.retriever,
            **{f"recall@{k}": value for k, value in self.recall.items()},
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
    """Everything the experiment found; ``critical`` is what the contrasts' intervals are wide by."""

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

    @property
    def decomposition(self) -> tuple[tuple[str, float, float, str], ...]:
        """(retriever, recall@10, best semantic success, its agent) in the order they were asked for.

        A retriever none of whose runs was judged is left out.
        """
        rows = []
        for recall in self.recalls:
            own = (cell for cell in self.cells if cell.retriever == recall.retriever)
            judged = {c.agent: mean for c in own if (mean := c.mean("semantic")) is not None}
            if judged:
                best = max(judged, key=lambda agent: judged[agent])
                rows.append((recall.retriever, recall.recall[10], judged[best], best))
        return tuple(rows)

    @property
    def failed(self) -> int:
        cells = (*self.cells, *(variant.cell for variant in self.variants))
        return sum(cell.failed for cell in cells)

    def tables(self) -> Sequence[Table]:
        """Every table that has rows, what the study is before and what its figures are after them."""
        said = [explained(self)]
        if self.agreement is not None:
            said.insert(0, self.agreement.sentence("Judge against the deterministic checker"))
        return (
            Table(name="study", title=f"Hidden constraints: {of_what(self)}"),
            *figures_of(self),
            *notes_table(self.notes),
            *(Table(name="explanation", title=text) for text in said),
        )

    def to_json(self) -> dict[str, Any]:
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


# --- words ----------------------------------------------------------------------------------------
def of_what(study: HiddenConstraintsStudy) -> str:
    """Tasks, corpus, models and seeds in a sentence."""
    wanted = study.settings
    asked = study.hard_small if wanted.subset == "hard-small" else study.tasks
    asked = asked if wanted.limit is None else min(asked, wanted.limit)
    return (
        f"{counted(asked, 'task')} of {wanted.subset} ({study.tasks} in all, seed {wanted.benchmark.seed}, "
        f"gap {wanted.benchmark.gap:g}), {study.documents:,} documents; plans by {visible(study.model)}, "
        f"judged by {visible(study.judge)}; {seeds_named(wanted.seed, wanted.seeds)}."
    )


def explained(study: HiddenConstraintsStudy) -> str:
    """What the figures are."""
    return (
        "Semantic: the judge says that the plan meets the constraint; proxy: the plan names its token; "
        "grounded: it does, and a document that carries the token had been retrieved. Documents count "
        "repeats. After +-: half of the 95% Student t interval of the seeds' means, without one where there "
        "is one seed. In brackets: 95% interval of "
        f"{study.settings.resamples} resamples of the tasks, each with all its seeds. Vanilla never "
        "retrieves, so it has one row for all retrievers."
    )


# --- tables ---------------------------------------------------------------------------------------
_RETRIEVER = Column(name="retriever", most=16, once=True)
_AGENT = Column(name="agent", most=16)
_CONTRASTED = {"semantic": "semantic success, in points", "documents_read": "documents read"}
Of = Callable[[AgentFigures], Value]


def figures_of(study: HiddenConstraintsStudy) -> tuple[Table, ...]:
    """The tables that have rows."""
    wanted = study.settings
    tasks = min(study.hard_small, wanted.limit or study.hard_small)
    tables = (
        *([arrangement(wanted, tasks, study.judge)] if wanted.as_published else []),
        _of_cells(study, "Success", "Success, in percent.", *map(_estimate, _SCORES)),
        _of_cells(study, "What it took", "What it took, a task.", *map(_estimate, _SPENT)),
        _trajectory_costs(study),
        _of_cells(
            study,
            "Coverage",
            "Coverage: runs in which a document that carries the constraint was retrieved, its mean rank "
            "where one was, and runs in which some retrieved text holds the token.",
            _share("covered", "document retrieved %"),
            (
                Column(name="rank", head="its rank", kind="number", digits=2),
                lambda c: c.oracle_rank,
            ),
            _share("token_in_document", "token in document %"),
        ),
        _recalls(study),
        decomposition_table(study),
        _oracle(study),
        _of_cells(
            study,
            "Retrieval against control",
            "Retrieval against control: semantic success of the runs in which a constraint document was "
            "retrieved, and of those in which none was.",
            _share("covered", "retrieved %"),
            _share("if_covered", "semantic % if retrieved", lambda c: c.satisfied_covered),
            _share("if_uncovered", "if not", lambda c: c.satisfied_uncovered),
        ),
        variants_table(study, "ablations", "without one signal at a time"),
        variants_table(study, "sweep", "other thresholds (low, high)"),
        *(_contrasts(study, measure) for measure in _CONTRASTED),
        _of_cells(
            study,
            "Costs",
            "Costs a task: distinct documents, model calls, prompt and completion tokens, seconds; final "
            "results that could not be read; runs.",
            _mean("documents_distinct", "distinct"),
            _mean("llm_calls", "calls"),
            _mean("prompt_tokens", "prompt", digits=0),
            _mean("completion_tokens", "completion", digits=0),
            _mean("seconds", "seconds"),
            _share("malformed", "unread %"),
            (Column(name="runs", kind="count"), lambda c: c.runs),
            (Column(name="failed", kind="count"), lambda c: c.failed if c.failed else Cell(0, "")),
        ),
    )
    return tuple(table for table in tables if table.rows)


def _of_cells(
    study: HiddenConstraintsStudy, name: str, title: str, *columns: tuple[Column, Of]
) -> Table:
    """A table with a row a cell, by the retriever in the order asked for."""
    return Table(
        name=name,
        title=title,
        columns=[_RETRIEVER, _AGENT, *(column for column, _ in columns)],
        rows=[
            [retriever or UNKNOWN, cell.agent, *(value(cell) for _, value in columns)]
            for retriever in (None, *study.settings.retrievers)
            for cell in study.cells
            if cell.retriever == retriever
        ],
        names=2,
    )


def _share(name: str, head: str, value: Of | None = None) -> tuple[Column, Of]:
    return Column(name=name, kind="percent", head=head), value or (lambda c: c.mean(name))


def _mean(name: str, head: str, digits: int = 2) -> tuple[Column, Of]:
    return Column(name=name, kind="number", digits=digits, head=head), lambda c: c.mean(name)


def _estimate(name: str) -> tuple[Column, Of]:
    heads = {"grounded_proxy": "grounded proxy", "documents_read": "documents"}
    share = name in _SCORES
    kind: Kind = "percent" if share else "number"
    column = Column(name=name, kind=kind, head=heads.get(name, name), interval=True)
    return column, lambda c: c.cell(name, share=share)


def _trajectory_costs(study: HiddenConstraintsStudy) -> Table:
    """J with its two parts."""
    retrieval, loss = study.settings.retrieval_cost, study.settings.failure_loss

    def part(measure: str, of: Callable[[float], float]) -> Of:
        return lambda c: None if (mean := c.mean(measure)) is None else of(mean)

    return _of_cells(
        study,
        "Trajectory cost",
        f"Trajectory cost a task, J = c_r retrievals + L_f [plan fails] with c_r {retrieval:g} and L_f "
        f"{loss:g} (Eq. 5), and its parts; low is good.",
        (
            Column(name="trajectory_cost", kind="number", head="J", interval=True),
            lambda c: c.cell("trajectory_cost", share=False),
        ),
        (
            Column(name="retrieving", kind="number", digits=2),
            part("retrievals", lambda mean: retrieval * mean),
        ),
        (
            Column(name="failing", kind="number", digits=2),
            part("semantic", lambda mean: loss * (1.0 - mean)),
        ),
    )


def _recalls(study: HiddenConstraintsStudy) -> Table:
    depths = sorted({k for recall in study.recalls for k in recall.recall})
    return Table(
        name="Recall",
        title="Retrieval asked once a task with goal and context: tasks with a constraint document among the "
        "first k, and its mean rank over the tasks where it is among the first 10, and over those where it "
        "is ranked at all (a fused pool ends early).",
        columns=(
            Column(name="retriever"),
            *(_share(f"recall_{k}", f"recall@{k} %")[0] for k in depths),
            Column(name="in_ten", kind="count", head="tasks in 10"),
            _mean("rank_in_ten", "mean rank in 10")[0],
            _mean("rank", "in the corpus")[0],
            Column(name="ranked", kind="count", head="of ranked"),
        ),
        rows=[
            [
                *(one.retriever, *(one.recall.get(k) for k in depths)),
                *(one.in_ten, one.rank_in_ten, one.rank, one.ranked),
            ]
            for one in study.recalls
        ],
    )


def decomposition_table(study: HiddenConstraintsStudy) -> Table:
    return Table(
        name="What retrieval allows",
        title="What retrieval allows: recall@10 and the best semantic success of any agent.",
        columns=(
            Column(name="retriever"),
            _share("recall_10", "recall@10 %")[0],
            _share("best", "best semantic %")[0],
            Column(name="agent", head="of agent"),
        ),
        rows=study.decomposition,
    )


def _oracle(study: HiddenConstraintsStudy) -> Table:
    """Semantic success of every agent with every retriever, the oracle last."""
    asked = study.settings.retrievers
    normal = [retriever for retriever in asked if retriever != ORACLE]
    means = {(cell.agent, cell.retriever): cell.mean("semantic") for cell in study.cells}
    agents = dict.fromkeys(cell.agent for cell in study.cells if cell.retriever is not None)
    both = normal and ORACLE in asked
    return Table(
        name="Real retrievers and the oracle",
        title="Semantic success in percent with every retriever and with the oracle, which returns the "
        "task's documents whenever an agent retrieves.",
        columns=(
            Column(name="agent", most=24),
            *(Column(name=retriever, kind="percent") for retriever in (*normal, ORACLE)),
        ),
        rows=[
            [agent, *(means.get((agent, retriever)) for retriever in (*normal, ORACLE))]
            for agent in (agents if both else ())
        ],
    )


def variants_table(study: HiddenConstraintsStudy, experiment: str, what: str) -> Table:
    variants = [variant for variant in study.variants if variant.experiment == experiment]
    of = variants[0].cell.retriever if variants else None
    scores, spent = ("semantic", "proxy"), _SPENT
    return Table(
        name=experiment.capitalize(),
        title=f"The published gate with {of} in seed {study.settings.seed}: {what}.",
        columns=(
            Column(name="variant", head="", most=24),
            *(_share(name, f"{name} %")[0] for name in scores),
            *(_mean(name, name.partition("_")[0])[0] for name in spent),
            Column(name="never_chosen", head="never chosen"),
        ),
        rows=[
            [
                one.name,
                *(one.cell.mean(name) for name in (*scores, *spent)),
                ", ".join(action.partition(" ")[0] for action in one.unreachable),
            ]
            for one in variants
        ],
    )


def _contrasts(study: HiddenConstraintsStudy, measure: str) -> Table:
    semantic = measure == "semantic"
    columns = (
        Column(
            name=name,
            kind="points" if semantic else "number",
            head=head,
            digits=1 if semantic else 2,
            interval=True,
            signed=True,
        )
        for name, head in (("together", "all at once [95%]"), ("alone", "alone [95%]"))
    )
    return Table(
        name=f"Differences of {_CONTRASTED[measure]}",
        title=f"Differences of {_CONTRASTED[measure]}, paired by task; all {len(study.contrasts)} of the "
        f"study hold at once with 95% (critical value {study.critical:.2f}), those on the right each alone.",
        columns=(_RETRIEVER, _AGENT, Column(name="minus", most=16), *columns),
        rows=[
            [one.retriever, one.agent, one.against, one.difference, one.alone]
            for one in study.contrasts
            if one.measure == measure
        ],
        names=3,
    )


# --- notes ----------------------------------------------------------------------------------------
def notes_of(study: HiddenConstraintsStudy) -> Iterator[str]:
    """What the figures themselves say must be known."""
    leaked = [c for c in study.cells if c.agent == VANILLA and (c.mean("proxy") or 0.0) > 0.0]
    if leaked:
        share = leaked[0].mean("proxy")
        yield f"{VANILLA} names {share:.0%} of the tokens without ever retrieving: they leak"
    worst = max(study.cells, key=lambda cell: cell.mean("malformed") or 0.0)
    if malformed := worst.mean("malformed"):
        yield (
            f"the final JSON could not be read in up to {malformed:.0%} of the runs "
            f"({worst.agent}, {worst.retriever or 'no retriever'}); the steps as drafted are judged there"
        )
    judged = study.agreement
    if judged is not None and judged.unreadable:
        yield f"{judged.unreadable} verdicts of the judge could not be read and count as not satisfied"
    if study.settings.seeds == 1:
        yield "one seed: no interval over seeds"
    for asked in study.recalls:
        own = [cell.mean("covered") for cell in study.cells if cell.retriever == asked.retriever]
        if own and not any(own):
            yield (
                f"with {asked.retriever} no run retrieved a document that carries its constraint: semantic "
                "success is what a plan gets right unread"
            )
    if study.contrasts and study.failed:
        yield "tasks without a run of every agent and retriever are left out of all differences"
