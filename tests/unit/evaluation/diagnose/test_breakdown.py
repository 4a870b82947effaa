"""Scores by question type add up and compare within the type."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suffice.evaluation.diagnose.diagnosis import breakdown
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.testing.traces import make_record, to_trace_set

KINDS = ("comparison", "bridge", None)


def comparison() -> Comparison:
    rng = np.random.default_rng(2)
    made = []
    for number in range(48):
        answers = [str(rng.choice(["Oslo", "Rome", "Oslo city"])) for _ in range(3)]
        record = make_record(f"q{number:02d}", answers, gold=["Oslo"] if number % 8 else [])
        kind = KINDS[0] if number < 30 else KINDS[1] if number < 40 else KINDS[2]
        made.append(replace(record, question=replace(record.question, type=kind)))
    settings = ComparisonSettings(
        policies=("fixed-1", "oracle-em", "fixed-3"), rules=("answer_stable",), resamples=200
    )
    return compare(to_trace_set(made), settings)


def test_each_type_is_a_replay_of_its_own() -> None:
    found = comparison()
    scored = found.measures.scores()
    by_type = breakdown(found.traces, found.result)
    assert [each["type"] for each in by_type] == ["bridge", "comparison", None]
    assert [each["questions"] for each in by_type] == [10, 30, 8]
    assert [each["labelled"] for each in by_type] == [9, 26, 7]
    assert [each["few"] for each in by_type] == [True, False, True]
    for each in by_type:
        rows = np.array([question.type == each["type"] for question in found.traces.questions])
        labelled = rows & scored.labelled
        base = found.result.policies[2]
        assert base.name == found.result.baseline == "fixed-3"
        base_f1 = scored.f1[np.arange(48), base.stops - 1][labelled]
        n = int(labelled.sum())
        drawn = np.random.default_rng(42).integers(0, n, size=(200, n))
        for policy, part in zip(found.result.policies, each["policies"], strict=True):
            assert part["policy"] == policy.name
            f1 = scored.f1[np.arange(48), policy.stops - 1][labelled]
            assert part["f1"] == pytest.approx(f1.mean())
            assert part["mean_rounds"] == pytest.approx(policy.stops[rows].mean())
            assert part["delta_f1"] is not None
            difference = f1 - base_f1
            assert part["delta_f1"].estimate == pytest.approx(difference.mean())
            slow = np.percentile([difference[row].mean() for row in drawn], [2.5, 97.5])
            assert (part["delta_f1"].low, part["delta_f1"].high) == pytest.approx(tuple(slow))
    # the types add up to the whole
    for number, policy in enumerate(found.result.policies):
        total = sum((each["policies"][number]["em"] or 0.0) * each["labelled"] for each in by_type)
        assert total / 42 == pytest.approx(policy.em)
