"""What policies are compared with: the closed book, which is round 0, and oracles by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import suffice
from suffice.errors import UsageError
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.replay.named_policies import closed_book_rounds, oracle_em, oracle_f1
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.scores import Outcomes
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.parquet import write_table
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Round, Usage
from suffice.trace.rounds.schema import records_to_table
from suffice.trace.rounds.trace_set import TraceSet, with_column

CLOSED = Usage(
    llm_calls=1,
    judge_calls=0,
    prompt_tokens=30,
    cached_tokens=10,
    completion_tokens=5,
    retrievals=0,
)


def remembered_record(
    name: str, memory: str | None, split: str = "eval", usage: Usage = CLOSED
) -> QuestionRecord:
    closed = None if memory is None else Round(answer=memory, passages=(), usage=usage)
    return make_record(name, ["x", "y", "Oslo"], gold=["Oslo"], split=split, closed_book=closed)


def compared(found: TraceSet, *names: str, **settings: Any) -> Comparison:
    return compare(found, ComparisonSettings(policies=names, resamples=50, **settings))


def test_it_is_scored_by_its_own_answers_and_pays_its_own_call() -> None:
    found = to_trace_set(
        [
            remembered_record("a", "oslo."),
            remembered_record("b", "Oslo town"),
            remembered_record("c", ""),
        ]
    )
    result = compared(found, "closed-book", "fixed-1").result
    closed, fixed = (each.to_json(result.question_ids) for each in result.policies[:2])
    assert (closed["name"], closed["kind"], closed["preset"]) == (
        "closed-book",
        "closed-book",
        None,
    )
    # one exact match; token F1 of "oslo town" against "oslo" is 2/3
    assert closed["em"] == pytest.approx(1 / 3)
    assert closed["f1"] == pytest.approx((1 + 2 / 3) / 3)
    assert closed["acc"] == pytest.approx(2 / 3)
    assert (closed["mean_rounds"], closed["stop_rounds"]) == (0.0, {"0": 3})
    assert closed["rounds"] == {"a": 0, "b": 0, "c": 0}
    assert (closed["beyond_record"], closed["p95_rounds"]) == (0, 0.0)
    assert (closed["llm_calls"], closed["prompt_tokens"], closed["retrievals"]) == (1.0, 30.0, 0.0)
    assert (closed["cached_tokens"], closed["passages"]) == (10.0, 0.0)
    assert (fixed["em"], fixed["stop_rounds"]) == (0.0, {"1": 3})
    baseline = result.policies[2]
    assert baseline.name == "fixed-3"
    assert closed["delta_f1"]["estimate"] == pytest.approx((1 + 2 / 3) / 3 - 1)


def test_other_policies_do_not_see_round_0() -> None:
    with_it = to_trace_set([remembered_record("a", "Oslo"), remembered_record("b", "Oslo")])
    without = to_trace_set([remembered_record("a", None), remembered_record("b", None)])
    names = ("fixed-1", "oracle-em", "oracle-f1")
    rules = ("answer_stable", "round >= 2")
    for one, two in zip(
        compared(with_it, *names, rules=rules).result.policies,
        compared(without, *names, rules=rules).result.policies,
        strict=True,
    ):
        assert one.to_json() == two.to_json()
    assert with_it.n_rounds == without.n_rounds == 3


def test_a_question_without_round_0_is_named_with_how_to_record_it() -> None:
    found = to_trace_set(
        [remembered_record("a", "Oslo"), remembered_record("b", None), remembered_record("c", None)]
    )
    with pytest.raises(UsageError, match=r"2 of 3 questions.*'b'.*suffice record .* --closed-book"):
        compared(found, "closed-book")


def test_a_cost_that_round_0_lacks_is_unknown() -> None:
    found = to_trace_set(
        [remembered_record("a", "Oslo"), remembered_record("b", "x", usage=Usage())]
    )
    closed = compared(found, "closed-book", cost="rounds").result.policies[0]
    assert (closed.em, closed.costs["llm_calls"]) == (0.5, None)


def test_gold_is_that_of_the_question_whatever_row_0_says(tmp_path: Path) -> None:
    table = records_to_table([remembered_record("a", "Oslo")])
    rows = table.to_pylist()
    assert rows[0]["round"] == 0
    rows[0]["gold_answers"] = None
    write_table(type(table).from_pylist(rows, schema=table.schema), tmp_path / "t.parquet")
    found = read_traces(tmp_path / "t.parquet")
    assert closed_book_rounds(found).traces.gold == found.gold
    assert compared(found, "closed-book").result.policies[0].em == 1.0


NAN = math.nan
F1 = np.array(
    [
        [0.0, 1.0, 1.0],  # right from round 2 on
        [1.0, 0.0, 0.5],  # right at once, then lost
        [0.2, 0.6, 0.6],  # never right, best at 2
        [0.0, 0.0, 0.0],  # hopeless
        [0.0, 0.4, NAN],  # ends after round 2, best there
        [NAN, NAN, NAN],  # unlabelled
    ]
)
EM = np.where(np.isnan(F1), NAN, F1 == 1.0)
SCORED = Outcomes(em=EM, f1=F1, acc=EM, labelled=np.array([True] * 5 + [False]))
LAST = np.array([3, 3, 3, 3, 2, 3], np.int16)


def test_oracle_em_takes_the_earliest_match_else_the_last_round() -> None:
    assert oracle_em(SCORED, LAST).tolist() == [2, 1, 3, 3, 2, 3]


def test_oracle_f1_takes_the_first_best_round() -> None:
    assert oracle_f1(SCORED, LAST).tolist() == [2, 1, 2, 1, 2, 3]


def test_own_scores_have_an_oracle_of_their_own() -> None:
    made = [make_record(f"q{number}", ["x", "y", "z"], gold=["Oslo"]) for number in range(3)]
    traces = to_trace_set(made)
    scores = [0.2, 0.9, 0.4, 1.0, 0.0, 0.5, 0.0, 0.0, 0.0]
    traces = replace(traces, table=with_column(traces.table, "score", scores))
    replayed = suffice.replay(traces, metric="score", split="all")
    oracles = {policy.name: policy for policy in replayed.policies if policy.kind == "oracle"}
    assert [*oracles] == ["oracle-score"]
    assert oracles["oracle-score"].mean_rounds == pytest.approx(4 / 3)
    with pytest.raises(UsageError, match="gold"):
        suffice.replay(traces, ["oracle-f1"], metric="score", split="all")
    with pytest.raises(UsageError, match="score"):
        suffice.replay(traces, ["oracle-score"], metric="f1", split="all")
