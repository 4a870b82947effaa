"""Paired differences and the best fixed budget of Stop-RAG's evaluation."""

from __future__ import annotations

import numpy as np
import pytest
from studies.stop_rag.study import best_fixed, contrasts

from suffice.errors import UsageError
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord


def test_more_differences_at_once_need_wider_intervals() -> None:
    rng = np.random.default_rng(0)
    f1 = {name: rng.random(80) for name in "abcdef"}
    alone, one = contrasts(f1, [("a", "b")], resamples=400, seed=1)
    many, more = contrasts(f1, [("a", against) for against in "bcdef"], resamples=400, seed=1)
    assert more > one > 1.5
    both = [
        (difference.interval.low, difference.interval.high) for difference in (many[0], alone[0])
    ]
    assert both[0] == pytest.approx(both[1])
    assert many[0].at_once.low < alone[0].at_once.low


def answered(name: str, answers: list[str], split: str, gold: str = "Oslo") -> QuestionRecord:
    return make_record(name, answers, gold=[gold] if gold else [], split=split)


def test_the_best_fixed_budget_is_chosen_where_policies_are_fitted() -> None:
    tune = to_trace_set([answered("a", ["Rome", "Oslo", "Rome"], "tune")])
    other = to_trace_set([answered("b", ["Rome", "Rome", "Oslo"], "validation")] * 1)
    assert best_fixed([tune], "squad", 3) == 2
    assert best_fixed([tune, other], "squad", 3) == 2  # of equal ones the fewest
    assert best_fixed([tune, other, other], "squad", 3) == 3
    assert best_fixed([other], "squad", 2) == 1  # nothing right within two rounds


def test_short_and_unlabelled_questions_when_the_best_is_chosen() -> None:
    short = answered("a", ["Oslo"], "tune")
    late = answered("b", ["Rome", "Rome", "Oslo"], "tune")
    unlabelled = answered("c", ["Oslo", "Rome", "Rome"], "tune", gold="")
    assert best_fixed([to_trace_set([short, late, unlabelled])], "squad", 3) == 3
    with pytest.raises(UsageError, match="no question that is fitted on has gold answers"):
        best_fixed([to_trace_set([unlabelled])], "squad", 3)
