"""MiCP on fresh questions of known kinds, by grid and preset."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from studies.command import FirstSeed, Found, mean_intervals, report
from suffice.cli.output import Form, waiting
from suffice.cli.parser import command
from suffice.options import Option, read_grid
from suffice.policies.method import Preset
from suffice.policies.micp.micp_settings import GRIDS
from suffice.policies.micp.stage2 import (
    Evaluation,
    Sampled,
    Stage2,
    calibrate,
    evaluate,
    search_allocations,
)
from suffice.results.table import Column, Table
from suffice.stats.conformal import exact_level

Array = NDArray[np.float64]
Kind = Literal["continuous", "10 samples", "5 samples"]
Way = Literal["box", "shares", "no early stop"]
KINDS: tuple[Kind, ...] = get_args(Kind)
WAYS: tuple[Way, ...] = get_args(Way)
PRESETS: tuple[Preset, ...] = ("corrected", "published")
ANSWERS = 6
_ABOUT = (Column(name="questions", once=True), Column(name="alpha", kind="number", digits=2))
_FIGURES = (
    Column(name="saved", kind="number", digits=2, interval=True, head="rounds saved"),
    Column(name="coverage", kind="percent", interval=True, head="coverage %"),
    Column(name="set_size", kind="number", digits=2, interval=True, head="set size"),
)


def calibrate_without_stopping(data: Sampled, alpha: Fraction, preset: Preset) -> Stage2:
    """The baseline: full budget for every question, all of ``alpha`` for the answer set."""
    return calibrate(data, alpha, (Fraction(0),) * (data.rounds - 1), preset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """Questions with what their samples say, and every answer's best confidence so far (n, T, answers).

    The first answer is the right one; -inf: not sampled yet.
    """

    sampled: Sampled
    confidence: Array

    def set_sizes(self, seen: Evaluation, final: float) -> NDArray[np.int64]:
        """Members of the answer sets (n,), "Can't Answer" among them."""
        held = self.confidence[np.arange(self.sampled.n), seen.stop - 1]
        return np.asarray(((held > -math.inf) & (held >= final)).sum(axis=1) + ~seen.early)


def population(kind: Kind, rounds: int, *, seed: int, people: int) -> Population:
    """Questions of which some are answered at once, some later, some never, some confidently wrong.

    A question keeps its difficulty and its favorite wrong answer, so that rounds depend on each other. In 3
    of 100 rounds every sample is empty: undefined, though a right answer may have been sampled before.
    """
    rng = np.random.default_rng([seed, rounds, KINDS.index(kind)])
    samples = 5 if kind == "5 samples" else 10
    known_from = rng.choice([0, 1, 2, 3, 99], people, p=[0.45, 0.15, 0.1, 0.05, 0.25])  # 99: never
    known = np.arange(rounds) >= known_from[:, None]
    ease = rng.beta(1.2, 1.0, people)[:, None] * np.ones(rounds)
    right = np.where(known, ease, 0.02 * (known_from < 99)[:, None])
    stubborn = rng.beta(0.7, 1.0, (people, 1, 1))  # how much of the rest is one wrong answer
    noise = rng.dirichlet(np.ones(ANSWERS - 1), (people, rounds))
    favorite = np.eye(ANSWERS - 1)[rng.integers(0, ANSWERS - 1, people)][:, None, :]
    wrong = stubborn * favorite + (1 - stubborn) * noise
    shares = np.concatenate([right[..., None], (1 - right)[..., None] * wrong], axis=2)
    counts = rng.multinomial(samples, shares / shares.sum(axis=2, keepdims=True))
    logs = np.where(counts > 0, counts * np.log(np.maximum(counts, 1)), 0.0)
    logs.sort(axis=2)  # equal partitions give equal bits
    score = 1.0 - logs.sum(axis=2) / (samples * math.log(samples))
    blur = np.zeros(counts.shape)
    if kind == "continuous":
        score = score + 0.05 * rng.standard_normal(score.shape)
        blur[..., 0] = 0.02 * rng.standard_normal(score.shape)
    empty = rng.random((people, rounds)) < 0.03
    draws = rng.random((people, rounds))
    if kind == "continuous":
        blur[..., 1:] = 0.02 * rng.standard_normal((people, rounds, ANSWERS - 1))
    sampled = (counts > 0) & ~empty[..., None]
    confidence = np.where(sampled, counts / samples + blur, -np.inf)
    best = np.maximum.accumulate(confidence, axis=1)
    return Population(
        sampled=Sampled(score=np.where(empty, np.nan, score), best_gold=best[..., 0], draws=draws),
        confidence=best,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PopulationSettings:
    """How many populations of how many questions, and what is promised of them."""

    alphas: Annotated[
        tuple[float, ...],
        Option(
            metavar="LOW:HIGH:STEP|A,B,...",
            parse=read_grid,
            help="errors promised (default: 0.1,0.2,0.3)",
        ),
    ] = (0.1, 0.2, 0.3)
    populations: Annotated[int, Option(metavar="N", at_least=2, help="of every kind")] = 200
    optimize: Annotated[
        int, Option(metavar="N", at_least=1, help="questions that divide the error budget")
    ] = 300
    calibrate: Annotated[
        int, Option(metavar="N", at_least=1, help="questions that set the thresholds")
    ] = 300
    fresh: Annotated[int, Option(metavar="N", at_least=1, help="questions that are scored")] = 2000
    rounds: Annotated[int, Option(metavar="T", at_least=2, help="the full budget")] = 3
    seed: FirstSeed = 42


Values = dict[tuple[Kind, float, Preset, Way], Array]
"""By kind, alpha, preset and way: rounds saved, coverage and set size, (populations, 3)."""


def population_values(settings: PopulationSettings) -> Values:
    """Fit and score MiCP on fresh populations of every kind."""
    ends = np.cumsum([settings.optimize, settings.calibrate, settings.fresh])
    values: dict[tuple[Kind, float, Preset, Way], list[list[float]]] = {}
    for kind in KINDS:
        for seed in range(settings.seed, settings.seed + settings.populations):
            people = population(kind, settings.rounds, seed=seed, people=int(ends[-1]))
            parts = np.split(np.arange(ends[-1]), ends[:-1])
            optimize, held = (people.sampled.take(part) for part in parts[:2])
            fresh = Population(
                sampled=people.sampled.take(parts[2]), confidence=people.confidence[parts[2]]
            )
            for alpha, preset in product(settings.alphas, PRESETS):
                for way, thresholds in _fitted(optimize, held, alpha, preset):
                    seen = evaluate(fresh.sampled, thresholds)
                    size = float(fresh.set_sizes(seen, thresholds.final).mean())
                    found = [settings.rounds - seen.mean_rounds, float(seen.covered.mean()), size]
                    values.setdefault((kind, alpha, preset, way), []).append(found)
    return {cell: np.array(each) for cell, each in values.items()}


def micp_populations(settings: PopulationSettings) -> Found:
    """Each preset's figures: means over populations with 95% intervals."""
    values = population_values(settings)
    keys = ("questions", "alpha", "preset", "grid", *(column.name for column in _FIGURES))
    figures = {cell: mean_intervals(own, seed=settings.seed) for cell, own in values.items()}
    pairs = list(product(KINDS, settings.alphas))
    last = settings.seed + settings.populations - 1
    about = (
        f"{settings.populations} populations of each kind (seeds {settings.seed} to {last}): "
        f"{settings.optimize} questions divide the budget for mean rounds, {settings.calibrate} "
        f"calibrate, {settings.fresh:,} fresh ones are scored. Intervals: 1,000 resamples of the "
        'populations. Set sizes count "Can\'t Answer".'
    )
    by_preset = [
        Table(
            name=preset,
            title=f"MiCP, {preset}: rounds saved of {settings.rounds}, coverage and set size, means "
            "with 95% intervals",
            columns=(*_ABOUT, Column(name="grid"), *_FIGURES),
            names=3,
            rows=[(*pair, way, *figures[*pair, preset, way]) for pair in pairs for way in WAYS],
            notes=[about],
        )
        for preset in PRESETS
    ]
    cells = [dict(zip(keys, (*cell, *found), strict=True)) for cell, found in figures.items()]
    return Found(document={"settings": settings, "cells": cells}, shown=by_preset)


def _fitted(
    optimize: Sampled, held: Sampled, alpha: float, preset: Preset
) -> Iterator[tuple[Way, Stage2]]:
    """The thresholds of every way, its budget divided for mean rounds."""
    level = exact_level(alpha)
    for grid in GRIDS:
        found = search_allocations(optimize, level, preset, ("rounds",), weight=1.0, grid=grid)
        chosen = found["rounds"]
        yield grid, calibrate(held, level, chosen.levels, preset)
    yield "no early stop", calibrate_without_stopping(held, level, preset)


@command()
def populations(settings: PopulationSettings, form: Form) -> int:
    """Fit MiCP on fresh questions of known kinds and score it on others, by grid and preset."""
    with waiting("micp populations"):
        found = micp_populations(settings)
    return report("micp", found, form)
