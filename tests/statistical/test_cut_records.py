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
from suffice.numbers.intervals.bootstrap import (
    percentile_interval,
    resampled_means,
    with_rare_weights,
)

QUESTIONS = 2000
Array = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Of every target: mean errors in standard errors over logs, and the share of intervals that cover."""

    bias: Array
    paid_bias: Array
    covered: Array


def estimated(drawn: Population, logger: str, explore: float, logs: int) -> Estimates:
    """Every target estimated from so many logs."""
    log = Log(drawn, drawn.loggers[logger], explore)
    targets = list(drawn.targets.values())
    scores, costs = (
        np.empty((QUESTIONS, logs, len(targets))),
        np.empty((logs, len(targets))),
    )
    weighted = np.empty((logs, len(targets)))
    for number in range(logs):
        rows = np.random.default_rng([7, number]).integers(0, PROFILES, QUESTIONS)
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
    one_more = weighted.ravel() / explore / QUESTIONS
    draws = with_rare_weights(resampled_means(scores.reshape(QUESTIONS, -1)), one_more)
    ends = [percentile_interval(0.0, column) for column in draws.T]
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
    estimates = estimated(population(), "eager", 0.2, 25)
    assert np.abs(estimates.bias).max() < 3.5
    assert np.abs(estimates.paid_bias).max() < 3.5
    assert estimates.covered.mean() > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("logger", ["eager", "wary", "fixed-3"])
@pytest.mark.parametrize("explore", [0.02, 0.05, 0.2])
def test_estimates_are_unbiased_and_their_intervals_cover(explore: float, logger: str) -> None:
    estimates = estimated(population(), logger, explore, 2000)
    assert np.abs(estimates.bias).max() <= 2.5, estimates.bias
    assert np.abs(estimates.paid_bias).max() <= 2.5, estimates.paid_bias
    assert ((estimates.covered >= 0.93) & (estimates.covered <= 0.97)).all(), estimates.covered
