"""What is estimated from records that were cut: populations with known truth, thousands of logs.

A live loop runs one of three policies, cuts every question where that says stop, and lets a drawn share
run on. Six other policies are estimated from what it wrote, by what is shipped: the weights of
:mod:`suffice.measures.seen`, the bootstrap by question, certified choice.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.cut_population import PROFILES, Log, Population, population

from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.numbers.intervals.bootstrap import (
    percentile_interval,
    resampled_means,
    with_rare_weights,
)
from suffice.replay.choose.learn_then_test import CertifySettings, Half, LossName, certify

QUESTIONS = 2000
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Of every target: mean errors in standard errors over logs, and the share of intervals that cover."""

    bias: Array
    paid_bias: Array
    covered: Array


def estimated(
    drawn: Population, logger: str, explore: float, *, logs: int, questions: int = QUESTIONS
) -> Estimates:
    """Every target estimated from so many logs."""
    log = Log(drawn, drawn.loggers[logger], explore)
    targets = list(drawn.targets.values())
    scores, costs = (
        np.empty((questions, logs, len(targets))),
        np.empty((logs, len(targets))),
    )
    weighted = np.empty((logs, len(targets)))
    for number in range(logs):
        rows = np.random.default_rng([7, number]).integers(0, PROFILES, questions)
        measures = Measures(log.record(rows, number)).by("score")
        seen, scored = measures.seen, measures.scores().f1
        assert seen is not None
        calls = measures.traces.column("llm_calls")
        assert calls is not None
        paid = np.cumsum(calls, axis=1)
        for place, stops in enumerate(targets):
            at = stops[rows]
            scores[:, number, place] = seen.at(scored, at)
            costs[number, place] = seen.at(paid, at).mean()
            weighted[number, place] = (seen.weights(at) != 1).any()
    means = scores.mean(axis=0)
    draws = resampled_means(scores.reshape(questions, -1)).reshape(-1, logs, len(targets))
    ends = [
        percentile_interval(0.0, column)
        for number in range(logs)
        for column in with_rare_weights(
            draws[:, number], scores[:, number], weighted[number] / explore
        ).T
    ]
    low = np.array([end.low for end in ends]).reshape(means.shape)
    high = np.array([end.high for end in ends]).reshape(means.shape)
    truth = np.array([drawn.truth(drawn.scores, stops) for stops in targets])
    true_costs = np.array([drawn.truth(drawn.paid, stops) for stops in targets])
    return Estimates(
        bias=_in_errors(means - truth),
        paid_bias=_in_errors(costs - true_costs),
        covered=((low <= truth) & (truth <= high)).mean(axis=0),
    )


def _in_errors(errors: Array) -> Array:
    return np.asarray(errors.mean(axis=0) / (errors.std(axis=0) / np.sqrt(len(errors))))


def test_a_fast_sample_of_the_estimates() -> None:
    estimates = estimated(population(), "eager", 0.2, logs=12, questions=400)
    assert np.abs(estimates.bias).max() < 4.5
    assert np.abs(estimates.paid_bias).max() < 4.5
    assert estimates.covered.mean() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["eager", "wary", "fixed-3"])
@pytest.mark.parametrize("explore", [0.02, 0.05, 0.2])
def test_estimates_are_unbiased_and_their_intervals_cover(explore: float, logger: str) -> None:
    estimates = estimated(population(), logger, explore, logs=2000)
    assert np.abs(estimates.bias).max() <= 2.5, estimates.bias
    assert np.abs(estimates.paid_bias).max() <= 2.5, estimates.paid_bias
    assert ((estimates.covered >= 0.93) & (estimates.covered <= 0.97)).all(), estimates.covered


# --- certified choice ----------------------------------------------------------------------------
def members(drawn: Population) -> NDArray[np.int16]:
    """Thresholds and fixed budgets, (n_members, PROFILES); the last takes the full budget."""
    rules = [drawn.stops(above) for above in np.linspace(0.2, 2.8, 14)]
    return np.stack([*rules, *(drawn.fixed(budget) for budget in range(1, 6))])


