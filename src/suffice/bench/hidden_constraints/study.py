"""The hidden-constraint experiment (paper 4, section 7): what retrieval allows and what control saves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np

from suffice.bench.hidden_constraints.checker import CHECKER, satisfies
from suffice.bench.hidden_constraints.corpus.generate import generate
from suffice.bench.hidden_constraints.corpus.tasks import Benchmark, PlanningTask
from suffice.bench.hidden_constraints.found import (
    HiddenConstraintsStudy,
    Recall,
    StepTrace,
    Variant,
)
from suffice.bench.hidden_constraints.judge import Agreement, agreement
from suffice.bench.hidden_constraints.oracle import oracle_rank
from suffice.bench.hidden_constraints.run_plan import (
    VANILLA,
    Players,
    built_retrievers,
    jobs_of,
    published_gate,
    run_document,
    variants,
)
from suffice.bench.hidden_constraints.scores import Board, contrasts, step_trace
from suffice.bench.hidden_constraints.settings import (
    HiddenConstraintsSettings,
)
from suffice.pipelines.planning.controls import GATED
from suffice.pipelines.planning.recorder import UNREADABLE, PlanRecorderSettings, record_plans
from suffice.pipelines.record.session import Progress, RecordSummary
from suffice.protocols import ChatModel, ContradictionDetector, Encoder, Judge, Retriever, Verdict
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.plan_set import PlanSet
from suffice.trace.plans.records import PlanRecord


def study_notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> HiddenConstraintsStudy:
    """The study with its notes."""
    return replace(study, notes=tuple(_notes(study, summary)))


def _notes(study: HiddenConstraintsStudy, summary: RecordSummary) -> Iterator[str]:
    settings = study.settings
    if GATED in settings.agents:
        for each in published_gate(settings).unreachable:
            yield f"the published gate: {each}"
    for name, gate in settings.gates.items():
        for each in gate.unreachable:
            yield f"the gate {name}: {each}"
    cells = (*study.cells, *(each.cell for each in study.variants))
    failed = sum(cell.failed for cell in cells)
    if failed:
        kept = "; their reasons are in plans/failures.jsonl, and running the same again tries them again"
        yield f"{failed} runs failed and enter no mean" + (kept if settings.folder else "")
    if summary.recorded == 0 and summary.failed == 0:
        yield "nothing was run anew: all runs were recorded before"
    yield from _of_the_model(study)
    for asked in study.recalls:
        found = [cell.mean("covered") for cell in study.cells if cell.retriever == asked.retriever]
        if found and not any(found):
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


_RECALL_AT = (1, 5, 10)
_PLANS = "plans"


@dataclass(frozen=True, slots=True, kw_only=True)
class Experimenters:
    """The models an experiment needs.

    Parameters
    ----------
    model
        Plans.
    judge, judge_name
        Says whether a plan satisfies a constraint, and what a recording calls it.
    encoder
        For retrievers with dense vectors.
    detector
        Finds contradictions; ``None``: the published markers.
    concurrency
        Runs under way at once; ``None``: what the model says suits it.
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

    Raises
    ------
    UsageError
        When the folder was recorded with other settings, or a model cannot be used as asked.
    BackendError
        When the first runs all fail.
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
        documents={each.id: each for each in made.documents},
        detector=who.detector,
    )
    summary = record_plans(
        jobs_of(settings, tasks, players),
        folder / _PLANS,
        PlanRecorderSettings(
            run=run_document(settings, made, players, who.judge_name),
            concurrency=who.concurrency or int(getattr(who.model, "concurrency", 1)),
            judge=who.judge,
            on_progress=on_progress,
        ),
    )
    made.write(folder)  # only now: a folder of another benchmark was refused before
    if summary.interrupted:
        return None
    return _found(who, settings, made, players, read_plans(folder / _PLANS), summary)


