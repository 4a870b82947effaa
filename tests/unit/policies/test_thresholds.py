"""Sweeps: templates, out-of-fold values against a plain loop, the choice of a threshold."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.errors import UsageError
from suffice.policies.fitting import base_rates_out_of_fold, fit_data, out_of_fold
from suffice.policies.thresholds import (
    ThresholdScore,
    cheapest_within_one_error,
    fill,
    open_rule,
    shortest_threshold,
)
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet

MARGIN = "answer_token_margin"


def uneven_traces(count: int = 23) -> TraceSet:
    generator = np.random.default_rng(5)
    records = [
        make_record(
            f"q{number:03d}",
            generator.choice(["right", "wrong", "other"], generator.integers(2, 5)).tolist(),
            gold=["right"],
            margins=generator.uniform(0, 3, 4).tolist(),
            split="tune",
        )
        for number in range(count)
    ]
    return to_trace_set(records)


def test_a_template_has_one_open_number() -> None:
    assert fill("overlap > ?", 0.25) == "overlap > 0.25"
    assert fill("overlap > ?", 3.0) == "overlap > 3"
    for template in ("overlap > 0.2", "overlap > ? or margin_min > ?"):
        with pytest.raises(UsageError, match="exactly one"):
            fill(template, 1.0)
    with pytest.raises(UsageError, match="finite"):
        fill("overlap > ?", math.nan)


def test_every_threshold_scores_what_a_loop_over_questions_scores() -> None:
    recorded = uneven_traces()
    data = fit_data(recorded, ["answer_stable", MARGIN])
    held_out = out_of_fold(data, MARGIN)
    rates = base_rates_out_of_fold(data)
    stable, exists = data.table.signal("answer_stable"), data.table.exists
    template = f"(answer_stable and calibrated({MARGIN}) > ?) or base_rate() > 0.4 and round >= 3"
    for score in open_rule(template, data).scores((0.1, 0.3, 0.6)):
        stops = []
        for question in range(recorded.n_questions):
            last = int(exists[question].sum())
            stop = last
            for t in range(last):
                sure = stable[question, t] == 1.0 and held_out[question, t] > score.threshold
                if sure or (rates[question, t] > 0.4 and t >= 2):
                    stop = t + 1
                    break
            stops.append(stop)
        assert score.stops.tolist() == stops
        f1 = [data.outcomes.f1[q, stop - 1] for q, stop in enumerate(stops)]
        assert score.score == pytest.approx(np.mean(f1))
        assert score.mean_rounds == pytest.approx(np.mean(stops))
        assert score.standard_error == pytest.approx(np.std(f1, ddof=1) / math.sqrt(len(f1)))


def scored(*rows: tuple[float, float, float]) -> tuple[ThresholdScore, ...]:
    return tuple(
        ThresholdScore(
            threshold=(20 + n) / 100,
            score=f1,
            standard_error=error,
            mean_rounds=rounds,
            stops=np.ones(1, np.int16),
        )
        for n, (f1, error, rounds) in enumerate(rows)
    )


def test_ties_go_to_the_better_then_to_the_lower_threshold() -> None:
    close = scored((0.60, 0.1, 2.5), (0.62, 0.1, 2.5), (0.61, 0.1, 2.5))
    assert cheapest_within_one_error(close).threshold == 0.21
    assert cheapest_within_one_error(scored((0.6, 0.0, 2.5), (0.6, 0.0, 2.5))).threshold == 0.2


# --- as short as can be --------------------------------------------------------------------------
COMPARISONS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
HUNDREDTHS = st.integers(-2_000, 2_000).map(lambda whole: whole / 100)
OBSERVED = st.lists(st.one_of(HUNDREDTHS, st.just(math.nan), st.just(math.inf)), max_size=8)


def written(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


# every number of so many decimals
WRITTEN = {
    decimals: np.arange(-25 * 10**decimals, 25 * 10**decimals + 1) / 10**decimals
    for decimals in range(3)
}


@given(
    threshold=st.one_of(HUNDREDTHS, st.floats(-20, 20)),
    values=OBSERVED,
    symbol=st.sampled_from(list(COMPARISONS)),
)
def test_nothing_shorter_decides_the_same(
    threshold: float, values: list[float], symbol: str
) -> None:
    short = shortest_threshold(threshold, values, symbol)
    compare = COMPARISONS[symbol]

    def sides(number: float) -> list[bool]:
        return [bool(compare(value, number)) for value in values]

    assert sides(short) == sides(threshold)
    assert shortest_threshold(threshold, values[::-1], symbol) == short
    own = len(written(short).partition(".")[2])
    for decimals, numbers in WRITTEN.items():
        if decimals > own:
            continue
        same = [number for number in numbers.tolist() if sides(number) == sides(threshold)]
        if decimals < own:
            assert not same
        else:
            nearest = min(abs(number - threshold) for number in same)
            assert abs(short - threshold) == pytest.approx(nearest, abs=1e-12)


@pytest.mark.parametrize(
    "template",
    [
        f"answer_stable and calibrated({MARGIN}) > ?",
        f"? < calibrated({MARGIN})",
        f"not ({MARGIN} <= ?) or round == 3",
        f"at_least(2, answer_stable, {MARGIN} >= ?, base_rate() > 0.4)",
        "answer_stable and base_rate() > ?",
    ],
)
def test_a_shortened_rule_fires_where_it_did(template: str) -> None:
    rule = open_rule(template, fit_data(uneven_traces(), ["answer_stable", MARGIN]))
    shorter = 0
    for threshold in np.random.default_rng(2).uniform(0.05, 0.95, 40).tolist():
        short = rule.shortest(threshold)
        before, after = rule.scores((threshold, short))
        assert after.stops.tolist() == before.stops.tolist()
        shorter += len(repr(short)) < len(repr(threshold))
    assert shorter == 40


def test_what_no_value_is_compared_with_stays() -> None:
    rule = open_rule("round >= ?", fit_data(uneven_traces(), []))
    assert rule.shortest(2.5) == 2.5