@dataclass(frozen=True, kw_only=True)
class Promises:
    """Shares of logs whose promise was broken, and in which something below the full budget was chosen."""

    broken: float
    early: float


def promised(
    drawn: Population,
    log: Log,
    settings: CertifySettings,
    *,
    logs: int,
    questions: int = QUESTIONS,
) -> Promises:
    """Certified choice from so many logs, half of the questions to learn on and half to test."""
    stops = members(drawn)
    truth = true_losses(drawn, stops, settings.loss)
    broken = early = 0
    for number in range(logs):
        rows = np.random.default_rng([7, number]).integers(0, PROFILES, questions)
        measures = Measures(log.record(rows, number)).by("score")
        seen, scored = measures.seen, measures.scores().compared
        assert seen is not None
        halves = [
            half_of(part, stops[:, rows[part]], scored, seen)
            for part in (slice(0, questions // 2), slice(questions // 2, questions))
        ]
        outcome = certify(halves[0], halves[1], len(stops) - 1, settings)
        broken += bool(truth[outcome.chosen] > settings.max_loss)
        early += not outcome.fell_back
    return Promises(broken=broken / logs, early=early / logs)


def half_of(part: slice, stops: NDArray[np.int16], scored: Array, seen: Seen) -> Half:
    return Half(
        stops=stops,
        scores=scored[part],
        last=seen.last[part],
        costs=stops.mean(axis=1),
        seen=seen.take(np.arange(len(scored))[part]),
        reach=seen.reach,
    )


def true_losses(drawn: Population, stops: NDArray[np.int16], loss: LossName) -> Array:
    at_stops = drawn.scores[np.arange(PROFILES), stops - 1]
    losses = drawn.scores[:, -1] - at_stops
    return np.asarray((losses if loss == "signed" else np.maximum(losses, 0.0)).mean(axis=1))


def most_allowed(delta: float, draws: int) -> float:
    return delta + 3 * float(np.sqrt(delta * (1 - delta) / draws))


def test_a_fast_sample_of_promises_on_cut_records() -> None:
    drawn = population()
    settings = CertifySettings(max_loss=0.1, confidence=0.9)
    found = promised(
        drawn, Log(drawn, drawn.loggers["wary"], 0.2), settings, logs=5, questions=1500
    )
    assert found.broken <= most_allowed(0.1, 5)
    assert found.early > 0.5


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["eager", "wary", "fixed-3"])
@pytest.mark.parametrize(
    ("loss", "explore"), [("signed", 0.02), ("signed", 0.05), ("signed", 0.2), ("drop", 0.2)]
)
def test_promises_on_cut_records_are_kept(loss: LossName, explore: float, logger: str) -> None:
    """Of the members one keeps the maximum narrowly, and one breaks it narrowly."""
    drawn = population()
    truth = true_losses(drawn, members(drawn), loss)
    assert ((truth > 0.1) & (truth < 0.11)).any()
    settings = CertifySettings(max_loss=0.1, confidence=0.9, loss=loss, correction="holm")
    log = Log(drawn, drawn.loggers[logger], explore)
    found = promised(drawn, log, settings, logs=2000, questions=1000)
    assert found.broken <= most_allowed(0.1, 2000), found
    assert explore < 0.2 or loss == "drop" or found.early > 0.3, found


@pytest.mark.slow
def test_taking_the_cut_for_the_full_budget_breaks_promises() -> None:
    """What stops where the running policy did would seem to lose nothing."""
    drawn = population()
    eager = drawn.loggers["eager"]
    log, rows = Log(drawn, eager, 0.05), np.random.default_rng(7).integers(0, PROFILES, QUESTIONS)
    scored = Measures(log.record(rows, 7)).by("score").scores().compared
    last = np.isfinite(scored).sum(axis=1)
    seeming = (
        scored[np.arange(QUESTIONS), last - 1]
        - scored[np.arange(QUESTIONS), np.minimum(eager[rows], last) - 1]
    )
    assert seeming.mean() < 0.02
    assert true_losses(drawn, eager[None, :], "signed")[0] > 0.1
