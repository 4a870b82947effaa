"""The hidden-constraint experiment as tables and notes, read from its document."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from studies.command import seeds_named
from studies.hidden_constraints.checker import CHECKER
from studies.hidden_constraints.judge import BACKOFF_S, MAX_TOKENS, RETRIES
from studies.hidden_constraints.runs import (
    ORACLE,
    RECALL_AT,
    REGIMES,
    VANILLA,
    HiddenConstraintsSettings,
    published_gate,
    said,
)
from studies.hidden_constraints.scores import Row
from suffice.errors import counted
from suffice.results.formats import UNKNOWN, percent
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Table, Value
from suffice.stats.intervals import Interval

Document = Mapping[str, Any]
Settings = HiddenConstraintsSettings
Of = Callable[[Row], Value]

_SCORES = ("semantic", "proxy", "grounded_proxy")
_SPENT = ("documents_read", "retrievals", "steps")
_CONTRASTED = {"semantic": "semantic success, in points", "documents_read": "documents read"}


def failed_runs(document: Document) -> int:
    """Runs of the experiment that failed, those of gate variants among them."""
    return sum(row["failed"] for row in (*document["results"], *document["variants"]))


def tables_of(document: Document, settings: Settings) -> Iterator[Table]:
    """What the study is, its figures, and what these are."""
    yield Table(name="study", title=f"Hidden constraints: {_of_what(document, settings)}")
    yield from _figures(document, settings)
    if document["agreement"] is not None:
        yield Table(name="judge", title=_agreed(document["agreement"]))
    yield Table(
        name="explanation",
        title="Semantic: the judge says that the plan meets the constraint; proxy: the plan names its "
        "token; grounded: it does, and a document that carries the token had been retrieved. Documents count "
        "repeats. After +-: half of the 95% Student t interval of the seeds' means, without one where there "
        f"is one seed. In brackets: 95% interval of {settings.resamples} resamples of the tasks, each with "
        "all its seeds. Vanilla never retrieves, so it has one row for all retrievers.",
    )


def _of_what(document: Document, settings: Settings) -> str:
    made = document["benchmark"]
    asked = made["hard_small"] if settings.subset == "hard-small" else made["tasks"]
    asked = asked if settings.limit is None else min(asked, settings.limit)
    return (
        f"{counted(asked, 'task')} of {settings.subset} ({made['tasks']} in all, seed "
        f"{settings.benchmark.seed}, gap {settings.benchmark.gap:g}), {made['documents']:,} documents; plans "
        f"by {visible(document['model'])}, judged by {visible(document['judge'])}; "
        f"{seeds_named(settings.seed, settings.seeds)}."
    )


def _agreed(found: Mapping[str, Any]) -> str:
    why = found["kappa_undefined"]
    kappa = f"kappa {found['kappa']:.2f}" if why is None else f"no kappa, as {why}"
    plans = sum(found[name] for name in ("both", "judge_only", "checker_only", "neither"))
    return (
        f"Judge against the deterministic checker: they agree on {percent(found['share'])}% of "
        f"{counted(plans, 'plan')}, {kappa}; both satisfied {found['both']:,}, the judge alone "
        f"{found['judge_only']:,}, the checker alone {found['checker_only']:,}, neither "
        f"{found['neither']:,}; {counted(found['unreadable'], 'verdict')} of the judge could not be read."
    )


# --- tables ---------------------------------------------------------------------------------------
def _column(
    name: str, head: str | None = None, of: Of | None = None, **how: Any
) -> tuple[Column, Of]:
    """A column, and what stands in it of a row of the document."""
    return Column(name=name, head=head, **how), of or itemgetter(name)


_share = partial(_column, kind="percent")
_number = partial(_column, kind="number", digits=2)
_count = partial(_column, kind="count")
_CELL = (
    _column("retriever", of=lambda row: row["retriever"] or UNKNOWN, most=16, once=True),
    _column("agent", most=16),
)


def _table(
    name: str, title: str, rows: Sequence[Row], *columns: tuple[Column, Of], names: int = 1
) -> Table:
    return Table(
        name=name,
        title=title,
        columns=[column for column, _ in columns],
        rows=[[value(row) for _, value in columns] for row in rows],
        names=names,
    )


def _figures(document: Document, settings: Settings) -> Iterator[Table]:
    cells = [
        row
        for retriever in (None, *settings.retrievers)
        for row in document["results"]
        if row["retriever"] == retriever
    ]

    def by_cell(name: str, title: str, *columns: tuple[Column, Of]) -> Table:
        return _table(name, title, cells, *_CELL, *columns, names=2)

    if settings.as_published:
        hard_small = document["benchmark"]["hard_small"]
        tasks = min(hard_small, settings.limit or hard_small)
        yield arrangement(settings, tasks, document["judge"])
    yield by_cell("Success", "Success, in percent.", *map(_estimate, _SCORES))
    yield by_cell("What it took", "What it took, a task.", *map(_estimate, _SPENT))
    retrieval, loss = settings.retrieval_cost, settings.failure_loss
    yield by_cell(
        "Trajectory cost",
        f"Trajectory cost a task, J = c_r retrievals + L_f [plan fails] with c_r {retrieval:g} and L_f "
        f"{loss:g} (Eq. 5), and its parts; low is good.",
        _estimate("trajectory_cost", "J"),
        _number("retrieving", of=lambda row: _scaled(row["retrievals"], 0.0, retrieval)),
        _number("failing", of=lambda row: _scaled(row["semantic"], loss, -loss)),
    )
    yield by_cell(
        "Coverage",
        "Coverage: runs in which a document that carries the constraint was retrieved, its mean rank "
        "where one was, and runs in which some retrieved text holds the token.",
        _share("covered", "document retrieved %"),
        _number("rank", "its rank", itemgetter("oracle_rank")),
        _share("token_in_document", "token in document %"),
    )
    yield _table(
        "Recall",
        "Retrieval asked once a task with goal and context: tasks with a constraint document among the "
        "first k, and its mean rank over the tasks where it is among the first 10, and over those where it "
        "is ranked at all (a fused pool ends early).",
        document["recall"],
        _column("retriever"),
        *(_share(f"recall_{k}", f"recall@{k} %", itemgetter(f"recall@{k}")) for k in RECALL_AT),
        _count("in_ten", "tasks in 10"),
        _number("rank_in_ten", "mean rank in 10", itemgetter("mean_rank_in_ten")),
        _number("rank", "in the corpus", itemgetter("mean_rank")),
        _count("ranked", "of ranked"),
    )
    yield _table(
        "What retrieval allows",
        "What retrieval allows: recall@10 and the best semantic success of any agent.",
        document["decomposition"],
        _column("retriever"),
        _share("recall_10", "recall@10 %", itemgetter("recall@10")),
        _share("best", "best semantic %", itemgetter("best_semantic")),
        _column("agent", "of agent"),
    )
    yield _oracle(document["results"], settings.retrievers)
    yield by_cell(
        "Retrieval against control",
        "Retrieval against control: semantic success of the runs in which a constraint document was "
        "retrieved, and of those in which none was.",
        _share("covered", "retrieved %"),
        _share("if_covered", "semantic % if retrieved", itemgetter("satisfied_covered")),
        _share("if_uncovered", "if not", itemgetter("satisfied_uncovered")),
    )
    for experiment, what in (
        ("ablations", "without one signal at a time"),
        ("sweep", "other thresholds (low, high)"),
    ):
        yield _variants(document["variants"], experiment, f"in seed {settings.seed}: {what}.")
    for measure in _CONTRASTED:
        yield _contrasts(document, measure)
    yield by_cell(
        "Costs",
        "Costs a task: distinct documents, model calls, prompt and completion tokens, seconds; final "
        "results that could not be read; runs.",
        _number("documents_distinct", "distinct"),
        _number("llm_calls", "calls"),
        _number("prompt_tokens", "prompt", digits=0),
        _number("completion_tokens", "completion", digits=0),
        _number("seconds"),
        _share("malformed", "unread %"),
        _count("runs"),
        _count("failed", of=lambda row: row["failed"] or Cell(0, "")),
    )


def _scaled(mean: float | None, start: float, slope: float) -> float | None:
    return None if mean is None else start + slope * mean


def _estimate(name: str, head: str | None = None) -> tuple[Column, Of]:
    """The mean with what the seeds and what the tasks say of it: 6.50 +-0.50 [5.25, 8.00]."""
    heads = {"grounded_proxy": "grounded proxy", "documents_read": "documents"}
    share = name in _SCORES
    scale, digits = (100.0, 1) if share else (1.0, 2)

    def cell(row: Row) -> Cell | None:
        found = row["intervals"].get(name)
        if found is None:
            return None
        mean, low, high = (found[part] for part in ("mean", "low", "high"))
        half = found["seed_half_width"]
        spread = "" if half is None else f" +-{scale * half:.{digits}f}"
        ends = ", ".join(f"{scale * end:z.{digits}f}" for end in (low, high))
        interval = Interval(estimate=mean, low=low, high=high)
        return Cell(interval, f"{scale * mean:z.{digits}f}{spread} [{ends}]")

    kind = "percent" if share else "number"
    return _column(name, head or heads.get(name, name), cell, kind=kind, interval=True)


def _oracle(results: Sequence[Row], asked: Sequence[str]) -> Table:
    normal = [retriever for retriever in asked if retriever != ORACLE]
    by_agent: dict[str, Row] = {}
    for row in results if normal and ORACLE in asked else ():
        if row["retriever"] is not None:
            own = by_agent.setdefault(row["agent"], {"agent": row["agent"]})
            own[row["retriever"]] = row["semantic"]
    return _table(
        "Real retrievers and the oracle",
        "Semantic success in percent with every retriever and with the oracle, which returns the "
        "task's documents whenever an agent retrieves.",
        list(by_agent.values()),
        _column("agent", most=24),
        *(_share(retriever) for retriever in (*normal, ORACLE)),
    )


def _variants(rows: Sequence[Row], experiment: str, what: str) -> Table:
    rows = [row for row in rows if row["experiment"] == experiment]

    def never(row: Row) -> str:
        return ", ".join(action.partition(" ")[0] for action in row["unreachable"])

    return _table(
        experiment.capitalize(),
        f"The published gate with {rows[0]['retriever'] if rows else None} {what}",
        rows,
        _column("variant", "", itemgetter("name"), most=24),
        *(_share(name, f"{name} %") for name in ("semantic", "proxy")),
        *(_number(name, name.partition("_")[0]) for name in _SPENT),
        _column("never_chosen", "never chosen", never),
    )


def _contrasts(document: Document, measure: str) -> Table:
    how = {"digits": 1, "kind": "points"} if measure == "semantic" else {}
    band = partial(_number, interval=True, signed=True, **how)
    name = f"Differences of {_CONTRASTED[measure]}"
    return _table(
        name,
        f"{name}, paired by task; all {len(document['contrasts'])} of the study hold at once with 95% "
        f"(critical value {document['critical']:.2f}), those on the right each alone.",
        [row for row in document["contrasts"] if row["measure"] == measure],
        *_CELL,
        _column("minus", of=itemgetter("against"), most=16),
        band("together", "all at once [95%]", itemgetter("difference")),
        band("alone", "alone [95%]"),
        names=3,
    )


def arrangement(settings: HiddenConstraintsSettings, tasks: int, judge: str) -> Table:
    """What was run, setting by setting: where the paper states it, or that it is open."""
    return Table(
        name="As published",
        title="The paper's arrangement: what it states, by its section, and what it leaves open.",
        columns=[Column(name=name) for name in ("setting", "value", "paper")],
        rows=[
            (name, said(value, ", "), where)
            for name, value, where in _arranged(settings, tasks, judge)
        ],
    )


def _arranged(
    settings: HiddenConstraintsSettings, tasks: int, judge: str
) -> Iterator[tuple[str, object, str]]:
    made, drawn, gate = settings.benchmark, settings.planning, published_gate(settings)
    risk = gate.risk
    yield "tasks", tasks, "5.2: 20" if tasks == made.hard_small else "5.2: 20; cut by --limit"
    yield "documents", made.documents, "5.3"
    yield "agents", settings.agents, "6.2"
    yield "retrievers", settings.retrievers, "6.5, 7.3, 7.4"
    yield "seeds", range(settings.seed, settings.seed + settings.seeds), "6.7: three; only 42 named"
    yield "seed of ablations and sweep", settings.seed, "6.7"
    yield "retriever of both", settings.retrievers[0], "7.5"
    yield "candidates K", drawn.candidates, "6.3"
    yield "temperature", drawn.temperature, "6.3"
    yield "most steps", drawn.max_steps, "6.3"
    yield "w1, w2, w3", (risk.disagreement, risk.contradiction, risk.remaining), "6.4"
    yield "tau_low, tau_high", (gate.tau_low, gate.tau_high), "6.4"
    yield "order", gate.order, "Algorithm 1; Eq. 18 has the other"
    yield "documents of a gate's retrieval", f"1 to {gate.k_max}", "6.5; how it grows is open"
    yield "documents of fixed-top-k", REGIMES["tfidf"], "6.2"
    yield "documents of always-retrieve, self-rag", REGIMES["tfidf"], "open; ours"
    yield "documents with dense-30", REGIMES["dense-30"], "7.3: k = 30; for which agents is open"
    yield "documents of the oracle", "all that carry the token, 1 to 3", "7.4: the document"
    yield "judge", judge, "A.1: the planner's endpoint"
    if judge != CHECKER:
        limits = MAX_TOKENS, RETRIES, BACKOFF_S
        yield "judge's tokens, retries, seconds between", limits, "A.1"
    yield "budget B", gate.budget, "open; ours"
    yield "cool-down", gate.cooldown, "open; ours"
    yield "kappa", gate.kappa, "open; ours"
    yield "encoder of dense", settings.encoder, "6.5: sentence-transformers; which is open"
    yield "contradiction", settings.detector, "3.1: negation and conflict words; the list is open"
    yield "c_r, L_f", (settings.retrieval_cost, settings.failure_loss), "open; ours"
    lengths = drawn.max_candidate_tokens, drawn.max_plan_tokens
    yield "tokens of a step, of the plan", lengths, "open; ours"
    yield "seed and gap of the tasks", (made.seed, made.gap), "not published; ours"
    yield "prompts of the planner", "docs/planning.md", "7.1 in words; not published"


# --- notes ----------------------------------------------------------------------------------------
def notes_of(document: Document, settings: Settings) -> Iterator[str]:
    """What the figures themselves say must be known."""
    results = document["results"]
    leaked = [row["proxy"] for row in results if row["agent"] == VANILLA and row["proxy"]]
    if leaked:
        yield f"{VANILLA} names {leaked[0]:.0%} of the tokens without ever retrieving: they leak"
    worst = max(results, key=lambda row: row["malformed"] or 0.0)
    if worst["malformed"]:
        yield (
            f"the final JSON could not be read in up to {worst['malformed']:.0%} of the runs "
            f"({worst['agent']}, {worst['retriever'] or 'no retriever'}); the steps as drafted are judged "
            "there"
        )
    if settings.seeds == 1:
        yield "one seed: no interval over seeds"
    if document["contrasts"] and failed_runs(document):
        yield "tasks without a run of every agent and retriever are left out of all differences"
