"""What is read of a question: the stop that a record tells or replay finds, and what each end returned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from suffice import Gold, Question, QuestionRecord, Round, Usage
from suffice.monitor.questions import STOP_ROUND, Asked, Reading
from suffice.policies.policy_file import policy_hash
from suffice.policies.rules.policy import Rule
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import POLICY_STOP, StoppedBy
from suffice.trace.rounds.writer import write_traces

POLICY = Rule(rule="sure > 0.5", own_signals=("sure",))
OURS = policy_hash(POLICY)


def record(
    sure: Sequence[float],
    *,
    ended: StoppedBy | None = None,
    by: str | None = OURS,
    said: int | None = None,
    name: str = "q",
) -> QuestionRecord:
    """A question whose round t answers "t"; the policy is told to have said stop in round ``said``."""
    rounds = []
    for number, value in enumerate(sure, start=1):
        told = {} if said is None else {POLICY_STOP: float(number >= said > 0)}
        rounds.append(Round(answer=str(number), signals={"sure": value} | told))
    return QuestionRecord(
        question=Question(id=name, text="?"),
        gold=Gold(answers=("1",)),
        rounds=tuple(rounds),
        propensity=0.25,
        stopped_by=ended,
        policy_hash=by,
    )


def read(place: Path, *records: QuestionRecord, budget: int | None = 3) -> list[Asked]:
    write_traces(records, place / "t.parquet", run={"rounds": budget})
    return list(Reading(POLICY).questions(read_traces(place / "t.parquet")))


@pytest.mark.parametrize(
    ("one", "stop", "early", "explored", "cut"),
    [
        (record([0.1, 0.9], ended="policy", said=2), 2, True, False, False),
        (record([0.1, 0.2, 0.9], ended="policy", said=3), 3, False, False, False),
        (record([0.9, 0.1, 0.1], said=1), 1, True, True, False),
        (record([0.1, 0.1, 0.1], said=0), 3, False, False, False),
        (record([0.1, 0.1], ended="error", said=0), None, False, False, True),
        (record([0.1, 0.9, 0.1], ended=None, by=None), 2, True, True, False),
        (record([0.1, 0.1], ended="budget", by=None), None, False, False, True),
        (record([0.9, 0.1], ended="error", said=1), 1, True, True, True),
        (record([0.1, 0.1, 0.1, 0.9, 0.1], by=None), 3, False, False, False),
        (record([0.9], ended="end", said=1), 1, True, True, False),
        (record([0.9], ended="policy", said=1), 1, True, False, False),
        (record([0.9], ended="error", said=1), 1, True, True, True),
        (record([0.9], ended="budget", said=1), 1, True, True, True),
        (record([0.9], ended="user", said=1), 1, True, True, True),
        (record([0.9], ended="end", by=None), 1, True, True, False),
        (record([0.1], ended="end", said=0), 1, False, False, False),
        (record([0.1, 0.1, 0.9], said=3), 3, False, False, False),
        (record([0.1, 0.1, 0.9], by=None), 3, False, False, False),
        (record([0.9, 0.1, 0.1], ended="policy", said=1), 1, True, False, False),
    ],
)
def test_where_the_policy_stops_a_question(
    one: QuestionRecord, stop: int | None, early: bool, explored: bool, cut: bool, tmp_path: Path
) -> None:
    (asked,) = read(tmp_path, one)
    assert (asked.stop, asked.early, asked.explored, asked.cut) == (stop, early, explored, cut)
    rounds = min(len(one.rounds), 3)
    assert (asked.rounds, asked.budget) == (rounds, 3)
    assert asked.at_stop.answer == str(stop or rounds)
    assert asked.at_end.answer == str(rounds)
    assert asked.values["sure in round 1"] == one.rounds[0].signals["sure"]
    at_stop = asked.values[STOP_ROUND]
    assert math.isnan(at_stop) if stop is None else at_stop == stop


@pytest.mark.parametrize("ended", ["policy", None])
def test_in_a_budget_of_one_round_nothing_is_early(ended: StoppedBy | None, tmp_path: Path) -> None:
    (asked,) = read(tmp_path, record([0.9], ended=ended, said=1), budget=1)
    assert (asked.stop, asked.early, asked.explored) == (1, False, False)


def test_questions_of_other_policies_are_passed_over_and_old_records_read(tmp_path: Path) -> None:
    others = record([0.9], by="another", ended="policy", name="a")
    (asked,) = read(tmp_path, others, record([0.1, 0.1, 0.9], by=None, name="b"))
    assert (asked.id, asked.propensity) == ("b", 0.25)
    whole = read_traces(tmp_path / "t.parquet")
    kept = ["question_id", "round", "question", "answer", "signals"]
    lacking = replace(whole, table=whole.table.select(kept))
    assert [one.id for one in Reading(POLICY).questions(lacking)] == ["a", "b"]


def test_the_answer_that_a_policy_chooses_is_the_one_returned(tmp_path: Path) -> None:
    chosen = Rule(rule="round >= 3", own_signals=("sure",), answer="highest:sure")
    write_traces([record([0.4, 0.9, 0.2, 0.1], by=None)], tmp_path / "t.parquet")
    (asked,) = Reading(chosen).questions(read_traces(tmp_path / "t.parquet"))
    assert (asked.stop, asked.at_stop.answer, asked.at_end.answer) == (3, "2", "2")


def test_of_a_loop_that_answers_at_its_end_only_the_saved_rounds_are_known(tmp_path: Path) -> None:
    """Stopped sooner it would have paid for an answer, too; all calls were said to be saved."""
    searched = [
        Round(answer=None, signals={"sure": 0.9}, usage=Usage(llm_calls=0)) for _ in range(3)
    ]
    answer = Usage(llm_calls=1, prompt_tokens=9)
    asked = {}
    for name, rounds in {
        "at the end": [*searched[:2], replace(searched[2], answer="3", usage=answer)],
        "in each": [replace(one, answer="3", usage=answer) for one in searched],
    }.items():
        one = replace(record([0.9] * 3, said=1), rounds=tuple(rounds))
        (asked[name],) = read(tmp_path, one)
    assert asked["at the end"].saved == {"rounds": pytest.approx(2 / 3)}
    assert asked["in each"].saved["llm_calls"] == pytest.approx(2 / 3)
