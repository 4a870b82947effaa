"""The evaluation of MiCP (its paper): coverage, rounds, sets and retention over levels and divisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from studies.command import Options, Request, Study
from studies.micp.results import (
    BASELINE,
    PARTS,
    WAYS,
    DivisionScores,
    MiCPCell,
    MiCPStudy,
    MiCPStudySettings,
    MiCPTraces,
    RetentionCell,
    Way,
)
from suffice.errors import UsageError
from suffice.measures.scores import gold_answers
from suffice.numbers.conformal.order_statistics import (
    exact_level,
    lower_order_statistic,
    smallest_sample,
)
from suffice.numbers.units import lots
from suffice.policies.method import Preset
from suffice.policies.micp.fit import draft_policy, few_notes, unsampled_notes
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import Relevances, refound_notes, scored_by
from suffice.policies.micp.samples import read_samples
from suffice.policies.micp.search import search_allocations
from suffice.policies.micp.settings import MiCPSettings
from suffice.policies.micp.stage2 import (
    OBJECTIVES,
    Sampled,
    Stage2,
    calibrate,
    calibrate_without_stopping,
    evaluate,
)
from suffice.protocols import Retention
from suffice.trace.rounds.labels import names_passages
from suffice.trace.rounds.table import TraceSet


# --- what is read of a record, once ---------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class SetSizes:
    """How many answers a set holds, for any threshold at any stop round.

    For each round 1..T the questions of its entries, the confidence from which an entry counts, and how many
    answers it then adds: 1, or less where it joins answers that were apart.
    """

    question: tuple[NDArray[np.intp], ...]
    confidence: tuple[NDArray[np.float64], ...]
    added: tuple[NDArray[np.int64], ...]

    def answers(self, stops: NDArray[np.integer], final: float) -> NDArray[np.int64]:
        """Answers in the set of every question (n,), stopped at rounds ``stops`` (n,); 0: not asked."""
        sizes = np.zeros(len(stops), np.int64)
        rounds = zip(self.question, self.confidence, self.added, strict=True)
        for number, (question, confidence, added) in enumerate(rounds, start=1):
            counts = (stops[question] == number) & (confidence >= final)
            sizes += np.bincount(
                question[counts], weights=added[counts], minlength=len(stops)
            ).astype(np.int64)
        return sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledRecord:
    """A trace set's labelled questions.

    ``samples`` is m; ``last_rounds`` (n,) are as recorded, at most ``rounds``. Ties in ``sampled`` are
    drawn by some seed: take :meth:`drawn_by`.
    """

    source: str
    pipeline: str | None
    filtered: bool
    question_ids: tuple[str, ...]
    unlabelled: int
    rounds: int
    samples: int
    last_rounds: NDArray[np.int64]
    sampled: Sampled
    sizes: SetSizes
    relevances: Relevances | None

    def drawn_by(self, seed: int) -> Sampled:
        """The samples, with ties broken by this seed."""
        drawn = [lots(f"{seed}:{number + 1}", self.question_ids) for number in range(self.rounds)]
        return replace(self.sampled, draws=np.stack(drawn, axis=1))


def read_record(traces: TraceSet, settings: MiCPSettings) -> LabelledRecord:
    """Read scores, clusters and relevance of the labelled questions."""
    source = traces.origin.source
    labelled = gold_answers(traces).labelled
    if not labelled.any():
        raise UsageError(f"no question of {source} has gold answers; the evaluation needs them")
    chosen = traces.take(labelled)
    draft = draft_policy([chosen], settings)
    run = traces.origin.run
    pipeline, filtered = run.get("pipeline"), run.get("passage_filter") is not None
    relevance = scored_by(chosen)
    known = not filtered and relevance is not None and names_passages(chosen).any()
    return LabelledRecord(
        source=source,
        pipeline=pipeline if isinstance(pipeline, str) else None,
        filtered=filtered,
        question_ids=chosen.question_ids,
        unlabelled=int((~labelled).sum()),
        rounds=draft.rounds,
        samples=draft.samples,
        last_rounds=np.minimum(chosen.last_rounds, draft.rounds).astype(np.int64),
        sampled=read_samples(chosen, draft),
        sizes=_set_sizes(chosen, draft),
        relevances=Relevances.read(chosen, relevance) if known and relevance else None,
    )


_Cluster = tuple[float, frozenset[str]]


def _set_sizes(traces: TraceSet, draft: MiCPPolicy) -> SetSizes:
    events: list[list[tuple[int, float, int]]] = [[] for _ in range(draft.rounds)]
    columns = ["samples", "sample_clusters", "signals"]
    for index, views in enumerate(traces.views(columns)):
        so_far: list[_Cluster] = []
        recorded = views[-1].rounds
        for number in range(draft.rounds):
            if number < len(recorded):
                so_far += [
                    (confidence, cluster.members)
                    for cluster, confidence in draft.confidences(recorded[number])
                ]
            events[number] += [(index, *step) for step in _steps(so_far)]
    columns_of = [tuple(zip(*own, strict=True)) or ((), (), ()) for own in events]
    return SetSizes(
        question=tuple(np.array(own[0], np.intp) for own in columns_of),
        confidence=tuple(np.array(own[1], np.float64) for own in columns_of),
        added=tuple(np.array(own[2], np.int64) for own in columns_of),
    )


def _steps(clusters: Sequence[_Cluster]) -> Iterator[tuple[float, int]]:
    """How a set grows as its threshold falls: clusters that share a member are one answer."""
    apart: list[frozenset[str]] = []
    for confidence, members in sorted(clusters, key=lambda cluster: -cluster[0]):
        touching = [group for group in apart if not group.isdisjoint(members)]
        if touching:
            apart = [group for group in apart if group.isdisjoint(members)]
        apart.append(members.union(*touching))
        if len(touching) != 1:
            yield confidence, 1 - len(touching)


# --- the study ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """Which questions optimise, calibrate and test, each (n,)."""

    seed: int
    optimize: NDArray[np.bool_]
    calibrate: NDArray[np.bool_]
    test: NDArray[np.bool_]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many they are."""
        return int(self.optimize.sum()), int(self.calibrate.sum()), int(self.test.sum())


