"""Answers asked on the side: the prompt of our own loops, from what was found so far."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.loops.calls import AnswerSettings, answer_probe
from suffice.loops.prompts import FollowUpPrompts, Prompt, SearchStep, render_prompt
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import LoopView, Passage, Round, Usage, with_draft

A, B, C = (Passage(id=name, title=name, text=f"fact {name}") for name in "abc")
ROUNDS = (
    Round(answer=None, query="one?", passages=(A, B), intermediate_answer="1"),
    Round(answer=None, query="two?", passages=(B, C), intermediate_answer="2"),
)


def prompt_of(*rounds: Round) -> Prompt:
    model = ScriptedModel(["Answer: Oslo"])
    answer_probe(model)(LoopView("Where?", rounds))
    return model.requests[0].prompt


def test_passages_alone_are_shown_as_the_cumulative_loop_shows_them_each_once() -> None:
    plain = [Round(answer=None, passages=round_.passages, query="q?") for round_ in ROUNDS]
    assert prompt_of(*plain) == render_prompt("Where?", [A, B, C], api="completion")
    assert prompt_of(plain[0], ROUNDS[1]) == render_prompt("Where?", [A, B, C], api="completion")
    assert "(no passage)" in str(prompt_of(Round(answer=None)))


def test_queries_with_intermediate_answers_are_shown_as_steps() -> None:
    steps = [
        SearchStep(said="", query="one?", found=(A, B), shown=(A, B), answer="1"),
        SearchStep(said="", query="two?", found=(C,), shown=(C,), answer="2"),
    ]
    prompts = FollowUpPrompts(api="completion", documents=True, form="answer-first")
    assert prompt_of(*ROUNDS) == prompts.answer("Where?", steps)


def test_a_draft_has_what_a_recorded_answer_has_and_its_part_of_the_costs() -> None:
    model = ScriptedModel(["Confidence: 3\nAnswer: Oslo", "Answer: Rome", "Answer: Oslo"])
    settings = AnswerSettings(prompt="confidence-first", samples=2)
    asked = Round(
        answer=None, usage=Usage(llm_calls=2, judge_calls=1, retrievals=1, prompt_tokens=50)
    )
    draft = answer_probe(model, settings)(LoopView("Where?", (asked,)))
    assert (draft.answer, draft.samples, draft.verbalized_confidence) == (
        "Oslo",
        ("Rome", "Oslo"),
        3.0,
    )
    assert draft.tokens
    answered = with_draft(asked, draft, probed=True).usage
    assert (answered.llm_calls, answered.answer_calls, answered.sample_calls) == (5, 1, 2)
    assert (answered.judge_calls, answered.retrievals) == (1, 1)
    assert answered.prompt_tokens == 50 + (draft.usage.prompt_tokens or 0)
    assert answered.answer_prompt_tokens == draft.usage.prompt_tokens
    assert answered.completion_tokens is None  # what the loop spent is not known
    assert answered.answer_completion_tokens == draft.usage.completion_tokens


def test_settings_of_another_kind_are_refused() -> None:
    with pytest.raises(UsageError, match=r"suffice\.AnswerSettings"):
        answer_probe(ScriptedModel(), {"samples": 2})  # type: ignore[arg-type]
