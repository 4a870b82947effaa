"""One round's calls: the greedy answer with samples beside it, and the majority of samples."""

from __future__ import annotations

import pytest

from suffice.pipelines.answers.calls import AnswerCall, ask_greedy, ask_majority
from suffice.pipelines.answers.prompts import PromptName
from suffice.pipelines.loops.settings import LoopSettings
from suffice.signals.samples import self_consistency
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import LoopView

CALL = AnswerCall(prompt="Question: Q?\n", question_id="q", number=2)


@pytest.mark.parametrize(
    ("drawn", "answer", "share"),
    [
        (
            ["The Nile.", "Oslo", "nile"],
            "The Nile.",
            2 / 3,
        ),  # compared normalised, returned as drawn
        (["Oslo", "Bergen", "Turku"], "Oslo", 1 / 3),  # of equal counts the first drawn
        (["Oslo", "Bergen", "bergen"], "Bergen", 2 / 3),
        (["", "", "Oslo"], "", 2 / 3),  # no answer can win too
        (["Yes", "yes.", "YES"], "Yes", 1.0),
    ],
)
def test_the_first_sample_of_the_mode_is_the_answer(
    drawn: list[str], answer: str, share: float
) -> None:
    settings = LoopSettings(prompt="bare")
    found = ask_majority(ScriptedModel(drawn), CALL, settings, samples=3)
    assert (found.answer, found.samples) == (answer, tuple(drawn))
    assert found.parse_failure == (None if answer else "empty reply")
    assert self_consistency(LoopView("Q?", (found,))) == pytest.approx(share)


def test_a_majority_is_paid_by_everyone() -> None:
    model = ScriptedModel(["a b", "c", "a b"])
    found = ask_majority(model, CALL, LoopSettings(prompt="bare", temperature=0.7), samples=3)
    (request,) = model.requests
    assert (request.n, request.temperature, request.top_logprobs) == (3, 0.7, 0)
    usage = found.usage
    assert (usage.llm_calls, usage.sample_calls) == (3, 0)
    assert usage.completion_tokens == 5
    assert (usage.sample_prompt_tokens, usage.sample_completion_tokens) == (None, None)
    assert found.tokens is None


def test_samples_beside_the_greedy_answer_are_paid_apart() -> None:
    model = ScriptedModel(["Oslo", "Bergen", "Turku"])
    found = ask_greedy(model, CALL, LoopSettings(prompt="bare"), samples=2)
    assert (found.answer, found.samples) == ("Oslo", ("Bergen", "Turku"))
    assert (found.usage.llm_calls, found.usage.sample_calls) == (3, 2)
    assert (found.usage.completion_tokens, found.usage.sample_completion_tokens) == (1, 2)
    assert found.tokens is not None


@pytest.mark.parametrize(
    ("name", "greedy", "sampled"),
    [
        ("answer-first", "Answer: x\nConfidence: 4", "Answer: x"),
        ("confidence-first", "Confidence: 4\nAnswer: x", "Confidence: 4\nAnswer: x"),
        ("bare", "Answer: x", "Answer: x"),
    ],
)
def test_replies_end_where_nothing_more_is_read(
    name: PromptName, greedy: str, sampled: str
) -> None:
    reply = "Confidence: 4\nAnswer: x" if name == "confidence-first" else greedy
    model = ScriptedModel([f"{reply}\nQuestion: next"] * 2)
    settings = LoopSettings(prompt=name)
    found = ask_greedy(model, CALL, settings, samples=1)
    assert found.response == greedy
    assert found.samples == ("x",)
    tail = model.requests[1].stop
    cut = min([reply.find(each) for each in tail if each in reply], default=len(reply))
    assert reply[:cut] == sampled


def test_a_chat_model_ends_its_bare_answer_itself() -> None:
    """Its end token counts in token_probability, so no line end cuts it off."""
    for api, stops in (("completion", True), ("chat", False)):
        model = ScriptedModel(["Oslo"], api=api)  # type: ignore[arg-type]
        ask_greedy(model, CALL, LoopSettings(prompt="bare"))
        assert ("\n" in model.requests[0].stop) is stops