def micp_study(traces: Sequence[TraceSet], settings: MiCPStudySettings | None = None) -> MiCPStudy:
    """Evaluate MiCP on every trace set."""
    wanted = MiCPStudySettings() if settings is None else settings
    return MiCPStudy(
        settings=wanted, traces=tuple(_study(trace_set, wanted) for trace_set in traces)
    )


def divide(n: int, shares: Sequence[float], seed: int) -> Division:
    """A random division of ``n`` questions by these shares."""
    order = np.random.default_rng(seed).permutation(n)
    ends = [round(n * share) for share in np.cumsum(shares).tolist()]
    parts = []
    for start, end in zip([0, *ends], ends, strict=False):
        part = np.zeros(n, bool)
        part[order[start:end]] = True
        parts.append(part)
    if not all(part.any() for part in parts):
        raise UsageError(
            f"{n} labelled questions do not divide into {', '.join(PARTS)} by shares "
            f"{', '.join(f'{share:.3g}' for share in shares)}; record more questions"
        )
    return Division(seed=seed, optimize=parts[0], calibrate=parts[1], test=parts[2])


def _study(traces: TraceSet, settings: MiCPStudySettings) -> MiCPTraces:
    record = read_record(traces, settings.fit)
    seeds = range(settings.seed, settings.seed + settings.divisions)
    divisions = [divide(len(record.question_ids), settings.shares, seed) for seed in seeds]
    scored: dict[tuple[float, Preset, Way], list[DivisionScores]] = {}
    said: list[str] = []
    asked, never = Counter[Fraction](), Counter[Fraction]()  # fits, and those without an early stop
    for division in divisions:
        sampled = record.drawn_by(division.seed)
        optimise, held = sampled.take(division.optimize), sampled.take(division.calibrate)
        said += unsampled_notes(held)
        for preset in settings.presets:
            for alpha in settings.alphas:
                level, fit = exact_level(alpha), settings.fit
                best = search_allocations(
                    optimise,
                    level,
                    preset,
                    OBJECTIVES,
                    steps=fit.steps,
                    weight=fit.weight,
                    grid=fit.grid,
                )
                thresholds: dict[Way, Stage2] = {
                    BASELINE: calibrate_without_stopping(held, level, preset)
                }
                for objective, chosen in best.items():
                    found = calibrate(held, level, chosen.levels, preset)
                    thresholds[objective] = found
                    asked[level] += 1
                    sizes = divisions[0].sizes[:2]
                    never[level] += bool(few_notes(sizes, level, chosen.levels, found, objective))
                for way, threshold in thresholds.items():
                    scores = _score(record, division, sampled, threshold, fit.weight)
                    scored.setdefault((alpha, preset, way), []).append(scores)
    notes = [*_about_the_record(record), *dict.fromkeys(said)]
    notes += _few(divisions[0].sizes, asked, never)
    return MiCPTraces(
        source=record.source,
        pipeline=record.pipeline,
        unlabelled=record.unlabelled,
        rounds=record.rounds,
        samples=record.samples,
        relevance=None if record.relevances is None else record.relevances.relevance,
        parts=divisions[0].sizes,
        questions=len(record.question_ids),
        cells=tuple(
            MiCPCell(
                alpha=alpha,
                preset=preset,
                way=way,
                divisions=tuple(scored[alpha, preset, way]),
            )
            for preset in settings.presets
            for alpha in settings.alphas
            for way in WAYS
        ),
        retention=_retention(record, divisions, settings),
        notes=tuple(notes),
    )


