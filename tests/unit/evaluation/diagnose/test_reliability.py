"""Reliability buckets and their intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.evaluation.diagnose.reliability import buckets, reliability, wilson
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import signal_table
from suffice.stats.maps import IsotonicMap, PerRoundCalibrator
from suffice.testing.traces import make_record, to_trace_set


def test_wilson_against_scipy_and_at_the_ends() -> None:
    stats = pytest.importorskip("scipy.stats")
    for successes, count in [(0, 1), (0, 7), (3, 7), (7, 7), (50, 200), (1, 1)]:
        expected = stats.binomtest(successes, count).proportion_ci(0.95, method="wilson")
        assert wilson(successes, count) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert wilson(0, 0) == (0.0, 1.0)


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
        assert (each.low, each.high) == pytest.approx(wilson(right[own].sum(), each.count))
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