def _found(
    who: Experimenters,
    settings: HiddenConstraintsSettings,
    made: Benchmark,
    players: Players,
    plans: PlanSet,
    summary: RecordSummary,
) -> HiddenConstraintsStudy:
    tasks = made.subset(settings.subset)[: settings.limit]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    board = Board.of(plans.records, tasks, seeds)
    draws = (settings.resamples, settings.seed)
    cells = tuple(
        board.cell(agent, retriever, seeds=settings.seeds, draws=draws)
        for agent, retriever in _asked(settings)
    )
    found, critical = contrasts(board, _pairs(settings), settings.retrievers, draws)
    study = HiddenConstraintsStudy(
        settings=settings,
        model=who.model.name,
        judge=who.judge_name,
        tasks=len(made.tasks),
        hard_small=len(made.subset("hard-small")),
        documents=len(made.documents),
        cells=cells,
        recalls=tuple(_recalls(settings, tasks, players)),
        contrasts=found,
        critical=critical,
        variants=tuple(_variants(settings, board, draws)),
        steps=tuple(_steps(settings, plans, tasks)),
        agreement=None if who.judge_name == CHECKER else _agreement(settings, plans, tasks),
        notes=(),
    )
    return study_notes(study, summary)


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
    others = [each for each in settings.agents if each != GATED]
    return [
        (gate, each)
        for gate in (*gates, *settings.gates)
        for each in (*others, *gates)
        if gate != each
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
            )
            continue
        ranks = np.array([_rank(task, retriever, len(players.documents)) for task in tasks])
        known = np.isfinite(ranks)
        yield Recall(
            retriever=name,
            recall={k: float((ranks <= k).mean()) for k in _RECALL_AT},
            rank=float(ranks[known].mean()) if known.any() else None,
            ranked=int(known.sum()),
            in_ten=int((ranks <= 10).sum()),
        )


def _rank(task: PlanningTask, retriever: Retriever, documents: int) -> float:
    """Of the first document that carries the constraint; infinite when none is returned."""
    found = retriever.retrieve(task.query, documents)
    rank = oracle_rank([each.id for each in found], task.document_ids)
    return float("inf") if rank is None else float(rank)


def _variants(
    settings: HiddenConstraintsSettings, board: Board, draws: tuple[int, int]
) -> Iterator[Variant]:
    asked = variants(settings)
    retriever = settings.retrievers[0]
    if "ablations" in settings.experiments and GATED in settings.agents:
        yield Variant(
            experiment="ablations",
            name="full",
            cell=board.cell(GATED, retriever, seeds=1, draws=draws),
            unreachable=tuple(map(str, published_gate(settings).unreachable)),
        )
    for each in asked:
        yield Variant(
            experiment=each.experiment,
            name=each.name,
            cell=board.cell(each.agent, retriever, seeds=1, draws=draws),
            unreachable=tuple(map(str, each.gate.unreachable)),
            taus=each.taus,
        )


def _steps(
    settings: HiddenConstraintsSettings, plans: PlanSet, tasks: Sequence[PlanningTask]
) -> Iterator[StepTrace]:
    wanted = {task.id for task in tasks}
    for agent in (*(each for each in settings.agents if each == GATED), *settings.gates):
        for retriever in settings.retrievers:
            chosen = tuple(
                each
                for each in plans.records
                if (each.agent, each.retriever, each.seed) == (agent, retriever, settings.seed)
                and each.task.id in wanted
            )
            if chosen:
                yield step_trace(PlanSet(records=chosen), agent, retriever)


def _agreement(
    settings: HiddenConstraintsSettings, plans: PlanSet, tasks: Sequence[PlanningTask]
) -> Agreement | None:
    """The judge against the deterministic checker, over the plans of the main table."""
    constraints = {task.id: task.constraint for task in tasks}
    asked, seeds = set(_asked(settings)), range(settings.seed, settings.seed + settings.seeds)
    judged = [
        each
        for each in plans.records
        if each.outcome.semantic is not None
        and each.task.id in constraints
        and each.seed in seeds
        and (each.agent, each.retriever) in asked
    ]
    if not judged:
        return None
    said = [Verdict(ok=bool(each.outcome.semantic), parsed=_parsed(each)) for each in judged]
    checked = [satisfies(constraints[each.task.id], each.outcome.plan) for each in judged]
    return agreement(said, checked)


def _parsed(record: PlanRecord) -> Literal["json"] | None:
    """``None`` where the recorder noted that the judge's reply could not be read."""
    said = record.outcome.verdict
    return None if said is not None and said.startswith(UNREADABLE) else "json"
