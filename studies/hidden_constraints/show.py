"""The hidden-constraint experiment as tables: what they hold, and how a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from studies.hidden_constraints.judge import Agreement
from studies.hidden_constraints.published import arrangement
from studies.hidden_constraints.results import AgentFigures, HiddenConstraintsStudy, TaskMean
from studies.hidden_constraints.runs import ORACLE
from studies.repetitions import seeds_named
from suffice.results.formats import UNKNOWN, counted, percent
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Table, Value, notes_table

_SCORES = ("semantic", "proxy", "grounded_proxy")
_SPENT = ("documents_read", "retrievals", "steps")
_NAMED = {"semantic": "semantic success, in points", "documents_read": "documents read"}

_RETRIEVER = Column(name="retriever", most=16, once=True)
_AGENT = Column(name="agent", most=16)


def tables_of(study: HiddenConstraintsStudy) -> tuple[Table, ...]:
    """Every table that has rows, what the study is before and what its figures are after them."""
    said = [*(() if study.agreement is None else (agreed(study.agreement),)), explained(study)]
    return (
        Table(name="study", title=f"Hidden constraints: {of_what(study)}"),
        *figures_of(study),
        *notes_table(study.notes),
        *(Table(name="explanation", title=text) for text in said),
    )


def figures_of(study: HiddenConstraintsStudy) -> tuple[Table, ...]:
    """The tables that have rows."""
    wanted = study.settings
    tasks = min(study.hard_small, wanted.limit or study.hard_small)
    tables = (
        *([arrangement(wanted, tasks, study.judge)] if wanted.as_published else []),
        _estimates(study, "Success, in percent.", _SCORES),
        _estimates(study, "What it took, a task.", _SPENT),
        _trajectory_costs(study),
        _coverage(study),
        _recalls(study),
        _decomposition(study),
        _oracle(study),
        _against_control(study),
        _variants(study, "ablations", "without one signal at a time"),
        _variants(study, "sweep", "other thresholds (low, high)"),
        *(_contrasts(study, measure) for measure in _NAMED),
        _costs(study),
    )
    return tuple(table for table in tables if table.rows)


# --- words ----------------------------------------------------------------------------------------
def of_what(study: HiddenConstraintsStudy) -> str:
    """Tasks, corpus, models and seeds in a sentence."""
    wanted = study.settings
    asked = study.hard_small if wanted.subset == "hard-small" else study.tasks
    asked = asked if wanted.limit is None else min(asked, wanted.limit)
    return (
        f"{counted(asked, 'task')} of {wanted.subset} ({study.tasks} in all, seed {wanted.benchmark.seed}, "
        f"gap {wanted.benchmark.gap:g}), {study.documents:,} documents; plans by {visible(study.model)}, "
        f"judged by {visible(study.judge)}; "
        f"{seeds_named(wanted.seed, wanted.seeds)}."
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


def estimate(measured: TaskMean | None, *, scale: float = 1.0, digits: int = 2) -> str:
    """A mean with what the seeds and what the tasks say of it.

    >>> from suffice.numbers.intervals.bootstrap import Interval
    >>> interval = Interval(estimate=6.5, low=5.25, high=8.0)
    >>> estimate(TaskMean(mean=6.5, clustered=interval, seed_half_width=0.5))
    '6.50 +-0.50 [5.25, 8.00]'
    """
    if measured is None:
        return UNKNOWN
    half = measured.seed_half_width
    spread = "" if half is None else f" +-{scale * half:.{digits}f}"
    low, high = (
        f"{scale * end:z.{digits}f}" for end in (measured.clustered.low, measured.clustered.high)
    )
    return f"{scale * measured.mean:z.{digits}f}{spread} [{low}, {high}]"


def percent_estimate(measured: TaskMean | None) -> str:
    """The same of a share, in percent."""
    return estimate(measured, scale=100.0, digits=1)


def agreed(agreement: Agreement) -> str:
    """Judge against checker in a sentence."""
    why = agreement.kappa_undefined
    kappa = f"kappa {agreement.kappa:.2f}" if why is None else f"no kappa, as {why}"
    return (
        f"Judge against the deterministic checker: they agree on {percent(agreement.share)}% of "
        f"{counted(agreement.plans, 'plan')}, {kappa}; both satisfied {agreement.both:,}, the judge alone "
        f"{agreement.judge_only:,}, the checker alone {agreement.checker_only:,}, "
        f"neither {agreement.neither:,}; "
        f"{counted(agreement.unreadable, 'verdict')} of the judge could not be read."
    )


# --- tables ---------------------------------------------------------------------------------------
def _cells(study: HiddenConstraintsStudy) -> Iterator[tuple[tuple[str, str], AgentFigures]]:
    """Cells with their names, by the retriever in the order asked for."""
    for retriever in (None, *study.settings.retrievers):
        for cell in study.cells:
            if cell.retriever == retriever:
                yield (UNKNOWN if retriever is None else retriever, cell.agent), cell


def _of_cells(
    study: HiddenConstraintsStudy,
    name: str,
    title: str,
    *columns: tuple[Column, Callable[[AgentFigures], Value]],
) -> Table:
    """A table with a row a cell."""
    return Table(
        name=name,
        title=title,
        columns=[_RETRIEVER, _AGENT, *(column for column, _ in columns)],
        rows=[[*names, *(value(cell) for _, value in columns)] for names, cell in _cells(study)],
        names=2,
    )


def _share(name: str, head: str) -> Column:
    return Column(name=name, kind="percent", head=head)


def _mean(name: str, head: str | None = None) -> Column:
    return Column(name=name, kind="number", digits=2, head=head)


def _estimates(study: HiddenConstraintsStudy, title: str, measures: Sequence[str]) -> Table:
    short = {"grounded_proxy": "grounded proxy", "documents_read": "documents"}
    shares = measures == _SCORES

    def value(measure: str) -> Callable[[AgentFigures], Value]:
        def of(cell: AgentFigures) -> Value:
            measured = cell.measures.get(measure)
            if measured is None:
                return None
            shown = percent_estimate(measured) if shares else estimate(measured)
            return Cell(measured.clustered, shown)

        return of

    columns = (
        Column(
            name=measure,
            kind="percent" if shares else "number",
            head=short.get(measure, measure),
            interval=True,
        )
        for measure in measures
    )
    values = ((column, value(column.name)) for column in columns)
    return _of_cells(study, title.partition(",")[0], title, *values)


def _trajectory_costs(study: HiddenConstraintsStudy) -> Table:
    """J with its two parts."""
    retrieval, loss = study.settings.retrieval_cost, study.settings.failure_loss

    def total(cell: AgentFigures) -> Value:
        measured = cell.measures.get("trajectory_cost")
        return None if measured is None else Cell(measured.clustered, estimate(measured))

    def retrieving(cell: AgentFigures) -> float | None:
        retrievals = cell.mean("retrievals")
        return None if retrievals is None else retrieval * retrievals

    def failing(cell: AgentFigures) -> float | None:
        success = cell.mean("semantic")
        return None if success is None else loss * (1.0 - success)

    return _of_cells(
        study,
        "Trajectory cost",
        f"Trajectory cost a task, J = c_r retrievals + L_f [plan fails] with c_r {retrieval:g} and L_f "
        f"{loss:g} (Eq. 5), and its parts; low is good.",
        (Column(name="trajectory_cost", kind="number", head="J", interval=True), total),
        (_mean("retrieving"), retrieving),
        (_mean("failing"), failing),
    )


def _coverage(study: HiddenConstraintsStudy) -> Table:
    return _of_cells(
        study,
        "Coverage",
        "Coverage: runs in which a document that carries the constraint was retrieved, its mean rank where "
        "one was, and runs in which some retrieved text holds the token.",
        (_share("covered", "document retrieved %"), lambda cell: cell.mean("covered")),
        (_mean("rank", "its rank"), lambda cell: cell.oracle_rank),
        (
            _share("token_in_document", "token in document %"),
            lambda cell: cell.mean("token_in_document"),
        ),
    )


def _recalls(study: HiddenConstraintsStudy) -> Table:
    depths = sorted({k for recall in study.recalls for k in recall.recall})
    columns = (
        Column(name="retriever"),
        *(_share(f"recall_{k}", f"recall@{k} %") for k in depths),
        Column(name="in_ten", kind="count", head="tasks in 10"),
        _mean("rank_in_ten", "mean rank in 10"),
        _mean("rank", "in the corpus"),
        Column(name="ranked", kind="count", head="of ranked"),
    )
    rows = [
        [
            recall.retriever,
            *(recall.recall.get(k) for k in depths),
            *(recall.in_ten, recall.rank_in_ten, recall.rank, recall.ranked),
        ]
        for recall in study.recalls
    ]
    title = (
        "Retrieval asked once a task with goal and context: tasks with a constraint document among the "
        "first k, and its mean rank over the tasks where it is among the first 10, and over those where it "
        "is ranked at all (a fused pool ends early)."
    )
    return Table(name="Recall", title=title, columns=columns, rows=rows)


def _decomposition(study: HiddenConstraintsStudy) -> Table:
    columns = (
        Column(name="retriever"),
        _share("recall_10", "recall@10 %"),
        _share("best", "best semantic %"),
        Column(name="agent", head="of agent"),
    )
    title = "What retrieval allows: recall@10 and the best semantic success of any agent."
    rows = study.decomposition
    return Table(name="What retrieval allows", title=title, columns=columns, rows=rows)


def _oracle(study: HiddenConstraintsStudy) -> Table:
    """Semantic success of every agent with every retriever, the oracle last."""
    asked = study.settings.retrievers
    normal = [retriever for retriever in asked if retriever != ORACLE]
    cells = {(cell.agent, cell.retriever): cell for cell in study.cells}
    agents = dict.fromkeys(cell.agent for cell in study.cells if cell.retriever is not None)
    rows = []
    for agent in agents if normal and ORACLE in asked else ():
        with_each = (cells.get((agent, retriever)) for retriever in (*normal, ORACLE))
        means = [None if cell is None else cell.mean("semantic") for cell in with_each]
        rows.append([agent, *means])
    title = (
        "Semantic success in percent with every retriever and with the oracle, which returns the task's "
        "documents whenever an agent retrieves."
    )
    columns = (
        Column(name="agent", most=24),
        *(Column(name=retriever, kind="percent") for retriever in (*normal, ORACLE)),
    )
    return Table(name="Real retrievers and the oracle", title=title, columns=columns, rows=rows)


def _against_control(study: HiddenConstraintsStudy) -> Table:
    return _of_cells(
        study,
        "Retrieval against control",
        "Retrieval against control: semantic success of the runs in which a constraint document was "
        "retrieved, and of those in which none was.",
        (_share("covered", "retrieved %"), lambda cell: cell.mean("covered")),
        (
            _share("satisfied_covered", "semantic % if retrieved"),
            lambda cell: cell.satisfied_covered,
        ),
        (_share("satisfied_uncovered", "if not"), lambda cell: cell.satisfied_uncovered),
    )


def _variants(study: HiddenConstraintsStudy, experiment: str, what: str) -> Table:
    variants = [variant for variant in study.variants if variant.experiment == experiment]
    of = variants[0].cell.retriever if variants else None
    columns = (
        Column(name="variant", head="", most=24),
        *(_share(name, f"{name} %") for name in ("semantic", "proxy")),
        *(_mean(name, name.partition("_")[0]) for name in _SPENT),
        Column(name="never_chosen", head="never chosen"),
    )
    rows = [
        [
            variant.name,
            *(variant.cell.mean(name) for name in ("semantic", "proxy", *_SPENT)),
            ", ".join(action.partition(" ")[0] for action in variant.unreachable),
        ]
        for variant in variants
    ]
    title = f"The published gate with {of} in seed {study.settings.seed}: {what}."
    return Table(name=experiment.capitalize(), title=title, columns=columns, rows=rows)


def _contrasts(study: HiddenConstraintsStudy, measure: str) -> Table:
    semantic = measure == "semantic"
    together, alone = (
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
    rows: list[list[Value]] = [
        [contrast.retriever, contrast.agent, contrast.against, contrast.difference, contrast.alone]
        for contrast in study.contrasts
        if contrast.measure == measure
    ]
    title = (
        f"Differences of {_NAMED[measure]}, paired by task; all {len(study.contrasts)} of the study hold "
        f"at once with 95% (critical value {study.critical:.2f}), those on the right each alone."
    )
    return Table(
        name=f"Differences of {_NAMED[measure]}",
        title=title,
        columns=(_RETRIEVER, _AGENT, Column(name="minus", most=16), together, alone),
        rows=rows,
        names=3,
    )


def _costs(study: HiddenConstraintsStudy) -> Table:
    return _of_cells(
        study,
        "Costs",
        "Costs a task: distinct documents, model calls, prompt and completion tokens, seconds; final "
        "results that could not be read; runs.",
        (_mean("distinct"), lambda cell: cell.mean("documents_distinct")),
        (_mean("calls"), lambda cell: cell.mean("llm_calls")),
        (Column(name="prompt", kind="count"), lambda cell: cell.mean("prompt_tokens")),
        (Column(name="completion", kind="count"), lambda cell: cell.mean("completion_tokens")),
        (Column(name="seconds", kind="number"), lambda cell: cell.mean("seconds")),
        (_share("malformed", "unread %"), lambda cell: cell.mean("malformed")),
        (Column(name="runs", kind="count"), lambda cell: cell.runs),
        (
            Column(name="failed", kind="count"),
            lambda cell: cell.failed if cell.failed else Cell(0, ""),
        ),
    )
