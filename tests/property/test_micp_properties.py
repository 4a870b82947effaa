"""MiCP's promise on every small population, and what its answer sets hold."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.policies.method import Preset
from suffice.policies.micp.micp_settings import StopOn
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.sampled_answers import read_samples
from suffice.policies.micp.stage2 import Sampled, Stage2, calibrate, evaluate_stops
from suffice.signals.signal_table import signal_table
from suffice.stats.conformal import Threshold
from suffice.testing.traces import sampled_records, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round

ALPHAS = tuple(map(Fraction, ("1/20", "1/10", "1/5", "3/10", "1/2", "9/10")))
LEVELS = tuple(map(Fraction, ("0", "1/20", "1/10", "1/3", "1/2", "3/4", "1")))
PRESETS: tuple[Preset, ...] = ("published", "corrected")


# --- the promise, exactly, on populations of n + 1 questions ------------------------------------
@st.composite
def populations(draw: st.DrawFn, most: int = 9) -> Sampled:
    """Few questions with ties, undefined scores, and a right answer sampled in any round or none."""
    n, rounds = draw(st.integers(2, most)), draw(st.integers(1, 4))
    one = st.one_of(st.sampled_from([math.nan, 0.0, 0.5, 1.0]), st.floats(0, 1, width=16))
    gold = st.one_of(st.just(-math.inf), st.sampled_from([0.1, 0.2, 0.5, 1.0]))
    row = st.lists(one, min_size=rounds, max_size=rounds)
    best = st.lists(gold, min_size=rounds, max_size=rounds)
    return Sampled(
        score=np.array([draw(row) for _ in range(n)]),
        best_gold=np.maximum.accumulate(np.array([draw(best) for _ in range(n)]), axis=1),
        draws=np.full((n, rounds), 0.5),
    )


def missed(data: Sampled, question: int, found: Stage2) -> tuple[float, float]:
    """Probability, over the lots, of being stopped before the answer is sampled, and of losing it."""
    running, too_early, lost = 1.0, 0.0, 0.0
    for t in range(data.rounds):
        fires = 1.0
        if t < data.rounds - 1:
            score, threshold = data.score[question, t], found.stops[t]
            fires = float(score < threshold.value)
            fires = threshold.share if score == threshold.value else fires
        best = data.best_gold[question, t]
        if best == -math.inf and t < data.rounds - 1:
            too_early += running * fires
        if best > -math.inf and best < found.final:
            lost += running * fires
        running *= 1.0 - fires
    return too_early, lost


def left_out(
    data: Sampled, alpha: Fraction, levels: tuple[Fraction, ...], preset: Preset
) -> tuple[float, float]:
    """Expected error by part when n of the n + 1 questions calibrate and the other one is the test."""
    parts = []
    for question in range(data.n):
        others = np.delete(np.arange(data.n), question)
        parts.append(missed(data, question, calibrate(data.take(others), alpha, levels, preset)))
    too_early, lost = np.mean(parts, axis=0)
    return float(too_early), float(lost)


def undefined(best: list[list[float]]) -> Sampled:
    """Questions whose samples never agree or differ: no threshold stops them."""
    gold = np.array(best)
    return Sampled(
        score=np.full(gold.shape, np.nan), best_gold=gold, draws=np.full(gold.shape, 0.5)
    )


_NONE = -math.inf


@example(
    data=undefined([*[[_NONE, _NONE]] * 4, [_NONE, 0.1], [_NONE, 0.2]]),
    alpha=Fraction(1, 2),
    levels=[Fraction(1, 2)],
)
@example(
    data=undefined([[_NONE, 0.1], *[[0.2, 0.2]] * 5]), alpha=Fraction(1, 5), levels=[Fraction(1)]
)
@settings(deadline=None, max_examples=examples(250))
@given(
    data=populations(),
    alpha=st.sampled_from(ALPHAS),
    levels=st.lists(st.sampled_from(LEVELS), min_size=3, max_size=3),
)
def test_corrected_spends_on_each_part_what_it_accounts_for(
    data: Sampled, alpha: Fraction, levels: list[Fraction]
) -> None:
    """Rounds spend sum alpha_t |U_t| / (n + 1), U_t taken in all n + 1; the answer set the rest.

    A level below one in |U_t| stops nobody and spends nothing.
    """
    chosen = tuple(levels[: data.rounds - 1])
    too_early, lost = left_out(data, alpha, chosen, "corrected")
    groups = (~data.answerable).sum(axis=0).tolist()
    budget = sum(
        (spent for a, u in zip(chosen, groups, strict=False) if (spent := a * u) >= 1), Fraction(0)
    ) / Fraction(data.n)
    assert too_early <= min(float(budget), float(alpha)) + 1e-12
    if budget <= alpha:
        assert lost <= float(alpha - budget) + 1e-12
    else:
        assert lost == 0.0  # overspent: the levels are scaled down and nothing is left


# --- replay and live ----------------------------------------------------------------------------
WORDS = ("Oslo", "oslo.", "the Oslo", "Bergen", "Rome", "no", "")


@st.composite
def recorded(draw: st.DrawFn) -> list[QuestionRecord]:
    """Questions with sampled answers; some end before the last round."""
    rounds, drawn = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    found = []
    for record in sampled_records(draw(st.integers(1, 8)), rounds=rounds, samples=drawn):
        made = []
        for _ in range(draw(st.integers(1, rounds))):
            samples = tuple(draw(st.sampled_from(WORDS)) for _ in range(drawn))
            made.append(Round(answer=samples[0], samples=samples))
        found.append(replace(record, rounds=tuple(made)))
    return found


@st.composite
def policies(draw: st.DrawFn) -> MiCPPolicy:
    """Thresholds that lie on scores which occur, with lots, in every setting."""
    rounds = draw(st.integers(2, 4))
    stop_on: StopOn = draw(st.sampled_from(["entropy", "top-confidence"]))
    occur = [0.0, 0.5, 1.0] if stop_on == "entropy" else [-1.0, -0.75, -0.5, -1 / 3, -0.25]
    value = st.sampled_from([-math.inf, 0.3, -0.3, *occur])
    threshold = st.builds(Threshold, value, st.sampled_from([0.0, 0.2, 0.5, 0.9]))
    return MiCPPolicy(
        alpha=0.1,
        rounds=rounds,
        samples=4,
        stops=tuple(draw(threshold) for _ in range(rounds - 1)),
        final=draw(st.sampled_from([-math.inf, 0.25, 0.5, 1.0])),
        stop_on=stop_on,
        penalty=draw(st.sampled_from([0.0, 0.1])),
        preset=draw(st.sampled_from(PRESETS)),
        seed=draw(st.integers(0, 3)),
    )


# --- answer sets --------------------------------------------------------------------------------
@settings(deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(records=recorded(), policy=policies())
def test_coverage_is_what_the_answer_sets_hold(
    records: list[QuestionRecord], policy: MiCPPolicy
) -> None:
    """DivisionScores on arrays, and by looking at every member of every set."""
    recorded_rounds = to_trace_set(records)
    data = read_samples(recorded_rounds, policy)
    fired = policy.fired(signal_table(recorded_rounds, policy.specs))
    found = evaluate_stops(data, fired, policy.final)
    for index, record in enumerate(records):
        stop = min(int(found.stop[index]), len(record.rounds))
        answers = policy.answer_set(record.rounds[:stop], stopped=bool(fired[index]))
        gold = record.gold.answers
        held = any(policy.match(each.answer, gold) for each in answers.answers)
        sampled = any(
            policy.match(sample, gold)
            for each in record.rounds[: policy.rounds]
            for sample in each.samples or ()
        )
        assert found.covered[index] == (held or (answers.cannot_answer and not sampled))
