"""Asking about a whole record: order, failures, giving up, interrupts, scores of passages."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Sequence

import numpy as np
import pytest

from suffice.errors import BackendError, UsageError
from suffice.protocols import Generation, GenerationRequest
from suffice.signals.asking import Asked, Judging, judge_rounds, rerank_passages
from suffice.testing.models import Failures, ScriptedModel
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.records import Passage, QuestionRecord
from suffice.trace.table import TraceSet


def traces(questions: int = 4, rounds: int = 3) -> TraceSet:
    return to_trace_set(
        [
            make_record(f"q{n:02d}", [f"answer {n}-{t}" for t in range(1, rounds + 1)])
            for n in range(questions)
        ]
    )


def ask(
    found: TraceSet, model: ScriptedModel, wanted: Sequence[bool] | None = None
) -> tuple[Judging, list[Asked]]:
    seen: list[Asked] = []
    rows = found.table.num_rows
    chosen = np.ones(rows, bool) if wanted is None else np.array(wanted)
    return judge_rounds(found, model, chosen, seen.append), seen


class Together(ScriptedModel):
    """Three questions at a time; the reply says which round it was."""

    concurrency = 3


def rating(request: GenerationRequest, _: int) -> str:
    """The round, read off the answer in the prompt."""
    return str(request.prompt).rstrip().removesuffix("Rating:").strip()[-1]


@pytest.mark.parametrize("kind", [ScriptedModel, Together])
def test_every_round_gets_the_verdict_of_its_own_answer(kind: type[ScriptedModel]) -> None:
    model = kind(rating)
    judging, seen = ask(traces(), model)
    assert [each.value for each in judging.verdicts.values()] == [1.0, 2.0, 3.0] * 4
    assert list(judging.verdicts) == list(range(12))
    assert judging.calls == dict.fromkeys(range(12), 1)
    assert (judging.failures, judging.left, judging.undefined) == ({}, 0, 0)
    assert seen[-1] == Asked(what="judged", finished=12, planned=12)
    counted = sum(len(str(request.prompt).split()) for request in model.requests)
    tokens = judging.tokens("prompt_tokens")
    assert tokens is not None
    assert tokens == pytest.approx(counted, abs=12)


def test_only_wanted_rounds_are_asked_about_and_see_all_before_them() -> None:
    model = ScriptedModel(rating)
    judging, seen = ask(traces(2, 3), model, [False, True, False, False, False, True])
    assert {row: each.value for row, each in judging.verdicts.items()} == {1: 2.0, 5: 3.0}
    assert seen[-1].planned == 2
    first, second = (str(request.prompt).rpartition("Evidence:")[2] for request in model.requests)
    assert first.count("text number") == 2
    assert second.count("text number") == 3


def test_a_failed_call_leaves_its_round_alone() -> None:
    model = ScriptedModel(rating, failures=Failures(containing=("Answer: answer 1-2",)))
    judging, seen = ask(traces(), model)
    assert list(judging.failures) == [4]
    assert "scripted failure" in judging.failures[4]
    assert 4 not in judging.verdicts
    assert len(judging.verdicts) == 11
    assert judging.calls[4] == 1
    assert (seen[-1].finished, seen[-1].failed, seen[-1].planned) == (11, 1, 12)


def test_unparsable_replies_are_counted() -> None:
    judging, _ = ask(traces(2), ScriptedModel(["4", "no", "5", "10", "1", "2"]))
    assert judging.undefined == 2
    assert len(judging.verdicts) == 6


def test_it_stops_asking_a_model_that_is_down_and_keeps_what_it_has() -> None:
    model = ScriptedModel(
        rating, failures=Failures(containing=tuple(f"Answer: answer {n}-" for n in range(1, 30)))
    )
    judging, _ = ask(traces(30), model)
    assert len(judging.verdicts) == 3
    assert 5 <= len(judging.failures) <= 8
    assert judging.left == 90 - 3 - len(judging.failures)
    assert not judging.interrupted


@pytest.mark.parametrize("kind", [ScriptedModel, Together])
def test_a_model_that_never_answers_is_an_error(kind: type[ScriptedModel]) -> None:
    model = kind(failures=Failures(first=1000))
    with pytest.raises(BackendError, match=r"all \d calls of the judge failed.*scripted failure"):
        ask(traces(30), model)
    assert 5 <= len(model.requests) <= 7


def test_rounds_that_nobody_need_be_asked_about_are_no_answers() -> None:
    record = make_record("q", ["", "x"])
    with pytest.raises(BackendError, match="all 1 calls"):
        ask(to_trace_set([record]), ScriptedModel(failures=Failures(first=1000)))
    judging, _ = ask(to_trace_set([make_record("q", [""])]), ScriptedModel())
    assert judging.calls == {0: 0}
    assert judging.undefined == 1


def test_an_interrupt_keeps_what_was_said() -> None:
    class Interrupted(ScriptedModel):
        def generate(self, request: GenerationRequest) -> Generation:
            if "answer 2-1" in str(request.prompt):
                os.kill(os.getpid(), signal.SIGINT)
            return super().generate(request)

    judging, _ = ask(traces(30), Interrupted(rating, delay_s=0.005))
    assert judging.interrupted
    assert 6 <= len(judging.verdicts) < 30
    assert judging.left == 90 - len(judging.verdicts)


def test_a_wrong_use_is_raised_and_ends_it() -> None:
    with pytest.raises(UsageError, match="used up"):
        ask(traces(), ScriptedModel(["1", "2"]))


# --- passages -------------------------------------------------------------------------------------
class ByLength:
    """Scores a passage by the length of its text, and keeps what it was asked."""

    def __init__(self, *, drop: str = "") -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.drop = drop

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        self.asked.append((query, tuple(each.id for each in passages)))
        scored = [
            dataclasses.replace(each, rerank_score=float(len(each.text or "")) - 4)
            for each in passages
            if each.id != self.drop
        ]
        return sorted(scored, key=lambda each: -(each.rerank_score or 0.0))


def with_passages(name: str, *rounds: Sequence[Passage]) -> QuestionRecord:
    record = make_record(name, ["x"] * len(rounds))
    shown = tuple(
        dataclasses.replace(each, passages=tuple(passages))
        for each, passages in zip(record.rounds, rounds, strict=True)
    )
    return dataclasses.replace(record, rounds=shown)


A, B, C = (Passage(id=name, text=name * n) for n, name in enumerate("abc", start=1))
SCORED = Passage(id="s", text="four", rerank_score=7.0)
BARE = Passage(id="t")


def test_each_passage_is_scored_once_a_question_and_old_scores_stay() -> None:
    reranker = ByLength()
    found = to_trace_set(
        [with_passages("p", [A, SCORED], [A], [B, A], [BARE]), with_passages("q", [A], [C])]
    )
    seen: list[Asked] = []
    reranking = rerank_passages(found, reranker, seen.append)
    assert reranker.asked == [("What is p?", ("a", "b")), ("What is q?", ("a", "c"))]
    assert reranking.passages == 4
    assert reranking.scores == {
        0: (-3.0, 7.0),
        1: (-3.0,),
        2: (-2.0, -3.0),
        4: (-3.0,),
        5: (-1.0,),
    }
    assert reranking.calls == {0: 1, 2: 1, 4: 1, 5: 1}  # the second round added nothing new
    assert seen[-1] == Asked(what="reranked", finished=2, planned=2)


def test_a_question_without_anything_to_score_is_not_asked_about() -> None:
    reranker = ByLength()
    reranking = rerank_passages(
        to_trace_set([with_passages("p", [SCORED], [BARE])]), reranker, lambda _: None
    )
    assert (reranker.asked, reranking.scores, reranking.calls) == ([], {}, {})


def test_a_reranker_that_drops_a_passage_is_refused() -> None:
    with pytest.raises(BackendError, match="no score for passage 'b' of 'What is p\\?'"):
        rerank_passages(
            to_trace_set([with_passages("p", [A], [B])]), ByLength(drop="b"), lambda _: None
        )
