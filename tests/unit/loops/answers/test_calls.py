"""One round's calls: the greedy answer with samples beside it, majorities, odd replies, drafts."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.loops.calls import (
    AnswerCall,
    AnswerSettings,
    ComingAnswer,
    ParsedReply,
    answer_probe,
    ask_answer,
    ask_majority,
    parse_reply,
)
from suffice.loops.prompts import FollowUpPrompts, Prompt, SearchStep, render_prompt
from suffice.loops.steps import LoopSettings
from suffice.signals.samples import SELF_CONSISTENCY
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import LoopView, Passage, Round, Usage, with_draft

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
    assert SELF_CONSISTENCY(LoopView("Q?", (found,))) == pytest.approx(share)


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
    found = ask_answer(model, CALL, LoopSettings(prompt="bare"), samples=2)
    assert (found.answer, found.samples) == ("Oslo", ("Bergen", "Turku"))
    assert (found.usage.llm_calls, found.usage.sample_calls) == (3, 2)
    assert (found.usage.completion_tokens, found.usage.sample_completion_tokens) == (1, 2)
    assert found.tokens is not None


def test_a_chat_model_ends_its_bare_answer_itself() -> None:
    """Its end token counts in token_probability, so no line end cuts it off."""
    for api, stops in (("completion", True), ("chat", False)):
        model = ScriptedModel(["Oslo"], api=api)  # type: ignore[arg-type]
        ask_answer(model, CALL, LoopSettings(prompt="bare"))
        assert ("\n" in model.requests[0].stop) is stops


def reply(answer: str, confidence: float | None = None, failure: str | None = None) -> ParsedReply:
    return ParsedReply(answer=answer, confidence=confidence, failure=failure)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("Answer: Zürich – Ærø 東京\nConfidence: 1", reply("Zürich – Ærø 東京", 1.0)),
        ("Answer: Oslo\nAnswer: Bergen", reply("Oslo")),
        ("Answer: the ratio is 4/5", reply("the ratio is 4/5")),
        ("Answer: Answer: Oslo", reply("Answer: Oslo")),
        # a chain of thought ends in its answer
        ("Oslo lies in Norway. So the answer is: Norway\nConfidence: 4", reply("Norway", 4.0)),
        ("The **answer is:** Oslo", reply("Oslo")),
        ("The answer is Oslo", reply("The answer is Oslo")),
        # no marker: the first line
        ("Oslo", reply("Oslo")),
        ("\n\n Oslo \nBergen", reply("Oslo")),
        ("answer: Oslo", reply("Oslo")),
        # nothing to take
        ("", reply("", None, "empty reply")),
        ("Answer:", reply("", None, "empty answer line")),
        ("Confidence: 4", reply("", 4.0, "no answer line")),
    ],
)
def test_replies(text: str, parsed: ParsedReply) -> None:
    assert parse_reply(text) == parsed


@pytest.mark.parametrize(
    ("written", "confidence"),
    [
        *(("1", 1.0), (" 5 ", 5.0), ("3.", 3.0)),
        *((text, None) for text in ("10", "0", "6", "-3", "4/5", "4 out of 5", "4.5", "3.0")),
        *((text, None) for text in ("high", "<4>", "4 5", "４", "")),
    ],
)
def test_only_a_lone_rating_counts(written: str, confidence: float | None) -> None:
    assert parse_reply(f"Answer: Oslo\nConfidence:{written}").confidence == confidence


PARTS = ["Answer:", "Confidence:", "\n", "\r\n", " ", "Oslo", "4", "10", "é", "\0", "\u2028"]


@given(
    text=st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PARTS), max_size=8).map("".join))
)
def test_an_answer_is_empty_exactly_when_a_reason_is_given(text: str) -> None:
    parsed = parse_reply(text)
    assert (parsed.answer == "") == (parsed.failure is not None)
    assert parsed.answer == parsed.answer.strip()
    assert "\n" not in parsed.answer
    assert parsed.confidence in (None, 1.0, 2.0, 3.0, 4.0, 5.0)
    assert not (parsed.answer and parsed.answer not in text)


PIECES = [*PARTS, "Ans", "wer:", "Conf", "**", "*", "-", ":", ""]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=12).map("".join)


def starts(text: str) -> list[int]:
    """Where the lines of a text start."""
    return [0, *(found.end() for found in re.finditer("\n", text))]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 80), max_size=8))
def test_whatever_the_cut_told_is_a_beginning_of_the_answer(text: str, cuts: list[int]) -> None:
    coming, told, places = ComingAnswer(), "", [0, *sorted(cuts), len(text)]
    for begin, end in pairwise(places):
        told += coming.feed(text[begin:end])
        assert told == coming.told
        assert parse_reply(text).answer.startswith(told)
    answer = parse_reply(text).answer
    label = re.search(r"Answer\**:", text)
    if label is None:
        assert told == ""
    elif not {"*", "-", "."} & set(text) and "Conf" not in text and label.start() in starts(text):
        assert told == answer  # else the end may be held back, which is sent with the whole answer


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
