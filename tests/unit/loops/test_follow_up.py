"""The iterative loop and the chain: rounds, readings, repeats, verdicts, samples, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.loops.follow_up import APIS, LETTERS, QUESTION, Api, Heard, Lines, Ranks, kind, text_of

from suffice.contracts import GenerationRequest
from suffice.loops.follow_up import (
    ChainSettings,
    FollowUpPipeline,
    IterativeSettings,
    parse_verdict,
)
from suffice.loops.prompts import SearchStep
from suffice.loops.query_loop import QueryChoice
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Round


def loop(model: ScriptedModel, name: str = "iterative", **settings: Any) -> FollowUpPipeline:
    if name == "chain":
        return FollowUpPipeline(model, ChainSettings(**settings))
    return FollowUpPipeline(model, IterativeSettings(**settings))


def run(
    lines: Any = None, name: str = "iterative", *, api: Api = "completion", **settings: Any
) -> tuple[list[Round], Heard, Ranks]:
    model, ranks = Heard(lines or Lines(), api=api), Ranks(settings.pop("names", LETTERS))
    chosen = {"rounds": 3, "samples": 0, **settings}
    return list(loop(model, name, **chosen).rounds(QUESTION, ranks)), model, ranks


def ids(rounds: Sequence[Round]) -> list[str]:
    return ["".join(each.id for each in finished.passages or ()) for finished in rounds]


THREE = ("Who founded it?", "Who was Ada?", "Where was Ada born?")


# --- rounds -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("name", "found"), [("iterative", "abc"), ("chain", ("abc", "def", "ghi"))]
)
def test_a_round_asks_searches_reads_and_answers(api: Api, name: str, found: Sequence[str]) -> None:
    lines = Lines(
        query=THREE, reading=("Ada", "a smith", "unknown"), answer=("Answer: Ben\nConfidence: 4",)
    )
    rounds, model, ranks = run(lines, name, api=api)
    assert [each.query for each in rounds] == list(THREE)
    assert [query for query, _ in ranks.asked] == list(THREE)
    assert ids(rounds) == list(found)
    assert [each.intermediate_answer for each in rounds] == ["Ada", "a smith", "unknown"]
    assert [(each.answer, each.verbalized_confidence) for each in rounds] == [("Ben", 4.0)] * 3
    assert [each.action for each in rounds] == list(THREE)
    assert all(each.candidate_scores == tuple(9.0 - n for n in range(10)) for each in rounds)
    assert all(each.signals == {"malformed_actions": 0.0} for each in rounds)
    assert [kind(request) for request in model.requests] == ["query", "reading", "answer"] * 3
    assert all(request.temperature == 0 for request in model.requests)
    asked = [text_of(each) for each in model.of("query")]
    assert ["Fact a" in each for each in asked] == [False, *[name == "iterative"] * 2]
    assert ["Intermediate answer: Ada\n" in each for each in asked] == [False, True, True]
    # a reading sees the passages of its own round, the answer all of them
    for number, (read, answer) in enumerate(
        zip(model.of("reading"), model.of("answer"), strict=True)
    ):
        for letter in LETTERS:
            assert (f"Fact {letter}" in text_of(read)) == (letter in found[number])
            assert (f"Fact {letter}" in text_of(answer)) == (letter in "".join(found[: number + 1]))


# --- follow-up questions ----------------------------------------------------------------------------
STEPS = (
    SearchStep(
        said="Who founded Brill Works?", query="Who founded Brill Works?", found=(), answer="Ada"
    ),
)


def choose(
    *replies: str, api: Api = "completion"
) -> tuple[QueryChoice, tuple[GenerationRequest, ...]]:
    model = ScriptedModel(list(replies), api=api)
    found = loop(model).choose(QUESTION.text, STEPS)
    assert len(model.requests) == len(replies)
    return found, model.requests


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    "reply", [" Who was Ada?", "Follow-up: Who was Ada?", "question:  Who was\tAda?\n\nDocument: x"]
)
def test_the_first_line_of_a_reply_is_the_question(api: Api, reply: str) -> None:
    found, (request,) = choose(reply, api=api)
    assert (found.query, found.said) == ("Who was Ada?", "Who was Ada?")
    assert (found.finishes, found.unread, found.usage.llm_calls) == (False, False, 1)
    assert (request.n, request.temperature, request.max_tokens) == (1, 0.0, 48)


@pytest.mark.parametrize("again", ["who founded brill works", ""])
def test_a_question_repeated_all_the_same_is_sent_again(again: str) -> None:
    """It finds what ranks next, and is not counted as unreadable."""
    found, _ = choose("Who founded Brill Works?", again)
    assert found.query == (again or "Who founded Brill Works?")
    assert not found.unread
    rounds, model, _ = run(Lines(query=["Who founded Brill Works?"]))
    assert ids(rounds) == ["a", "b", "c"]
    assert [each.usage.llm_calls for each in rounds] == [3, 4, 4]
    assert len(model.of("query")) == 5
    assert rounds[-1].signals == {"malformed_actions": 0.0}


@pytest.mark.parametrize("api", APIS)
def test_an_empty_reply_makes_the_main_question_the_query(api: Api) -> None:
    rounds, model, _ = run(
        Lines(query=("", "Who was Ada?", " \n", "Follow-up:")), api=api, rounds=4
    )
    assert [each.query for each in rounds] == [QUESTION.text, "Who was Ada?", *[QUESTION.text] * 2]
    assert [each.signals["malformed_actions"] for each in rounds] == [1.0, 1.0, 2.0, 3.0]
    assert len(model.of("query")) == 4
    assert ids(rounds) == ["a", "b", "c", "d"]


# --- verdicts ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("Analysis: enough.\nDecision: <STOP>", True),
        ("Decision:<CONTINUE>", False),
        ("Decision: <CONTINUE> no, <STOP>", True),
        ("Decision: <STOP> or <CONTINUE>", False),
        ("Decision: <STOP>\nDecision: <CONTINUE>", False),
        ("<STOP>\nDecision: go on", None),
        ("<STOP> is my\nDecision: <CONTINUE>", False),
        ("Decision: <stop>", None),
        ("decision: <STOP>", None),
        ("<STOP>", None),
        ("Decision: STOP", None),
        ("", None),
    ],
)
def test_the_last_tag_after_the_decision_counts(text: str, stops: bool | None) -> None:
    assert parse_verdict(text) is stops


@pytest.mark.parametrize("api", APIS)
def test_a_verdict_survives_a_blank_line(api: Api) -> None:
    label = "" if api == "completion" else "Analysis:"
    said = (
        f"{label} all there.\n\nDecision: <STOP>",
        f"{label}\n\nThe year is missing.\n\n\nDecision:\n\n<CONTINUE>",
        "\n\nDecision: <STOP>",
    )
    rounds, _, _ = run(Lines(query=THREE, verdict=said), api=api, verdicts=True)
    assert [finished.signals["llm_stop"] for finished in rounds] == [1.0, 0.0, 1.0]
    assert [finished.signals["malformed_actions"] for finished in rounds] == [0.0] * 3


# --- the answer behind a chain of thought -----------------------------------------------------------
THOUGHTS = " Brill Works was founded by Ada Thorn. Her brother was Ben. So the answer is: Ben\nConfidence: 4"


@pytest.mark.parametrize("name", ["iterative", "chain"])
@pytest.mark.parametrize("api", APIS)
def test_the_answer_of_a_chain_of_thought_is_what_it_ends_in(api: Api, name: str) -> None:
    lines = Lines(answer=(THOUGHTS,))
    rounds, model, _ = run(lines, name, api=api, samples=2, final_answer="ircot")
    assert [finished.answer for finished in rounds] == ["Ben"] * 3
    assert [finished.samples for finished in rounds] == [("Ben", "Ben")] * 3
    assert {finished.verbalized_confidence for finished in rounds} == {4.0}
    asked = model.of("answer")
    assert min(request.max_tokens for request in asked) >= 160
    for request in asked:
        assert ("\n\n" in request.stop) == (api == "completion")
        assert len(request.stop) <= 4  # what servers take at most
    assert all("reasoning from the steps" in text_of(request) for request in asked)


def test_an_empty_reading_is_unknown() -> None:
    rounds, _, _ = run(Lines(query=THREE, reading=("", " Answer: Ada\nMore", "\n")))
    assert [each.intermediate_answer for each in rounds] == ["unknown", "Ada", "unknown"]
