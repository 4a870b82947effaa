"""The hidden-constraint experiment as tables: what they hold, and how a terminal shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from suffice.bench.hidden_constraints.found import (
    Cell,
    Contrast,
    Estimate,
    HiddenConstraintsStudy,
    Variant,
)
from suffice.bench.hidden_constraints.judge import Agreement
from suffice.report.tables.text import one_line_name, text_table, titled
from suffice.results.formats import UNKNOWN, amount, count, counted, decimal, percent
from suffice.results.markup import visible

ORACLE = "oracle"
_SCORES = ("semantic", "proxy", "grounded_proxy")
_SPENT = ("documents_read", "retrievals", "steps")
_NAMED = {"semantic": "semantic success, in points", "documents_read": "documents read"}

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its name and title; the first ``names`` cells of a row say what it is about.

    ``width`` is how many letters of a name a terminal shows.
    """

    name: str
    title: str
    head: Row
    rows: Sequence[Row]
    names: int = 1
    gap: int = 2
    width: int = 24

    def text(self) -> list[str]:
        """Title and aligned columns; a name is not repeated in the row below."""
        shown, above = [], ""
        for row in self.rows:
            names = [one_line_name(each, self.width) for each in row[: self.names]]
            if self.names > 1 and row[0] == above:
                names[0] = ""
            above = row[0]
            shown.append([*names, *row[self.names :]])
        return [
            *titled(self.title),
            *text_table(self.head, shown, left=self.names, gap=self.gap),
        ]


