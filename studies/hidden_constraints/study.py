"""The hidden-constraint experiment (its paper, 7): what retrieval allows and what control saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np

from studies.command import Options, Request, Study
from studies.hidden_constraints.checker import CHECKER, CheckerJudge, satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings, PlanningTask
from studies.hidden_constraints.judge import Agreement, LLMJudge, agreement
from studies.hidden_constraints.published import as_published
from studies.hidden_constraints.results import GateVariant, HiddenConstraintsStudy, Recall, notes_of
from studies.hidden_constraints.runs import (
    REGIMES,
    VANILLA,
    HiddenConstraintsSettings,
    Players,
    built_retrievers,
    gate_agent,
    jobs_of,
    published_gate,
    run_document,
    variants,
)
from studies.hidden_constraints.scores import Board, contrasts, example_run, step_trace
from studies.hidden_constraints.scripted import ScriptedPlanner
from suffice.cli.output import ProgressLine, say
from suffice.concurrency import width_of
from suffice.errors import UsageError
from suffice.llm.cache import CachedModel
from suffice.loops.models import connect_detector, connect_encoder
from suffice.loops.planning.agent import PlanningSettings
from suffice.loops.planning.controls import GATED
from suffice.loops.planning.recorder import UNREADABLE, PlanRecorderSettings, record_plans
from suffice.loops.record.session import Progress, RecordSummary
from suffice.options import Option
from suffice.policies.file import load_policy
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.gate.settings import MARKERS, GateCosts, GateSettings, unreachable
from suffice.protocols import ChatModel, ContradictionDetector, Encoder, Judge, Retriever, Verdict
from suffice.replay.run.answers import Resampling
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.records import PlanRecord, PlanSet

_TOP = 10
_RECALL_AT = (1, 5, _TOP)
_PLANS = "plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experimenters:
    """The models an experiment needs; ``judge_name`` is what a recording calls the judge.

    Without a detector the published markers find contradictions; without ``concurrency`` as many runs are
    under way as suit the model.
    """

    model: ChatModel
    judge: Judge
    judge_name: str
    encoder: Encoder | None = None
    detector: ContradictionDetector | None = None
    concurrency: int | None = None


def hidden_constraints_study(
    who: Experimenters,
    settings: HiddenConstraintsSettings | None = None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    *,
    benchmark: Benchmark | None = None,
) -> HiddenConstraintsStudy | None:
    """Run every agent with every retriever on the tasks, judge the plans, and compare.

    ``benchmark`` must be the one of the settings where it is given. With a folder, what was recorded
    before is not run again. ``None`` when interrupted; run the same again to go on.
    """
    wanted = HiddenConstraintsSettings() if settings is None else settings
    if wanted.folder is None:
        with TemporaryDirectory() as folder:
            return _study(who, wanted, Path(folder), on_progress, benchmark)
    return _study(who, wanted, wanted.folder, on_progress, benchmark)


def _study(
    who: Experimenters,
    settings: HiddenConstraintsSettings,
    folder: Path,
    on_progress: Callable[[Progress], None],
    benchmark: Benchmark | None,
) -> HiddenConstraintsStudy | None:
    made = generate(settings.benchmark) if benchmark is None else benchmark
    tasks = made.subset(settings.subset)[: settings.limit]
    players = Players(
        model=who.model,
        retrievers=built_retrievers(settings.retrievers, made, who.encoder, settings.folder),
        documents={document.id: document for document in made.documents},
        detector=who.detector,
    )
    summary = record_plans(
        jobs_of(settings, tasks, players),
        folder / _PLANS,
        PlanRecorderSettings(
            run=run_document(settings, made, players, who.judge_name),
            concurrency=who.concurrency or width_of(who.model),
            judge=who.judge,
            on_progress=on_progress,
        ),
    )
    made.write(folder)  # only now: a folder of another benchmark was refused before
    if summary.interrupted:
        return None
    return _measured(who, settings, made, players, read_plans(folder / _PLANS), summary)


def _measured(
    who: Experimenters,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
    players: Players,
    plans: PlanSet,
    summary: RecordSummary,
) -> HiddenConstraintsStudy:
    tasks = made.subset(settings.subset)[: settings.limit]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    costs = GateCosts(retrieval=settings.retrieval_cost, failure=settings.failure_loss)
    board = Board.of(plans.records, tasks, seeds, costs)
    draws = Resampling(resamples=settings.resamples, seed=settings.seed)
    differences, critical = contrasts(board, _pairs(settings), settings.retrievers, draws)
    gates = _gates(settings)
    first = {
        (agent, retriever): _first_seed(settings, plans, tasks, (agent, retriever))
        for agent in gates
        for retriever in settings.retrievers
    }
    examples = (
        example_run(first[agent, settings.retrievers[0]], tasks, gate)
        for agent, gate in gates.items()
    )
    study = HiddenConstraintsStudy(
        settings=settings,
        model=who.model.name,
        judge=who.judge_name,
        tasks=len(made.tasks),
        hard_small=len(made.subset("hard-small")),
        documents=len(made.documents),
        cells=tuple(
            board.cell(agent, retriever, seeds=settings.seeds, draws=draws)
            for agent, retriever in _asked(settings)
        ),
        recalls=tuple(_recalls(settings, tasks, players)),
        contrasts=differences,
        critical=critical,
        variants=tuple(_variants(settings, board, draws)),
        steps=tuple(
            step_trace(PlanSet(records=chosen), *where) for where, chosen in first.items() if chosen
        ),
        examples=tuple(example for example in examples if example is not None),
        agreement=None if who.judge_name == CHECKER else _agreement(settings, plans, tasks),
        notes=(),
    )
    return replace(study, notes=(*_notes(study, summary), *notes_of(study)))


def _notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> Iterator[str]:
    settings, steps = study.settings, study.settings.planning.max_steps
    for name, gate in _gates(settings).items():
        who = "the published gate" if name == GATED else f"the gate {name}"
        yield from (f"{who}: {action}" for action in unreachable(gate, steps))
    if study.failed:
        kept = "; their reasons are in plans/record.db, and running the same again tries them again"
        yield f"{study.failed} runs failed and enter no mean" + (kept if settings.folder else "")
    if summary.recorded == 0 and summary.failed == 0:
        yield "nothing was run anew: all runs were recorded before"


def _asked(settings: HiddenConstraintsSettings) -> Iterator[tuple[str, str | None]]:
    """Rows of the main table: agents in their order, each with every retriever."""
    for agent in (*settings.agents, *settings.gates):
        if agent == VANILLA:
            yield agent, None
        else:
            yield from ((agent, retriever) for retriever in settings.retrievers)


def _pairs(settings: HiddenConstraintsSettings) -> list[tuple[str, str]]:
    """Every gate against every agent, and each other gate against the published one."""
    gates = [GATED] if GATED in settings.agents else []
    others = [agent for agent in settings.agents if agent != GATED]
    return [
        (gate, other)
        for gate in (*gates, *settings.gates)
        for other in (*others, *gates)
        if gate != other
    ]


def _recalls(
    settings: HiddenConstraintsSettings, tasks: Sequence[PlanningTask], players: Players
) -> Iterator[Recall]:
    """Each retriever asked once a task with goal and context, over the whole corpus."""
    for name in settings.retrievers:
        retriever = players.retrievers[name]
        if retriever is None:
            yield Recall(
                retriever=name,
                recall=dict.fromkeys(_RECALL_AT, 1.0),
                rank=1.0,
                ranked=len(tasks),
                in_ten=len(tasks),
                rank_in_ten=1.0,
            )
            continue
        ranks = np.array([_rank(task, retriever, len(players.documents)) for task in tasks])
        known, top = np.isfinite(ranks), ranks <= _TOP
        yield Recall(
            retriever=name,
            recall={k: float((ranks <= k).mean()) for k in _RECALL_AT},
            rank=float(ranks[known].mean()) if known.any() else None,
            ranked=int(known.sum()),
            in_ten=int(top.sum()),
            rank_in_ten=float(ranks[top].mean()) if top.any() else None,
        )


def _rank(task: PlanningTask, retriever: Retriever, documents: int) -> float:
    """Of the first document that carries the constraint; infinite when none is returned."""
    ranking = enumerate(retriever.retrieve(task.query, documents), start=1)
    ranks = (rank for rank, document in ranking if document.id in task.document_ids)
    return float(next(ranks, "inf"))


def _variants(
    settings: HiddenConstraintsSettings, board: Board, draws: Resampling
) -> Iterator[GateVariant]:
    asked, steps = variants(settings), settings.planning.max_steps
    retriever = settings.retrievers[0]
    if "ablations" in settings.experiments and GATED in settings.agents:
        yield GateVariant(
            experiment="ablations",
            name="full",
            cell=board.cell(GATED, retriever, seeds=1, draws=draws),
            unreachable=tuple(map(str, unreachable(published_gate(settings), steps))),
        )
    for variant in asked:
        yield GateVariant(
            experiment=variant.experiment,
            name=variant.name,
            cell=board.cell(variant.agent, retriever, seeds=1, draws=draws),
            unreachable=tuple(map(str, unreachable(variant.gate, steps))),
            taus=variant.taus,
        )


def _gates(settings: HiddenConstraintsSettings) -> dict[str, GateSettings]:
    """Gates by the name of their agent, the published one first."""
    published = {GATED: published_gate(settings)} if GATED in settings.agents else {}
    return published | dict(settings.gates)


def _first_seed(
    settings: HiddenConstraintsSettings,
    plans: PlanSet,
    tasks: Sequence[PlanningTask],
    cell: tuple[str, str],
) -> tuple[PlanRecord, ...]:
    """The runs of an agent with a retriever in the first seed."""
    wanted = {task.id for task in tasks}
    return tuple(
        record
        for record in plans.records
        if (record.agent, record.retriever, record.seed) == (*cell, settings.seed)
        and record.task.id in wanted
    )


def _agreement(
    settings: HiddenConstraintsSettings, plans: PlanSet, tasks: Sequence[PlanningTask]
) -> Agreement | None:
    """The judge against the deterministic checker, over the plans of the main table."""
    constraints = {task.id: task.constraint for task in tasks}
    asked, seeds = set(_asked(settings)), range(settings.seed, settings.seed + settings.seeds)
    judged = [
        record
        for record in plans.records
        if record.outcome.semantic is not None
        and record.task.id in constraints
        and record.seed in seeds
        and (record.agent, record.retriever) in asked
    ]
    if not judged:
        return None
    said = [
        Verdict(
            ok=bool(record.outcome.semantic),
            # the recorder noted that the judge's reply could not be read
            parsed=None if (record.outcome.verdict or "").startswith(UNREADABLE) else "json",
        )
        for record in judged
    ]
    checked = [satisfies(constraints[record.task.id], record.outcome.plan) for record in judged]
    return agreement(said, checked)


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
                    f"--gate {path} holds a policy of kind {policy.kind!r}, and a gate is wanted; fit one "
                    "with 'suffice fit gate PLANS --out gate.json'"
                )
            place = Path(path)
            whole = place.name == "policy.json"  # of a policy that is a folder
            stem = place.resolve().parent.name if whole else place.stem
            gates[gate_agent(stem, policy.settings)] = policy.settings
        return gates


def _run(request: Request) -> HiddenConstraintsStudy | None:
    asked = request.read(HiddenConstraintsOptions)
    settings = request.read(HiddenConstraintsSettings, gates=asked.gates, folder=request.folder)
    if settings.as_published:
        settings = as_published(settings)
    made = generate(settings.benchmark)
    who = _experimenters(request, asked, settings, made)
    if request.folder is None:
        say("without --out nothing is kept: if this is interrupted, it starts anew")
    line = ProgressLine("runs finished")

    def progress(now: Progress) -> None:
        line.show(now.finished, now.planned, failed=now.failed)

    return hidden_constraints_study(who, settings, progress, benchmark=made)


def _experimenters(
    request: Request,
    asked: HiddenConstraintsOptions,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
) -> Experimenters:
    llm, cache = str(request.model.llm), request.model.cache
    scripted = llm == "scripted"  # which knows this benchmark
    model: ChatModel
    if scripted:
        model = (
            ScriptedPlanner(made) if cache is None else CachedModel(ScriptedPlanner(made), cache)
        )
    else:
        model = request.connect(llm, request.model.model)
    judge: Judge
    if asked.judge == CHECKER or (asked.judge is None and scripted):
        judge, judge_name = CheckerJudge.of(task.constraint for task in made.tasks), CHECKER
    else:
        named = asked.judge
        judge = LLMJudge(model if named is None else request.connect(named, asked.judge_model))
        judge_name = judge.name
    dense = any(REGIMES[name].retriever in ("dense", "hybrid") for name in settings.retrievers)
    return Experimenters(
        model=model,
        judge=judge,
        judge_name=judge_name,
        encoder=connect_encoder(settings.encoder, asked.encoder_model) if dense else None,
        detector=None if settings.detector == MARKERS else connect_detector(settings.detector),
    )


def _failure(study: HiddenConstraintsStudy, folder: Path | None) -> str | None:
    if not study.failed:
        return None
    if folder is None:
        return "some runs failed; with --out their reasons are kept, and running again retries them"
    return f"some runs failed, see {folder / _PLANS}; run again to retry them"


_BENCHMARK = ("subset", "limit")
STUDY = Study(
    name="hidden_constraints",
    description="Runs planning agents with every retriever on generated cloud tasks, each with one "
    "constraint that 1 to 3 documents of the corpus carry, and judges the plans: semantic and proxy "
    "success, documents read, coverage, recall, what retrieval allows and what control saves, "
    "ablations and thresholds of the gate, and paired differences. With --out it can be gone on with: "
    "run the same again, perhaps with more agents, retrievers, seeds or experiments.",
    options=(
        Options(settings=HiddenConstraintsSettings, without=(*_BENCHMARK, "detector")),
        Options(settings=HiddenConstraintsOptions, only=("encoder_model", "gate")),
        Options(settings=HiddenConstraintsSettings, title="benchmark", only=_BENCHMARK),
        Options(settings=BenchmarkSettings, title="benchmark"),
        Options(settings=PlanningSettings, title="planning"),
        Options(settings=HiddenConstraintsSettings, title="planning", only=("detector",)),
        Options(settings=HiddenConstraintsOptions, title="judge", only=("judge", "judge_model")),
    ),
    run=_run,
    asks_model=True,
    out="write hidden_constraints.json, the benchmark "
    "(tasks.jsonl, documents.jsonl) and every plan (DIR/plans); without it nothing is kept and an "
    "interrupted experiment starts anew",
    wrote="; the plans are in {folder}/plans",
    failure=_failure,
)
