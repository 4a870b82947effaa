"""Estimates from logs of a live policy, beside the truth of the population that they are drawn from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tests.cut_population import PROFILES, Array, Log, Population

from suffice.measures.measures import Measures
from suffice.measures.seen import Seen, Stops
from suffice.stats.intervals import percentile_interval, resampled_means, with_rare_weights

QUESTIONS = 2000


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Of every target over logs: mean errors in standard errors, intervals that cover, spread.

    Beside them the spread of plain inverse-propensity weights.
    """

    bias: Array
    paid_bias: Array
    covered: Array
    spread: Array
    paid_spread: Array
    plain_spread: Array
    plain_paid_spread: Array


def horvitz_thompson(seen: Seen, values: Array, stops: Stops) -> Array:
    """Values at these stops by inverse-propensity weights alone, without any prediction."""
    weights = seen.weights(stops)
    return np.where(weights > 0, weights * seen.bounds(values, stops, np.nan), 0.0)


def estimated(
    drawn: Population, logger: str, explore: float, *, logs: int, questions: int = QUESTIONS
) -> Estimates:
    """Every target estimated from so many logs."""
    log = Log(drawn, drawn.loggers[logger], explore)
    targets = list(drawn.targets.values())
    scores, costs = (np.empty((questions, logs, len(targets))), np.empty((logs, len(targets))))
    plain, weighted = np.empty((2, logs, len(targets))), np.empty((logs, len(targets)))
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
            for which, values in enumerate((scored, paid)):
                plain[which, number, place] = horvitz_thompson(seen, values, at).mean()
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
        spread=means.std(axis=0),
        paid_spread=costs.std(axis=0),
        plain_spread=plain[0].std(axis=0),
        plain_paid_spread=plain[1].std(axis=0),
    )


def _in_errors(errors: Array) -> Array:
    return np.asarray(errors.mean(axis=0) / (errors.std(axis=0) / np.sqrt(len(errors))))