def hidden_constraints_tables(study: HiddenConstraintsStudy) -> str:
    """Every table under its title; without colour codes or a final line feed."""
    blocks = [
        titled(f"Hidden constraints: {of_what(study)}"),
        *(each.text() for each in tables_of(study)),
        [] if study.agreement is None else titled(agreed(study.agreement)),
        *(titled(f"Note: {visible(note)}") for note in study.notes),
        titled(explained(study)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def tables_of(study: HiddenConstraintsStudy) -> tuple[Table, ...]:
    """The tables that have rows."""
    found = (
        _estimates(study, "Success, in percent.", _SCORES, percent_estimate),
        _estimates(study, "What it took, a task.", _SPENT, estimate),
        _coverage(study),
        _recalls(study),
        _decomposition(study),
        _oracle(study),
        _against_control(study),
        _variants(study, "ablations", "without one signal at a time"),
        _variants(study, "sweep", "other thresholds (low, high)"),
        *(_contrasts(study, each) for each in _NAMED),
        _costs(study),
    )
    return tuple(each for each in found if each.rows)


# --- words ----------------------------------------------------------------------------------------
def of_what(study: HiddenConstraintsStudy) -> str:
    """Tasks, corpus, models and seeds in a sentence."""
    wanted = study.settings
    asked = study.hard_small if wanted.subset == "hard-small" else study.tasks
    asked = asked if wanted.limit is None else min(asked, wanted.limit)
    last = wanted.seed + wanted.seeds - 1
    which = f"seed {wanted.seed}" if wanted.seeds == 1 else f"seeds {wanted.seed} to {last}"
    return (
        f"{counted(asked, 'task')} of {wanted.subset} ({study.tasks} in all, seed {wanted.benchmark.seed}, "
        f"gap {wanted.benchmark.gap:g}), {study.documents:,} documents; plans by {visible(study.model)}, "
        f"judged by {visible(study.judge)}; {which}."
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


def estimate(found: Estimate | None, *, scale: float = 1.0, digits: int = 2) -> str:
    """A mean with what the seeds and what the tasks say of it.

    >>> from suffice.numbers.intervals.bootstrap import Interval
    >>> interval = Interval(estimate=6.5, low=5.25, high=8.0)
    >>> estimate(Estimate(mean=6.5, clustered=interval, seed_half_width=0.5))
    '6.50 +-0.50 [5.25, 8.00]'
    """
    if found is None:
        return UNKNOWN
    half = found.seed_half_width
    spread = "" if half is None else f" +-{scale * half:.{digits}f}"
    low, high = (
        f"{scale * end:z.{digits}f}" for end in (found.clustered.low, found.clustered.high)
    )
    return f"{scale * found.mean:z.{digits}f}{spread} [{low}, {high}]"


def percent_estimate(found: Estimate | None) -> str:
    """The same of a share, in percent."""
    return estimate(found, scale=100.0, digits=1)


def _difference(each: Contrast, *, alone: bool = False) -> str:
    """A difference with its interval, of success in percentage points; ``alone``: not held with others."""
    found = each.alone if alone else each.difference
    scale, digits = (100.0, 1) if each.measure == "semantic" else (1.0, 2)
    value, low, high = (scale * end for end in (found.estimate, found.low, found.high))
    return f"{value:+z.{digits}f} [{low:z.{digits}f}, {high:z.{digits}f}]"


def agreed(found: Agreement) -> str:
    """Judge against checker in a sentence."""
    why = found.kappa_undefined
    kappa = f"kappa {found.kappa:.2f}" if why is None else f"no kappa, as {why}"
    return (
        f"Judge against the deterministic checker: they agree on {percent(found.share)}% of "
        f"{counted(found.plans, 'plan')}, {kappa}; both satisfied {found.both:,}, the judge alone "
        f"{found.judge_only:,}, the checker alone {found.checker_only:,}, neither {found.neither:,}; "
        f"{counted(found.unreadable, 'verdict')} of the judge could not be read."
    )


# --- tables ---------------------------------------------------------------------------------------
def _cells(study: HiddenConstraintsStudy) -> Iterator[tuple[Row, Cell]]:
    """Cells with their names, by the retriever in the order asked for."""
    for retriever in (None, *study.settings.retrievers):
        for cell in study.cells:
            if cell.retriever == retriever:
                yield (UNKNOWN if retriever is None else retriever, cell.agent), cell


def _estimates(
    study: HiddenConstraintsStudy,
    title: str,
    measures: Sequence[str],
    shown: Callable[[Estimate | None], str],
) -> Table:
    short = {"grounded_proxy": "grounded proxy", "documents_read": "documents"}
    head = ["retriever", "agent", *(short.get(each, each) for each in measures)]
    rows = [
        [*names, *(shown(cell.measures.get(each)) for each in measures)]
        for names, cell in _cells(study)
    ]
    return Table(title.partition(",")[0], title, head, rows, names=2, gap=1, width=16)


def _coverage(study: HiddenConstraintsStudy) -> Table:
    head = ["retriever", "agent", "document retrieved %", "its rank", "token in document %"]
    rows = [
        [
            *names,
            percent(cell.mean("covered")),
            decimal(cell.oracle_rank),
            percent(cell.mean("token_in_document")),
        ]
        for names, cell in _cells(study)
    ]
    title = (
        "Coverage: runs in which a document that carries the constraint was retrieved, its mean rank where "
        "one was, and runs in which some retrieved text holds the token."
    )
    return Table("Coverage", title, head, rows, names=2)


def _recalls(study: HiddenConstraintsStudy) -> Table:
    depths = sorted({k for each in study.recalls for k in each.recall})
    head = [
        "retriever",
        *(f"recall@{k} %" for k in depths),
        "tasks in 10",
        "mean rank",
        "of ranked",
    ]
    rows = [
        [
            each.retriever,
            *(percent(each.recall.get(k)) for k in depths),
            f"{each.in_ten:,}",
            decimal(each.rank),
            f"{each.ranked:,}",
        ]
        for each in study.recalls
    ]
    title = (
        "Retrieval asked once a task with goal and context: tasks with a constraint document among the "
        "first k, and its mean rank over the tasks where it is ranked at all (a fused pool ends early)."
    )
    return Table("Recall", title, head, rows)


def _decomposition(study: HiddenConstraintsStudy) -> Table:
    rows = [
        [name, percent(recall), percent(best), one_line_name(agent)]
        for name, recall, best, agent in study.decomposition
    ]
    head = ["retriever", "recall@10 %", "best semantic %", "of agent"]
    title = "What retrieval allows: recall@10 and the best semantic success of any agent."
    return Table("What retrieval allows", title, head, rows)


def _oracle(study: HiddenConstraintsStudy) -> Table:
    """Semantic success of every agent with every retriever, the oracle last."""
    asked = study.settings.retrievers
    normal = [each for each in asked if each != ORACLE]
    cells = {(cell.agent, cell.retriever): cell for cell in study.cells}
    agents = dict.fromkeys(cell.agent for cell in study.cells if cell.retriever is not None)
    rows = []
    for agent in agents if normal and ORACLE in asked else ():
        found = (cells.get((agent, each)) for each in (*normal, ORACLE))
        means = [None if cell is None else cell.mean("semantic") for cell in found]
        rows.append([agent, *map(percent, means)])
    title = (
        "Semantic success in percent with every retriever and with the oracle, which returns the task's "
        "documents whenever an agent retrieves."
    )
    return Table("Real retrievers and the oracle", title, ["agent", *normal, ORACLE], rows)


def _against_control(study: HiddenConstraintsStudy) -> Table:
    head = ["retriever", "agent", "retrieved %", "semantic % if retrieved", "if not"]
    rows = [
        [
            *names,
            percent(cell.mean("covered")),
            percent(cell.satisfied_covered),
            percent(cell.satisfied_uncovered),
        ]
        for names, cell in _cells(study)
    ]
    title = (
        "Retrieval against control: semantic success of the runs in which a constraint document was "
        "retrieved, and of those in which none was."
    )
    return Table("Retrieval against control", title, head, rows, names=2)


def _variants(study: HiddenConstraintsStudy, experiment: str, what: str) -> Table:
    found = [each for each in study.variants if each.experiment == experiment]
    head = ["", "semantic %", "proxy %", "documents", "retrievals", "steps", "never chosen"]
    rows = [[each.name, *_variant(each)] for each in found]
    of = found[0].cell.retriever if found else None
    title = f"The published gate with {of} in seed {study.settings.seed}: {what}."
    return Table(experiment.capitalize(), title, head, rows)


def _variant(each: Variant) -> list[str]:
    never = (action.partition(" ")[0] for action in each.unreachable)
    return [
        percent(each.cell.mean("semantic")),
        percent(each.cell.mean("proxy")),
        *(decimal(each.cell.mean(name)) for name in _SPENT),
        ", ".join(never),
    ]


def _contrasts(study: HiddenConstraintsStudy, measure: str) -> Table:
    rows = [
        [each.retriever, each.agent, each.against, _difference(each), _difference(each, alone=True)]
        for each in study.contrasts
        if each.measure == measure
    ]
    title = (
        f"Differences of {_NAMED[measure]}, paired by task; all {len(study.contrasts)} of the study hold "
        f"at once with 95% (critical value {study.critical:.2f}), those on the right each alone."
    )
    head = ["retriever", "agent", "minus", "all at once [95%]", "alone [95%]"]
    return Table(f"Differences of {_NAMED[measure]}", title, head, rows, names=3)


def _costs(study: HiddenConstraintsStudy) -> Table:
    rows = [
        [
            *names,
            decimal(cell.mean("documents_distinct")),
            decimal(cell.mean("llm_calls")),
            count(cell.mean("prompt_tokens")),
            count(cell.mean("completion_tokens")),
            amount(cell.mean("seconds")),
            percent(cell.mean("malformed")),
            f"{cell.runs:,}",
            f"{cell.failed:,}" if cell.failed else "",
        ]
        for names, cell in _cells(study)
    ]
    title = (
        "Costs a task: distinct documents, model calls, prompt and completion tokens, seconds; final "
        "results that could not be read; runs."
    )
    head = ["retriever", "agent", "distinct", "calls", "prompt", "completion", "seconds"]
    return Table("Costs", title, [*head, "unread %", "runs", "failed"], rows, names=2, gap=1)
