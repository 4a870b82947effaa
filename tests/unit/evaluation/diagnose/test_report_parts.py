"""Parts are there where the record allows them; where not, the reason is, and nothing fails."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.builders import drawn_records, eval_and_tune

from suffice.errors import UsageError
from suffice.evaluation.diagnose.report_data import PARTS, PartsSettings, report_parts
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet


def oslo_records(*, split: bool = True, margins: bool = True) -> list[QuestionRecord]:
    return drawn_records(
        40,
        ["Oslo", "Rome"],
        seed=3,
        widest=1.0 if margins else None,
        split=eval_and_tune if split else lambda _: None,
    )


def compared(traces: TraceSet, *names: str, baseline: str | None = None) -> Comparison:
    return compare(traces, ComparisonSettings(policies=names, resamples=20, baseline=baseline))


@pytest.mark.parametrize(
    ("split", "margins", "why"), [(False, True, "tune"), (True, False, "column tokens")]
)
def test_without_splits_or_margins_the_reason_is_given(
    split: bool, margins: bool, why: str
) -> None:
    traces = to_trace_set(oslo_records(split=split, margins=margins))
    found = report_parts(traces, compared(traces, "fixed-1"))
    assert (found["calibrators"], found["selective"]) == (None, ())
    assert why in found.left_out["calibrators"]
    assert "\n" not in found.left_out["calibrators"]
    assert found["diagnostics"] is not None


def test_only_the_parts_asked_for() -> None:
    traces = to_trace_set(oslo_records())
    found = report_parts(traces, compared(traces, "fixed-1"), PartsSettings(parts=("costs",)))
    assert found["costs"]
    assert (found["diagnostics"], found.left_out) == (None, {})
    with pytest.raises(UsageError, match="'cost'"):
        PartsSettings(parts=("cost",))
    assert PartsSettings().parts == PARTS


def with_round_zero(each: QuestionRecord) -> QuestionRecord:
    number = int(each.question.id[1:])
    closed = replace(each.rounds[0], answer="Oslo" if number % 4 else "Rome", passages=None)
    return replace(each, closed_book=closed)


def test_closed_book_has_no_scores_of_a_round() -> None:
    made = [
        with_round_zero(replace(each, question=replace(each.question, type="bridge")))
        for each in oslo_records()
    ]
    traces = to_trace_set(made)
    found = report_parts(traces, compared(traces, "closed-book", "fixed-1"))
    assert [each["policy"] for each in found["types"][0]["policies"]] == ["fixed-1", "fixed-3"]
    against = compared(traces, "fixed-1", baseline="closed-book")
    left_out = report_parts(traces, against).left_out
    assert "'closed-book'" in left_out["question types"]
