"""What is estimated from records that were cut: populations with known truth, thousands of logs.

A live loop runs one of three policies, cuts every question where that says stop, and lets a drawn share
run on. Six other policies are estimated from what it wrote, by what is shipped: the weights of
:mod:`suffice.measures.seen`, the bootstrap by question, certified choice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from numpy.typing import NDArray
from tests.certifying import Shares, certify, most_allowed
from tests.cut_estimates import estimated
from tests.cut_population import PROFILES, ROUNDS, Log, Population, population

from suffice.evaluation.choose.bounds import Half, Promise
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, LossName
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.trace.rounds.trace_set import TraceSet

QUESTIONS = 2000
Array = NDArray[np.float64]


def test_a_fast_sample_of_the_estimates() -> None:
    estimates = estimated(population(), "eager", 0.2, logs=12, questions=400)
    assert (estimates.spread[1:] < estimates.plain_spread[1:]).all()
    assert np.abs(estimates.bias).max() < 4.5
    assert np.abs(estimates.paid_bias).max() < 4.5
    assert estimates.covered.mean() > 0.85


def labelled_in_part(
    record: TraceSet, rates: tuple[float, float], seed: int, name: str
) -> TraceSet:
    """Some questions' scores: of those that ran on at one rate, of those cut at another; ids under a name."""
    rng = np.random.default_rng([13, seed])
    cut = np.array([end == "policy" for end in record.of_last_rounds("stopped_by")])
    known = rng.random(len(cut)) < np.where(cut, rates[1], rates[0])
    table, rows = record.table, np.repeat(known, record.last_rounds)
    for column in ("question_id", "question"):
        cells = pc.binary_join_element_wise(name, table.column(column), " ")
        table = table.set_column(table.column_names.index(column), column, cells)
    scores = pc.if_else(pa.array(rows), table.column("score"), None)
    table = table.set_column(table.column_names.index("score"), "score", scores)
    return replace(record, table=table, closed_book=table.slice(0, 0))


def test_a_policy_and_a_share_that_changed_and_labels_of_some() -> None:
    """Two policies with different shares wrote one log; explored and cut are labelled at different rates."""
    drawn = population()
    logs = (Log(drawn, drawn.loggers["eager"], 0.3), Log(drawn, drawn.loggers["wary"], 0.15))
    targets = [drawn.fixed(1), drawn.fixed(5), drawn.stops(1.2)]
    found = []
    for number in range(30):
        rows = np.random.default_rng([7, number]).integers(0, PROFILES, (2, 300))
        parts = [
            labelled_in_part(log.record(of, 2 * number + n), (0.8, 0.4), 2 * number + n, "ab"[n])
            for n, (log, of) in enumerate(zip(logs, rows, strict=True))
        ]
        table = pa.concat_tables([part.table for part in parts])
        whole = replace(parts[0], table=table, known_starts=None)
        measures = Measures(whole).by("score")
        seen, scored = measures.seen, measures.scores()
        assert seen is not None
        at = [seen.at(scored.f1, stops[rows.ravel()], among=scored.labelled) for stops in targets]
        found.append([values[scored.labelled].mean() for values in at])
    truth = [drawn.truth(drawn.scores, stops) for stops in targets]
    error = np.std(found, axis=0) / np.sqrt(len(found))
    assert (np.abs(np.mean(found, axis=0) - truth) < 3.5 * error).all()
    assert (np.std(found, axis=0) < 0.06).all()


@pytest.mark.slow
@pytest.mark.parametrize(("logger", "explore"), [("eager", 0.02), ("wary", 0.05), ("fixed-3", 0.2)])
def test_estimates_are_unbiased_and_their_intervals_cover(explore: float, logger: str) -> None:
    estimates = estimated(population(), logger, explore, logs=2000)
    assert np.abs(estimates.bias).max() <= 2.5, estimates.bias
    assert np.abs(estimates.paid_bias).max() <= 2.5, estimates.paid_bias
    # wider where a handful was explored
    assert ((estimates.covered >= 0.93) & (estimates.covered <= 0.995)).all(), estimates.covered


