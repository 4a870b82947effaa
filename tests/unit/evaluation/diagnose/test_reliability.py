"""Reliability buckets and their intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.evaluation.diagnose.reliability import buckets, reliability
from suffice.evaluation.diagnose.signal_checks import Rows, figures_of, separations
from suffice.evaluation.diagnose.signal_diagnostics import calibrated_margins
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import signal_table
from suffice.stats.maps import IsotonicMap, PerRoundCalibrator
from suffice.stats.p_values import rate_interval
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet


def test_intervals_of_rates_against_scipy_and_at_the_ends() -> None:
    stats = pytest.importorskip("scipy.stats")
    for successes, count in [(0, 1), (0, 7), (3, 7), (7, 7), (50, 200), (1, 1)]:
        expected = stats.binomtest(successes, count).proportion_ci(0.95, method="exact")
        found = rate_interval(successes, count)
        assert found == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert rate_interval(0, 0) == (0.0, 1.0)


@given(
    values=st.lists(st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9]), min_size=1, max_size=60),
    count=st.integers(1, 8),
)
def test_buckets_partition_and_never_split_ties(values: list[float], count: int) -> None:
    predicted = np.array(values)
    right = (np.arange(len(values)) % 3 == 0).astype(float)
    found = buckets(predicted, right, count=count)
    assert sum(each.count for each in found) == len(values)
    assert len(found) <= count
    start = 0
    order = np.argsort(predicted, kind="stable")
    previous = -1.0
    for each in found:
        own = order[start : start + each.count]
        assert each.predicted == pytest.approx(predicted[own].mean())
        assert each.right == pytest.approx(right[own].mean())
        assert (each.low, each.high) == pytest.approx(rate_interval(right[own].sum(), each.count))
        assert predicted[own].min() > previous
        previous = predicted[own].max()
        start += each.count


def test_reliability_by_round_counts_the_undefined() -> None:
    made = [
        make_record("a", ["x", "y"], gold=["x"], margins=[1.0, 1.0]),
        make_record("b", ["y", "x"], gold=["x"]),
        make_record("c", ["x"], gold=["x"], margins=[3.0]),
        make_record("d", ["x", "x"], margins=[2.0, 2.0]),
    ]
    traces = to_trace_set(made)
    shown = IsotonicMap(x=(0.0, 4.0), y=(0.0, 1.0))
    policy = Rule(
        rule="calibrated(answer_token_margin) > 0.5",
        calibrators={"answer_token_margin": PerRoundCalibrator(maps=(shown,))},
    )
    table = signal_table(traces, policy.specs)
    first, second = reliability(policy, table, Measures(traces).scores())
    assert (first.round, first.signal, first.undefined) == (1, "answer_token_margin", 1)
    assert [each.predicted for each in first.buckets] == pytest.approx([0.25, 0.75])
    assert [each.right for each in first.buckets] == [1.0, 1.0]
    assert (second.round, second.buckets, second.undefined) == (2, (), 2)


MARGIN = "answer_token_margin"


def recorded(n_questions: int = 24, *, splits: bool = True) -> TraceSet:
    """Answers that turn right in the second or third round, surer when they are."""
    rng = np.random.default_rng(11)
    made = []
    for number in range(n_questions):
        answers = ["Rome", "Rome" if number % 3 else "Oslo", "Oslo" if number % 2 else "Rome"]
        made.append(
            make_record(
                f"q{number:02d}",
                answers,
                gold=["Oslo"],
                margins=[float(rng.random()) + (answer == "Oslo") for answer in answers],
                split=("tune" if number % 2 else "eval") if splits else None,
            )
        )
    return to_trace_set(made)


def test_margins_are_calibrated_on_tune_and_there_out_of_fold() -> None:
    measures = Measures(recorded())
    found, why = calibrated_margins(measures, "tune")
    assert why is None
    data = fit_data(measures, (MARGIN,))
    tune = np.array([question.split == "tune" for question in measures.traces.questions])
    margins = measures.signals((MARGIN,)).signal(MARGIN)
    np.testing.assert_array_equal(found[tune], out_of_fold(data, MARGIN))
    np.testing.assert_array_equal(
        found[~tune], fit_calibrator(data, MARGIN).predict_rounds(margins[~tune])
    )


def test_d_by_hand() -> None:
    """Right 4, 8: mean 6, SD 2 sqrt 2. Wrong 1, 3: mean 2, SD sqrt 2. d = 4 / (1.5 sqrt 2)."""
    values = np.array([1.0, 4.0, 3.0, 8.0])
    right = np.array([False, True, False, True])
    # a shift and a scale change nothing
    for of, sign in ((values, 1), (-values, -1), (7 * values - 3, 1)):
        found = figures_of(Rows(values=of, right=right, questions=np.arange(4)))[0]
        assert found == pytest.approx(sign * 4 / (1.5 * math.sqrt(2)))


@pytest.mark.parametrize(
    ("values", "right", "why_area", "why_d"),
    [
        ([], [], "defined in no labeled round", None),
        ([1.0, 2.0], [True, True], "no wrong answer among these rounds", None),
        ([1.0, 2.0], [False, False], "no right answer among these rounds", None),
        ([3.0, 3.0], [True, False], "the signal is 3 in all of these rounds", None),
        ([1.0, 2.0], [True, False], None, "fewer than two rounds"),
        ([1.0, 1.0, 2.0, 2.0], [True, True, False, False], None, "varies neither"),
        ([1.0, math.inf, 2.0, 3.0], [True, True, False, False], None, "infinite"),
    ],
)
def test_undefined_says_why(
    values: list[float], right: list[bool], why_area: str | None, why_d: str | None
) -> None:
    given = Rows(
        values=np.array(values), right=np.array(right, bool), questions=np.arange(len(values))
    )
    ((found, _),) = separations([given], max(1, len(values)), resamples=20, seed=0)
    if why_area is not None:
        assert found["auroc"].estimate is None
        assert found["auroc"].reason == found["d"].reason == found["d_signed"].reason == why_area
    else:
        assert found["auroc"].estimate is not None
    if why_d is not None:
        assert found["d"].estimate is None
        assert why_d in (found["d"].reason or "")
