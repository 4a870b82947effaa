"""The hidden-constraint experiment (its paper, 7): what retrieval allows and what control saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np

from studies.command import Found, out_option, report
from studies.hidden_constraints.checker import CHECKER, CheckerJudge, satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, PlanningTask
from studies.hidden_constraints.detectors import connect_detector
from studies.hidden_constraints.judge import LLMJudge, agreement
from studies.hidden_constraints.results import failed_runs, notes_of, tables_of
from studies.hidden_constraints.runs import (
    RECALL_AT,
    VANILLA,
    Experimenters,
    HiddenConstraintsSettings,
    Retrievers,
    Variant,
    as_published,
    built_retrievers,
    gate_agent,
    jobs_of,
    published_gate,
    run_document,
    variants,
)
from studies.hidden_constraints.scores import Board, Row, board_of, contrasts, figures, step_trace
from studies.hidden_constraints.scripted import ScriptedPlanner
from suffice._version import VERSION
from suffice.cli.output import INTERRUPTED, Form, question_progress, say, waiting
from suffice.cli.parser import command
from suffice.cli.shared_options import ModelOptions
from suffice.concurrency import width_of
from suffice.contracts import ChatModel, Judge
from suffice.errors import UsageError
from suffice.evaluation.replay.answers import Resampling
from suffice.llm.connect import CachedModel
from suffice.loops.connecting import connect_encoder
from suffice.loops.planning.agent import GATED, UNREADABLE, PlanRecorderSettings, record_plans
from suffice.loops.record.session import Progress, RecordSummary
from suffice.options import Option
from suffice.policies.gate.gate_settings import MARKERS, GateCosts, GateSettings, unreachable
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.policy_file import load_policy
from suffice.trace.plan_traces import PlanRecord, read_plans

_TOP = 10
_PLANS = "plans"
Tasks = Sequence[PlanningTask]


def hidden_constraints_study(
    who: Experimenters,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
    on_progress: Callable[[Progress], None] = lambda _: None,
) -> Found | None:
    """Run every agent with every retriever on the tasks of ``made``, judge the plans, and compare.

    With a folder, what was recorded before is not run again. ``None`` when interrupted.
    """
    if settings.folder is None:
        with TemporaryDirectory() as passing:
            kept = replace(settings, folder=Path(passing))
            return hidden_constraints_study(who, kept, made, on_progress)
    folder = settings.folder
    retrievers = built_retrievers(settings.retrievers, made, who.encoder, folder)
    summary = record_plans(
        jobs_of(settings, made, who, retrievers),
        folder / _PLANS,
        PlanRecorderSettings(
            run=run_document(settings, made, who),
            concurrency=width_of(who.model),
            judge=who.judge,
            on_progress=on_progress,
        ),
    )
    made.write(folder)  # only now: a folder of another benchmark was refused before
    if summary.interrupted:
        return None
    document = _document(who, settings, made, retrievers, read_plans(folder / _PLANS).records)
    notes = [*_about_runs(document, settings, summary), *notes_of(document, settings)]
    return Found(
        document=document | {"notes": notes, "version": VERSION},
        shown=tuple(tables_of(document, settings)),
        notes=notes,
    )


def _document(
    who: Experimenters,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
    retrievers: Retrievers,
    recorded: Sequence[PlanRecord],
) -> dict[str, Any]:
    tasks = made.subset(settings.subset)[: settings.limit]
    seeds, ids = settings.all_seeds, {task.id for task in tasks}
    records = [run for run in recorded if run.task.id in ids and run.seed in seeds]
    costs = GateCosts(retrieval=settings.retrieval_cost, failure=settings.failure_loss)
    board = board_of(records, tasks, seeds, costs)
    draws = Resampling(resamples=settings.resamples, seed=settings.seed)
    shape = len(tasks), settings.seeds
    results = [figures(board, place, shape, draws) for place in _asked(settings)]
    recalls = [_recall(name, tasks, retrievers, len(made.documents)) for name in retrievers]
    differences, critical = contrasts(board, _pairs(settings), settings.retrievers, draws)
    first = [run for run in records if run.seed == settings.seed]
    return {
        "benchmark": {
            "tasks": len(made.tasks),
            "hard_small": len(made.subset("hard-small")),
            "documents": len(made.documents),
        },
        "results": results,
        "recall": recalls,
        "decomposition": list(_decomposition(results, recalls)),
        "contrasts": differences,
        "critical": critical,
        "variants": list(_variants(settings, board, len(tasks), draws)),
        "steps": [
            step_trace(chosen, *cell)
            for cell in product(_gates(settings), settings.retrievers)
            if (chosen := [run for run in first if (run.agent, run.retriever) == cell])
        ],
        "agreement": None if who.judge_name == CHECKER else _agreement(settings, records, tasks),
        "model": who.model.name,
        "judge": who.judge_name,
        "settings": settings,
    }


def _about_runs(
    document: Mapping[str, Any], settings: HiddenConstraintsSettings, summary: RecordSummary
) -> Iterator[str]:
    for name, gate in _gates(settings).items():
        who = "the published gate" if name == GATED else f"the gate {name}"
        yield from (f"{who}: {action}" for action in unreachable(gate, settings.planning.max_steps))
    if failed := failed_runs(document):
        kept = "; with --out their reasons are in plans/record.db, and running the same again retries them"
        yield f"{failed} runs failed and enter no mean{kept}"
    if summary.recorded == 0 and summary.failed == 0:
        yield "nothing was run anew: all runs were recorded before"


def _asked(settings: HiddenConstraintsSettings) -> Iterator[tuple[str, str | None]]:
    """Rows of the main table: agents in their order, each with every retriever."""
    for agent in (*settings.agents, *settings.gates):
        retrievers = (None,) if agent == VANILLA else settings.retrievers
        yield from ((agent, retriever) for retriever in retrievers)


def _gates(settings: HiddenConstraintsSettings) -> dict[str, GateSettings]:
    """Gates by the name of their agent, the published one first."""
    published = {GATED: published_gate(settings)} if GATED in settings.agents else {}
    return published | dict(settings.gates)


def _pairs(settings: HiddenConstraintsSettings) -> list[tuple[str, str]]:
    """Every gate against every agent, and each other gate against the published one."""
    published = [GATED] if GATED in settings.agents else []
    others = [agent for agent in settings.agents if agent != GATED]
    return [
        (gate, other)
        for gate in _gates(settings)
        for other in (*others, *published)
        if gate != other
    ]


def _recall(name: str, tasks: Tasks, retrievers: Retrievers, documents: int) -> Row:
    """A retriever asked once a task over the whole corpus; a fused pool ends early, so ``ranked`` tells."""
    retriever = retrievers[name]
    ranks = np.ones(len(tasks))
    if retriever is not None:
        for row, task in enumerate(tasks):
            ranking = enumerate(retriever.retrieve(task.query, documents), start=1)
            found = (rank for rank, document in ranking if document.id in task.document_ids)
            ranks[row] = next(found, np.inf)
    known, top = np.isfinite(ranks), ranks <= _TOP
    return {
        "retriever": name,
        **{f"recall@{k}": float((ranks <= k).mean()) for k in RECALL_AT},
        "mean_rank": float(ranks[known].mean()) if known.any() else None,
        "ranked": int(known.sum()),
        "in_ten": int(top.sum()),
        "mean_rank_in_ten": float(ranks[top].mean()) if top.any() else None,
    }


def _decomposition(results: Sequence[Row], recalls: Sequence[Row]) -> Iterator[Row]:
    """What each retriever allows; one none of whose runs was judged is left out."""
    for recall in recalls:
        name = recall["retriever"]
        own = (row for row in results if row["retriever"] == name and row["semantic"] is not None)
        best = max(own, key=lambda row: row["semantic"], default=None)
        if best is not None:
            yield {
                "retriever": name,
                "recall@10": recall["recall@10"],
                "best_semantic": best["semantic"],
                "agent": best["agent"],
            }


def _variants(
    settings: HiddenConstraintsSettings, board: Board, tasks: int, draws: Resampling
) -> Iterator[Row]:
    """Gates with other numbers, in one seed; ``taus`` are (tau_low, tau_high) of one of the sweep."""
    published = Variant("ablations", "full", published_gate(settings))
    full = "ablations" in settings.experiments and GATED in settings.agents
    for variant in (*([published] if full else []), *variants(settings)):
        agent = GATED if variant is published else variant.agent
        never = unreachable(variant.gate, settings.planning.max_steps)
        yield {
            "experiment": variant.experiment,
            "name": variant.name,
            "taus": variant.taus,
            **figures(board, (agent, settings.retrievers[0]), (tasks, 1), draws),
            "unreachable": list(map(str, never)),
        }


def _agreement(
    settings: HiddenConstraintsSettings, records: Sequence[PlanRecord], tasks: Tasks
) -> dict[str, Any] | None:
    """The judge against the deterministic checker, over the plans of the main table."""
    constraints, asked = {task.id: task.constraint for task in tasks}, set(_asked(settings))
    judged = [
        record
        for record in records
        if record.outcome.semantic is not None and (record.agent, record.retriever) in asked
    ]
    if not judged:
        return None
    return agreement(
        [bool(record.outcome.semantic) for record in judged],
        [satisfies(constraints[record.task.id], record.outcome.plan).ok for record in judged],
        # the recorder noted that the judge's reply could not be read
        sum((record.outcome.verdict or "").startswith(UNREADABLE) for record in judged),
    )


# --- the command ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class HiddenConstraintsOptions:
    """What a command says beside the settings: files and servers."""

    encoder_model: Annotated[
        str | None, Option(metavar="M", help="the embedding server's model name")
    ] = None
    gate: Annotated[
        tuple[str, ...],
        Option(
            metavar="FILE",
            repeats=True,
            help="a gate's policy file, as 'suffice fit gate' writes it, for one more agent named after the "
            "file and a hash of its numbers; may be given several times",
        ),
    ] = ()
    judge: Annotated[
        str | None,
        Option(
            metavar="URL",
            help="a server's base URL, 'embedded', or 'checker' (words of the requirement in the plan, no "
            "model); default: the planning model, of 'scripted' the checker",
        ),
    ] = None
    judge_model: Annotated[
        str | None,
        Option(metavar="M", help="that server's model name, or a GGUF file for 'embedded'"),
    ] = None

    def __post_init__(self) -> None:
        if self.judge_model is not None and self.judge in (None, CHECKER):
            raise UsageError("--judge-model goes with --judge URL or --judge embedded")

    @property
    def gates(self) -> dict[str, GateSettings]:
        """Gates by the name of their file, or of their folder, with a hash of their numbers."""
        gates: dict[str, GateSettings] = {}
        for path in self.gate:
            policy = load_policy(path).policy
            if not isinstance(policy, GatePolicy):
                raise UsageError(
                    f"--gate {path} holds a policy of kind {policy.kind!r}; type a gate of 'suffice fit gate'"
                )
            place = Path(path)
            whole = place.name == "policy.json"  # of a policy that is a folder
            stem = place.resolve().parent.name if whole else place.stem
            gates[gate_agent(stem, policy.settings)] = policy.settings
        return gates


def _experimenters(
    options: ModelOptions,
    asked: HiddenConstraintsOptions,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
) -> Experimenters:
    from suffice.llm.connect import connect

    llm, cache = str(options.llm), options.cache
    scripted = llm == "scripted"  # which knows this benchmark

    def connected(llm: str, name: str | None) -> ChatModel:
        return connect(llm, name, server=options.server, cache=cache)

    model: ChatModel = ScriptedPlanner(made) if scripted else connected(llm, options.model)
    if scripted and cache is not None:
        model = CachedModel(model, cache)
    judge: Judge
    if asked.judge == CHECKER or (asked.judge is None and scripted):
        judge, judge_name = CheckerJudge(task.constraint for task in made.tasks), CHECKER
    else:
        named = asked.judge
        judge = LLMJudge(model if named is None else connected(named, asked.judge_model))
        judge_name = judge.name
    dense = any(name.startswith(("dense", "hybrid")) for name in settings.retrievers)
    return Experimenters(
        model=model,
        judge=judge,
        judge_name=judge_name,
        encoder=connect_encoder(settings.encoder, asked.encoder_model) if dense else None,
        detector=None if settings.detector == MARKERS else connect_detector(settings.detector),
    )


@command()
def run(
    *,
    settings: HiddenConstraintsSettings,
    asked: HiddenConstraintsOptions,
    model: ModelOptions,
    out: Annotated[
        str | None,
        out_option(
            "write hidden_constraints.json, the benchmark (tasks.jsonl, documents.jsonl) and every plan "
            "(DIR/plans); without it nothing is kept and an interrupted experiment starts anew"
        ),
    ] = None,
    form: Form,
) -> int:
    """Run planning agents with every retriever on generated cloud tasks, and judge the plans.

    Each task has one constraint that 1 to 3 documents of the corpus carry. Shows semantic and proxy success,
    documents read, coverage, recall, what retrieval allows and what control saves, ablations and thresholds
    of the gate, and paired differences. With --out it can be gone on with: run the same again, perhaps with
    more agents, retrievers, seeds or experiments.
    """
    wanted = as_published(settings) if settings.as_published else settings
    wanted = replace(wanted, gates=asked.gates, folder=None if out is None else Path(out))
    made = generate(wanted.benchmark)
    who = _experimenters(model, asked, wanted, made)
    if out is None:
        say("without --out nothing is kept: if this is interrupted, it starts anew")
    with waiting("hidden_constraints"):
        found = hidden_constraints_study(who, wanted, made, question_progress("runs finished"))
    if found is None:
        kept = "nothing was kept" if out is None else "run the same command again to go on"
        say(f"interrupted; {kept}")
        return INTERRUPTED
    report("hidden_constraints", found, form, out, f"; the plans are in {out}/{_PLANS}")
    if failed_runs(found.document):
        say("some runs failed; with --out their reasons are kept: run again to retry them")
        return 1
    return 0