@pytest.mark.parametrize("logs", [40, pytest.param(400, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("rate", "questions"), [(0.5, 20), (0.9, 40), (0.97, 59), (0.9, 200)])
def test_intervals_of_few_questions_cover(rate: float, questions: int, logs: int) -> None:
    """One question in five is explored: few, all of them right, or all alike; score, change and both."""
    rng = np.random.default_rng(3)
    right = (rng.random((PROFILES, 1)) < rate) ^ (rng.random((PROFILES, ROUNDS)) < 0.02)
    drawn = Population(
        scores=right.astype(np.float64),
        paid=np.cumsum(np.ones((PROFILES, ROUNDS)), axis=1),
        sure=np.zeros((PROFILES, ROUNDS)),
    )
    log, how = (
        Log(drawn, drawn.fixed(1), 0.2),
        ComparisonSettings(baseline="fixed-1", resamples=200),
    )
    truth = [drawn.truth(drawn.scores, drawn.fixed(budget)) for budget in (1, ROUNDS)]
    covered = []
    for number in range(logs):
        rows = np.random.default_rng([7, number]).integers(0, PROFILES, questions)
        measures = Measures(log.record(rows, number)).by("score")
        built = named_policies(measures, ("fixed-1", f"fixed-{ROUNDS}"), ())
        one, full = replay(measures, built, how).policies
        if full.interval is None or full.delta is None or one.interval is None:
            continue  # nothing was explored
        pairs = (
            (one.interval, truth[0]),
            (full.interval, truth[1]),
            (full.delta, truth[1] - truth[0]),
        )
        covered.append([each.low <= true <= each.high for each, true in pairs])
    share = np.mean(covered, axis=0)
    assert len(covered) > 0.9 * logs
    assert (share >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / len(covered))).all(), share


# --- certified choice ----------------------------------------------------------------------------
def members(drawn: Population) -> NDArray[np.int16]:
    """Thresholds and fixed budgets, (n_members, PROFILES); the last takes the full budget."""
    rules = [drawn.stops(above) for above in np.linspace(0.2, 2.8, 14)]
    return np.stack([*rules, *(drawn.fixed(budget) for budget in range(1, 6))])


def promised(
    drawn: Population, log: Log, settings: Promise, *, logs: int, questions: int = QUESTIONS
) -> Shares:
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
    return Shares(broken=broken / logs, early=early / logs)


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


def test_a_fast_sample_of_promises_on_cut_records() -> None:
    drawn = population()
    settings = Promise(max_loss=0.1, confidence=0.9)
    found = promised(
        drawn, Log(drawn, drawn.loggers["wary"], 0.2), settings, logs=5, questions=1500
    )
    assert found.broken <= most_allowed(0.1, 5)
    assert found.early > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("logger", "loss", "explore"),
    [
        ("eager", "signed", 0.02),
        ("wary", "signed", 0.05),
        ("fixed-3", "signed", 0.2),
        ("eager", "drop", 0.2),
        ("wary", "drop", 0.2),
        ("fixed-3", "drop", 0.2),
    ],
)
def test_promises_on_cut_records_are_kept(loss: LossName, explore: float, logger: str) -> None:
    """Of the members one keeps the maximum narrowly, and one breaks it narrowly."""
    drawn = population()
    truth = true_losses(drawn, members(drawn), loss)
    assert ((truth > 0.1) & (truth < 0.11)).any()
    settings = Promise(max_loss=0.1, confidence=0.9, loss=loss, correction="holm")
    log = Log(drawn, drawn.loggers[logger], explore)
    found = promised(drawn, log, settings, logs=2000, questions=1000)
    assert found.broken <= most_allowed(0.1, 2000), found
    assert explore < 0.2 or loss == "drop" or found.early > 0.3, found
