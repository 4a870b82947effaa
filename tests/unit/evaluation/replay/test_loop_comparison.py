"""Two loops on the same questions: paired differences, what is left out, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.builders import written_traces
from tests.commands import run, run_json

from suffice.errors import UsageError
from suffice.evaluation.replay.loop_comparison import LoopComparison, compare_loops
from suffice.evaluation.settings import ScoredSettings
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round, Usage
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin

SETTINGS = ScoredSettings(metric="em")


def record(
    right: list[int], rounds: int, *, first: int = 0, calls: int = 1
) -> list[QuestionRecord]:
    """Questions from number ``first`` on, right or wrong in their last round."""
    return [
        QuestionRecord(
            question=Question(id=f"q{number:03}", text=f"Where is {number}?"),
            gold=Gold(answers=("Oslo",)),
            rounds=tuple(
                Round(
                    answer="Oslo" if held and number_of == rounds else "Bergen",
                    usage=Usage(llm_calls=calls, answer_calls=0, prompt_tokens=100 * calls),
                )
                for number_of in range(1, rounds + 1)
            ),
        )
        for number, held in enumerate(right, start=first)
    ]


def compared(first: list[QuestionRecord], second: list[QuestionRecord]) -> LoopComparison:
    return compare_loops(to_trace_set(first), to_trace_set(second), SETTINGS)


def test_differences_are_those_of_the_same_questions() -> None:
    generator = np.random.default_rng(1)
    one, other = generator.integers(0, 2, (2, 60)).tolist()
    found = compared(record(one, 2), record(other, 4, calls=2))
    assert found.questions == 60
    assert (found.score.first, found.score.second) == (np.mean(one), np.mean(other))
    assert found.score.difference.estimate == pytest.approx(np.mean(other) - np.mean(one))
    # of pairs, not of two samples: about the width of the normal interval of paired differences
    spread = np.std(np.subtract(other, one)) / np.sqrt(60)
    width = found.score.difference.high - found.score.difference.low
    assert width == pytest.approx(2 * 1.96 * spread, rel=0.1)
    costs = {cost.name: (cost.first, cost.second) for cost in found.costs}
    assert costs["rounds"] == (2, 4)
    assert costs["llm_calls"] == (2, 8)
    assert costs["prompt_tokens"] == (200, 800)
    assert "usd" not in costs


def test_the_order_of_a_record_does_not_matter() -> None:
    one, other = record([1, 0, 1, 1], 2), record([0, 0, 1, 0], 2)
    assert compared(one, other[::-1]) == compared(one, other)


def test_what_only_one_record_holds_is_left_out() -> None:
    found = compared(record([1] * 6, 2), record([0] * 6, 2, first=2))
    assert (found.questions, found.left_out) == (4, (2, 2))
    assert found.score.difference.estimate == -1.0


def test_how_the_runs_differ_is_told() -> None:
    def told(**run_document: object) -> TraceSet:
        traces = to_trace_set(record([1, 0], 2))
        stated = {"model": "m", "version": "1", **run_document}
        return replace(traces, origin=TraceSetOrigin(source="memory", run=stated))

    found = compare_loops(told(), told(budget_note=True, version="2"), SETTINGS)
    assert found.differs == {"budget_note": (None, True)}


def test_loops_without_a_common_question_are_refused() -> None:
    with pytest.raises(UsageError, match="share no question"):
        compared(record([1, 0], 2), record([1, 0], 2, first=9))


def test_questions_with_other_gold_answers_are_refused() -> None:
    other = record([1, 0], 2)
    other[1] = replace(other[1], gold=Gold(answers=("Bergen",)))
    with pytest.raises(UsageError, match="q001"):
        compared(record([1, 0], 2), other)


def test_the_command(tmp_path: Path) -> None:
    first = written_traces(tmp_path / "first", record([1, 0, 0, 1], 2))
    second = written_traces(tmp_path / "second", record([1, 1, 0, 1], 3))
    document = run_json("compare-loops", first, second, "--metric", "em", "--json")
    assert document["questions"] == 4
    assert document["score"]["difference"]["estimate"] == 0.25
    assert run("compare-loops", first, second).returncode == 0
    assert run("compare-loops", first).returncode == 2


def test_forty_questions_without_a_change_leave_an_interval(tmp_path: Path) -> None:
    """Nothing changed in any of 40, so up to 8.8 points may: everywhere, and not if a paper is reproduced."""
    records = [
        make_record(f"q{n:02}", ["x", "x"], gold=["x" if n < 36 else "y"]) for n in range(40)
    ]
    first = written_traces(tmp_path / "first", records)
    exact = pytest.approx(1.0 - 0.025 ** (1 / 40))
    compared_loops = run_json("compare-loops", first, first, "--metric", "em")
    assert compared_loops["score"]["difference"]["high"] == exact
    command = (
        "replay",
        first,
        "--policy",
        "fixed-1",
        "--policy",
        "fixed-2",
        "--baseline",
        "fixed-2",
    )
    one, full = run_json(*command, "--metric", "em")["policies"]
    assert (one["delta_em"]["estimate"], one["delta_em"]["high"]) == (0.0, exact)
    assert (one["delta_full"]["high"], one["em_interval"]["low"]) == (
        exact,
        pytest.approx(0.763, abs=1e-3),
    )
    assert full["delta_full"]["high"] == 0.0  # the full budget is itself
    published, _ = run_json(*command, "--metric", "em", "--charge", "published")["policies"]
    assert published["delta_em"]["high"] == 0.0
