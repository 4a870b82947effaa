from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from suffice.policies.stop_rag.states import read_rewards
from suffice.policies.stop_rag.targets import choose_threshold
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet, with_column


def sampled_record(
    name: str, samples: Sequence[Sequence[str] | None], gold: Sequence[str] = ("yes",)
) -> QuestionRecord:
    return make_record(name, ["yes"] * len(samples), gold=gold, samples=samples)


def trace_set(*records: QuestionRecord) -> TraceSet:
    return to_trace_set(records)


def test_who_is_left_out_is_said() -> None:
    found = read_rewards(
        trace_set(
            sampled_record("a", [["yes"], ["no"]]),
            sampled_record("b", [["yes"], None, []]),
            sampled_record("c", [["yes"]], gold=()),
            sampled_record("d", [None], gold=()),
            sampled_record("e", [[], ["yes"]]),
        ),
        "em",
    )
    assert found.usable.tolist() == [True, False, False, False, False]
    np.testing.assert_array_equal(found.values[0], [1.0, 0.0, np.nan])
    np.testing.assert_array_equal(found.values[1], [1.0, np.nan, np.nan])
    assert np.isnan(found.values[2:4]).all()
    np.testing.assert_array_equal(found.values[4], [np.nan, 1.0, np.nan])
    assert found.notes == (
        "2 of 5 questions are left out for want of gold answers",
        "2 of 5 questions are left out for a round without samples, the first 'b' in round 2: "
        "record with suffice record --samples 8",
    )


def test_a_null_sample_is_an_empty_one() -> None:
    made = trace_set(sampled_record("a", [["", "yes"]]), sampled_record("b", [["yes"]]))
    made = replace(made, table=with_column(made.table, "samples", [[None, "yes"], ["yes"]]))
    assert read_rewards(made, "em").values.tolist() == [[0.5], [1.0]]


def test_rows_of_a_slice_keep_their_samples() -> None:
    whole = trace_set(
        sampled_record("a", [["no"], ["yes"]]),
        sampled_record("b", [["yes", "no"]]),
        sampled_record("c", [["yes"]]),
    )
    part = whole.take(np.array([False, True, True]))
    assert read_rewards(part, "em").values.tolist() == [[0.5], [1.0]]
    sliced = replace(whole, table=whole.table.slice(2))
    assert read_rewards(sliced, "em").values.tolist() == [[0.5], [1.0]]


def test_equal_means_are_equal_whatever_floats_say() -> None:
    """0.3 + 0 at once and 0.1 + 0.2 later, which is more in floats, exactly added or not."""
    assert math.fsum([0.1, 0.2]) > 0.3
    rewards = [[0.3, 0.1], [0.0, 0.2]]
    found = choose_threshold([[0.5, 0.0]] * 2, rewards, [2, 2], ends=True)
    assert (found.threshold, found.mean_rounds) == (-0.5, 1.0)
    # a difference that means something is none of these
    rewards[1][1] += 1e-9
    found = choose_threshold([[0.5, 0.0]] * 2, rewards, [2, 2], ends=True)
    assert (found.threshold, found.mean_rounds) == (1.5, 2.0)


@pytest.mark.parametrize(("at_once", "later"), [(1.0, 0.5), (0.0, 1.0)])
def test_totals_of_many_questions_do_not_overflow(at_once: float, later: float) -> None:
    n = 1000
    differences = np.tile([[0.5, 0.0]], (n, 1))
    differences[-1] = 0.25
    rewards = np.tile([[at_once, later]], (n, 1))
    found = choose_threshold(differences, rewards, np.full(n, 2), ends=True)
    assert (found.score, found.mean_rounds) == (1.0, 1.0 + (later > at_once))
