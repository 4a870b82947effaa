"""The evaluation of MiCP (paper 3): coverage, rounds, sets and retention over levels and divisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from suffice.bench.micp.arrays import Recorded, read_record
from suffice.bench.micp.found import (
    BASELINE,
    PARTS,
    WAYS,
    MiCPCell,
    MiCPStudy,
    MiCPStudySettings,
    MiCPTraces,
    RetentionCell,
    Scored,
    Way,
)
from suffice.bench.micp.notes import StudyNotes
from suffice.errors import UsageError
from suffice.numbers.conformal.order_statistics import exact_level, lower_order_statistic
from suffice.policies.method import Preset
from suffice.policies.micp.search import search_allocations
from suffice.policies.micp.stage2 import (
    OBJECTIVES,
    Sampled,
    Stage2,
    calibrate,
    calibrate_without_stopping,
    evaluate,
)
from suffice.protocols import Retention
from suffice.trace.rounds.table import TraceSet


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
    """Evaluate MiCP on every trace set.

    Raises
    ------
    UsageError
        When a record lacks samples or gold answers, or a part of a division would be empty.
    DataError
        For a record that MiCP cannot be fitted on.
    """
    wanted = MiCPStudySettings() if settings is None else settings
    return MiCPStudy(settings=wanted, traces=tuple(_study(each, wanted) for each in traces))


def divide(n: int, shares: Sequence[float], seed: int) -> Division:
    """A random division of ``n`` questions by these shares.

    Raises
    ------
    UsageError
        When a part would be empty.
    """
    order = np.random.default_rng(seed).permutation(n)
    ends = [round(n * each) for each in np.cumsum(shares).tolist()]
    parts = []
    for start, end in zip([0, *ends], ends, strict=False):
        part = np.zeros(n, bool)
        part[order[start:end]] = True
        parts.append(part)
    if not all(each.any() for each in parts):
        raise UsageError(
            f"{n} labelled questions do not divide into {', '.join(PARTS)} by shares "
            f"{', '.join(f'{each:.3g}' for each in shares)}; record more questions"
        )
    return Division(seed=seed, optimize=parts[0], calibrate=parts[1], test=parts[2])


def _study(traces: TraceSet, settings: MiCPStudySettings) -> MiCPTraces:
    record = read_record(traces, settings.fit)
    seeds = range(settings.seed, settings.seed + settings.divisions)
    divisions = [divide(len(record.question_ids), settings.shares, seed) for seed in seeds]
    notes = StudyNotes(record=record, sizes=divisions[0].sizes)
    scored = [
        found
        for each in divisions
        for found in _scored(_Divided(record, each, record.drawn_by(each.seed)), settings, notes)
    ]
    return MiCPTraces(
        record=record,
        parts=divisions[0].sizes,
        cells=tuple(
            MiCPCell(
                alpha=alpha,
                preset=preset,
                way=way,
                divisions=tuple(each[1] for each in scored if each[0] == (alpha, preset, way)),
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

    record: Recorded
    division: Division
    sampled: Sampled


_Key = tuple[float, Preset, Way]


def _scored(
    divided: _Divided, settings: MiCPStudySettings, notes: StudyNotes
) -> list[tuple[_Key, Scored]]:
    """Every level, preset and way in one division."""
    fit, division = settings.fit, divided.division
    optimise, held = (
        divided.sampled.take(each) for each in (division.optimize, division.calibrate)
    )
    notes.held(held)
    found: list[tuple[_Key, Scored]] = []
    for preset in settings.presets:
        for alpha in settings.alphas:
            level = exact_level(alpha)
            best = search_allocations(
                optimise, level, preset, OBJECTIVES, steps=fit.steps, weight=fit.weight
            )
            thresholds: dict[Way, Stage2] = {
                BASELINE: calibrate_without_stopping(held, level, preset)
            }
            for objective, chosen in best.items():
                thresholds[objective] = calibrate(held, level, chosen.levels, preset)
                notes.fitted(level, thresholds[objective])
            found += [
                ((alpha, preset, way), _score(divided, each, fit.weight))
                for way, each in thresholds.items()
            ]
    return found


def _score(divided: _Divided, thresholds: Stage2, weight: float) -> Scored:
    test, record = divided.division.test, divided.record
    seen = evaluate(divided.sampled.take(test), thresholds)
    stops = np.zeros(len(test), np.int64)
    stops[test] = seen.stop
    answers = record.sizes.answers(stops, thresholds.final)[test]
    return Scored(
        seed=divided.division.seed,
        questions=len(seen.stop),
        covered=int(seen.covered.sum()),
        mean_rounds=float(np.minimum(seen.stop, record.last_rounds[test]).mean()),
        set_size=float((answers + ~seen.early).mean()),
        answer_rate=seen.answer_rate,
        objective=seen.composite(weight),
    )


def _retention(
    record: Recorded, divisions: Sequence[Division], settings: MiCPStudySettings
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
            divisions=tuple(left(each, exact_level(alpha), preset) for each in divisions),
        )
        for preset in settings.presets
        for alpha in settings.alphas
    )
