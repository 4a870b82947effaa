"""A judge asked about a whole record: order, failures, giving up, interrupts."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import numpy as np
import pytest

from suffice.contracts import Generation, GenerationRequest
from suffice.errors import BackendError
from suffice.signals.asking.judge_support import JUDGING, Rating, usages
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.testing.models import Failures, ScriptedModel
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.table import TraceSet


def numbered_traces(questions: int = 4, rounds: int = 3) -> TraceSet:
    return to_trace_set(
        [
            make_record(f"q{n:02d}", [f"answer {n}-{t}" for t in range(1, rounds + 1)])
            for n in range(questions)
        ]
    )


def ask(
    found: TraceSet, model: ScriptedModel, wanted: Sequence[bool] | None = None
) -> tuple[Replies[Rating], list[Asked]]:
    seen: list[Asked] = []
    rows = found.table.num_rows
    chosen = np.ones(rows, bool) if wanted is None else np.array(wanted)
    return JUDGING.ask(found, model, chosen, seen.append), seen


class Together(ScriptedModel):
    """Three questions at a time; the reply says which round it was."""

    concurrency = 3


def rating(request: GenerationRequest, _: int) -> str:
    """The round, read off the answer in the prompt."""
    return str(request.prompt).rstrip().removesuffix("Rating:").strip()[-1]


@pytest.mark.parametrize("kind", [ScriptedModel, Together])
def test_every_round_gets_the_verdict_of_its_own_answer(kind: type[ScriptedModel]) -> None:
    model = kind(rating)
    judging, seen = ask(numbered_traces(), model)
    assert [each.value for each in judging.by_row.values()] == [1.0, 2.0, 3.0] * 4
    assert list(judging.by_row) == list(range(12))
    assert [usage.judge_calls for usage in usages(judging).values()] == [1] * 12
    summary = JUDGING.summary(judging)
    assert [summary[name] for name in ("calls", "failed", "left", "undefined")] == [12, 0, 0, 0]
    assert seen[-1] == Asked(what="judged", finished=12, planned=12)
    counted = sum(len(str(request.prompt).split()) for request in model.requests)
    tokens = summary["prompt_tokens"]
    assert tokens == pytest.approx(counted, abs=12)
    assert sum(each.judge_prompt_tokens or 0 for each in usages(judging).values()) == tokens
    assert (summary["cached_tokens"], summary["completion_tokens"]) == (0, 12)


def test_only_wanted_rounds_are_asked_about_and_see_all_before_them() -> None:
    model = ScriptedModel(rating)
    judging, seen = ask(numbered_traces(2, 3), model, [False, True, False, False, False, True])
    assert {row: each.value for row, each in judging.by_row.items()} == {1: 2.0, 5: 3.0}
    assert seen[-1].planned == 2
    first, second = (str(request.prompt).rpartition("Evidence:")[2] for request in model.requests)
    assert first.count("text number") == 2
    assert second.count("text number") == 3


def test_a_failed_call_leaves_its_round_alone() -> None:
    model = ScriptedModel(rating, failures=Failures(containing=("Answer: answer 1-2",)))
    judging, seen = ask(numbered_traces(), model)
    assert list(judging.failures) == [4]
    assert "scripted failure" in judging.failures[4]
    assert 4 not in judging.by_row
    assert len(judging.by_row) == 11
    assert usages(judging)[4] == Usage(judge_calls=1)  # what it cost is not known
    assert JUDGING.summary(judging)["completion_tokens"] == 11
    assert (seen[-1].finished, seen[-1].failed, seen[-1].planned) == (11, 1, 12)


def test_unparsable_replies_are_counted() -> None:
    judging, _ = ask(numbered_traces(2), ScriptedModel(["4", "no", "5", "10", "1", "2"]))
    assert JUDGING.summary(judging)["undefined"] == 2
    assert len(judging.by_row) == 6


def test_it_stops_asking_a_model_that_is_down_and_keeps_what_it_has() -> None:
    model = ScriptedModel(
        rating, failures=Failures(containing=tuple(f"Answer: answer {n}-" for n in range(1, 30)))
    )
    judging, _ = ask(numbered_traces(30), model)
    assert len(judging.by_row) == 3
    assert 5 <= len(judging.failures) <= 8
    assert judging.left == 90 - 3 - len(judging.failures)
    assert not judging.interrupted


@pytest.mark.parametrize("kind", [ScriptedModel, Together])
def test_a_model_that_never_answers_is_an_error(kind: type[ScriptedModel]) -> None:
    model = kind(failures=Failures(first=1000))
    with pytest.raises(BackendError, match=r"all \d calls of the judge failed.*scripted failure"):
        ask(numbered_traces(30), model)
    assert 5 <= len(model.requests) <= 7


def test_rounds_that_nobody_need_be_asked_about_are_no_answers() -> None:
    record = make_record("q", ["", "x"])
    with pytest.raises(BackendError, match="all 1 calls"):
        ask(to_trace_set([record]), ScriptedModel(failures=Failures(first=1000)))
    judging, _ = ask(to_trace_set([make_record("q", [""])]), ScriptedModel())
    summary = JUDGING.summary(judging)
    assert (summary["calls"], summary["undefined"]) == (0, 1)


def test_an_interrupt_keeps_what_was_said() -> None:
    class Interrupted(ScriptedModel):
        def generate(self, request: GenerationRequest) -> Generation:
            if "answer 2-1" in str(request.prompt):
                os.kill(os.getpid(), signal.SIGINT)
            return super().generate(request)

    judging, _ = ask(numbered_traces(30), Interrupted(rating, delay_s=0.005))
    assert judging.interrupted
    assert 6 <= len(judging.by_row) < 30
    assert judging.left == 90 - len(judging.by_row)