def _score(
    record: LabelledRecord,
    division: Division,
    sampled: Sampled,
    thresholds: Stage2,
    weight: float,
) -> DivisionScores:
    test = division.test
    seen = evaluate(sampled.take(test), thresholds)
    stops = np.zeros(len(test), np.int64)
    stops[test] = seen.stop
    answers = record.sizes.answers(stops, thresholds.final)[test]
    return DivisionScores(
        seed=division.seed,
        questions=len(seen.stop),
        covered=int(seen.covered.sum()),
        mean_rounds=float(np.minimum(seen.stop, record.last_rounds[test]).mean()),
        set_size=float((answers + ~seen.early).mean()),
        answer_rate=seen.answer_rate,
        objective=seen.composite(weight),
    )


def _retention(
    record: LabelledRecord, divisions: Sequence[Division], settings: MiCPStudySettings
) -> tuple[RetentionCell, ...]:
    held = record.relevances
    if held is None:
        return ()

    def left(division: Division, level: Fraction, preset: Preset) -> Retention:
        values = held.values(division.calibrate, preset)
        return held.kept(division.test, lower_order_statistic(values, level))

    return tuple(
        RetentionCell(
            alpha=alpha,
            preset=preset,
            divisions=tuple(left(division, exact_level(alpha), preset) for division in divisions),
        )
        for preset in settings.presets
        for alpha in settings.alphas
    )


# --- notes ----------------------------------------------------------------------------------------
def _about_the_record(record: LabelledRecord) -> Iterator[str]:
    if record.unlabelled:
        yield f"{record.unlabelled} questions without gold answers are left out"
    short = int((record.last_rounds < record.rounds).sum())
    if short:
        yield (
            f"{short} questions hold fewer than {record.rounds} rounds: they sample nothing in the ones they "
            "lack"
        )
    if record.filtered:
        yield (
            "no retention: its passages were filtered when it was recorded, and those dropped are not in it"
        )
    elif record.relevances is None:
        yield "no retention: the record holds no relevance of passages, or no gold passages"
    else:
        yield from refound_notes(record.relevances.unrecorded)


def _few(sizes: Sequence[int], asked: Counter[Fraction], never: Counter[Fraction]) -> Iterator[str]:
    few = [level for level in asked if min(sizes[:2]) < smallest_sample(level)]
    if few:
        needed = ", ".join(f"{smallest_sample(level)} for {float(level):g}" for level in few)
        yield (
            f"too few questions ({sizes[0]} to optimise, {sizes[1]} to calibrate on) for alpha = "
            f"{', '.join(f'{float(level):g}' for level in few)}: each part needs at least {needed}"
        )
    stuck = sorted(level for level in never if never[level])
    if stuck:
        shares = ", ".join(
            f"{never[level]} of {asked[level]} at alpha {float(level):g}" for level in stuck
        )
        yield (
            f"fits without any early stop, presets, objectives and divisions together: {shares}. Either too "
            "few questions for a threshold, or no division of the budget was better on those to optimise"
        )


# --- the command ----------------------------------------------------------------------------------
def _run(request: Request) -> MiCPStudy:
    fit = request.read(MiCPSettings, seed=MiCPSettings().seed)  # --seed is that of the divisions
    return micp_study(request.traces, request.read(MiCPStudySettings, fit=fit))


STUDY = Study(
    name="micp",
    description="Evaluates MiCP on records that hold samples, as the paper does: over random divisions of "
    "the labelled questions and a grid of alpha, what the answer sets cover, rounds, set size, answer rate "
    "and objective, by what the error budget is divided for and against no early stop; and what the "
    "passage filter keeps.",
    options=(
        Options(settings=MiCPStudySettings),
        Options(
            settings=MiCPSettings,
            title="fitting, as in 'suffice fit micp'",
            only=[
                "rounds",
                "weight",
                "grid",
                "steps",
                "stop_on",
                "penalty",
                "clusters",
                "match_f1",
            ],
        ),
    ),
    run=_run,
    traces="several",
    out="also write micp.json",
)
