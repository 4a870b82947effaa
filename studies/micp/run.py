"""The evaluation of MiCP (paper 3): coverage, rounds, sets and retention over levels and divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

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
    StudyNotes,
    Way,
)
from studies.micp.show import micp_page
from studies.study import Options, Request, Study
from suffice.errors import UsageError
from suffice.measures.scores import gold_answers
from suffice.numbers.conformal.order_statistics import exact_level, lower_order_statistic
from suffice.policies.draws import lots
from suffice.policies.method import Preset
from suffice.policies.micp.fit import draft_policy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_fit import Relevances, scored_by
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

    Parameters
    ----------
    question
        For each round 1..T the questions of its entries, (n_entries,).
    confidence
        An entry counts where the threshold is at most this.
    added
        How many answers it then adds: 1, or less where it joins answers that were apart.
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
    pipeline = run.get("pipeline")
    return LabelledRecord(
        source=source,
        pipeline=pipeline if isinstance(pipeline, str) else None,
        filtered=run.get("passage_filter") is not None,
        question_ids=chosen.question_ids,
        unlabelled=int((~labelled).sum()),
        rounds=draft.rounds,
        samples=draft.samples,
        last_rounds=np.minimum(chosen.last_rounds, draft.rounds).astype(np.int64),
        sampled=read_samples(chosen, draft),
        sizes=_set_sizes(chosen, draft),
        relevances=_relevances(chosen),
    )


# --- set sizes -----------------------------------------------------------------------------------
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


# --- relevance -----------------------------------------------------------------------------------
def _relevances(traces: TraceSet) -> Relevances | None:
    relevance = scored_by(traces)
    filtered = traces.origin.run.get("passage_filter") is not None
    if filtered or relevance is None or not names_passages(traces).any():
        return None
    return Relevances.read(traces, relevance)


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
    notes = StudyNotes(record=record, sizes=divisions[0].sizes)
    scored = [
        scores
        for division in divisions
        for scores in _scored(
            _Divided(record, division, record.drawn_by(division.seed)), settings, notes
        )
    ]
    return MiCPTraces(
        record=record,
        parts=divisions[0].sizes,
        cells=tuple(
            MiCPCell(
                alpha=alpha,
                preset=preset,
                way=way,
                divisions=tuple(scores for key, scores in scored if key == (alpha, preset, way)),
            )
            for preset in settings.presets
            for alpha in settings.alphas
            for way in WAYS
        ),
        retention=_retention(record, divisions, settings),
        notes=notes.said(),
    )


@dataclass(frozen=True, slots=True)
class _Divided:
    """A record in one division."""

    record: LabelledRecord
    division: Division
    sampled: Sampled


_Key = tuple[float, Preset, Way]


def _scored(
    divided: _Divided, settings: MiCPStudySettings, notes: StudyNotes
) -> list[tuple[_Key, DivisionScores]]:
    """Every level, preset and way in one division."""
    fit, division = settings.fit, divided.division
    optimise, held = (
        divided.sampled.take(part) for part in (division.optimize, division.calibrate)
    )
    notes.held(held)
    scored: list[tuple[_Key, DivisionScores]] = []
    for preset in settings.presets:
        for alpha in settings.alphas:
            level = exact_level(alpha)
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
                thresholds[objective] = calibrate(held, level, chosen.levels, preset)
                notes.fitted(level, chosen.levels, thresholds[objective], objective)
            scored += [
                ((alpha, preset, way), _score(divided, threshold, fit.weight))
                for way, threshold in thresholds.items()
            ]
    return scored


def _score(divided: _Divided, thresholds: Stage2, weight: float) -> DivisionScores:
    test, record = divided.division.test, divided.record
    seen = evaluate(divided.sampled.take(test), thresholds)
    stops = np.zeros(len(test), np.int64)
    stops[test] = seen.stop
    answers = record.sizes.answers(stops, thresholds.final)[test]
    return DivisionScores(
        seed=divided.division.seed,
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


def _run(request: Request) -> MiCPStudy:
    fit = request.read(
        MiCPSettings, seed=MiCPSettings().seed
    )  # its own --seed is that of the divisions
    settings: MiCPStudySettings = request.read(MiCPStudySettings, fit=fit)
    return micp_study([request.open_traces(path) for path in request.paths], settings)


STUDY = Study(
    description="Evaluates MiCP on records that hold samples, as the paper does: over random divisions of "
    "the labelled questions and a grid of alpha, what the answer sets cover, rounds, set size, answer rate "
    "and objective, by what the error budget is divided for and against no early stop; and what the "
    "passage filter keeps.",
    options=(
        Options(settings=MiCPStudySettings),
        Options(
            settings=MiCPSettings,
            title="fitting",
            about="as in 'suffice fit micp'",
            only=(
                "rounds",
                "weight",
                "grid",
                "steps",
                "stop_on",
                "penalty",
                "clusters",
                "match_f1",
            ),
        ),
    ),
    run=_run,
    traces="several",
    out="also write micp.json and micp.html, a page with the figures",
    page=micp_page,
)
