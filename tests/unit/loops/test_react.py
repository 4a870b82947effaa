"""The ReAct loop: prompts, actions as models write them, and their repair."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.contracts import GenerationRequest
from suffice.loops.prompts import SearchStep
from suffice.loops.query_loop import QueryChoice
from suffice.loops.react import AgentAction, ReactPipeline, ReactSettings, parse_action
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage

QUESTION = "Who was the brother of the founder of Brill Works?"
STEPS = (
    SearchStep(
        said="Thought: who?\nAction: Search[Brill Works]",
        query="Brill Works",
        found=(Passage(id="b", title="Brill Works", text="Founded by\nAda Thorn."),),
    ),
    SearchStep(said="Action: Search[Ada Thorn]", query="Ada Thorn", found=()),
)
Api = Literal["chat", "completion"]


def choose(
    *replies: str, api: Api = "completion", refused: QueryChoice | None = None
) -> tuple[QueryChoice, tuple[GenerationRequest, ...]]:
    model = ScriptedModel(list(replies), api=api)
    found = ReactPipeline(model, ReactSettings(max_action_tokens=64)).choose(
        QUESTION, STEPS, refused=refused
    )
    assert len(model.requests) == len(replies)
    return found, model.requests


def test_an_unreadable_action_is_asked_for_once_more() -> None:
    found, (first, second) = choose(" I wonder what to do.", " Search[Ada Thorn]")
    assert (found.query, found.unread, found.usage.llm_calls) == ("Ada Thorn", False, 2)
    assert found.action == "Thought: I wonder what to do.\n\nAction: Search[Ada Thorn]"
    assert str(second.prompt).startswith(str(first.prompt))
    assert str(second.prompt).endswith(
        "Reply with one action and nothing else, either Search[query] or Finish[answer].\nAction:"
    )
    # the failed try is not shown again
    assert found.said == "Action: Search[Ada Thorn]"


def test_a_repeated_query_is_objected_to_once() -> None:
    found, (_, second) = choose("x\nAction: Search[the Brill works]", " Search[Ada Thorn family]")
    assert (found.query, found.usage.llm_calls) == ("Ada Thorn family", 2)
    assert "That query was made before" in str(second.prompt)
    again, _ = choose("x\nAction: Search[Brill Works]", " Search[Brill Works]")
    assert (again.query, again.unread) == ("Brill Works", False)
    unread, _ = choose("x\nAction: Search[Brill Works]", " hm")
    assert (unread.query, unread.unread) == ("Brill Works", False)
    done, _ = choose("x\nAction: Search[Brill Works]", " Finish[Ben]")
    assert done.finishes


@pytest.mark.parametrize("api", ["completion", "chat"])
def test_after_two_unreadable_actions_the_question_is_the_query(api: Api) -> None:
    found, _ = choose("hm", "hm hm", api=api)
    assert (found.query, found.unread, found.finishes) == (QUESTION, True, False)
    assert found.said == f"Action: Search[{QUESTION}]"
    assert found.usage.llm_calls == 2
    assert found.usage.completion_tokens == 3


def test_whoever_may_not_finish_goes_on_from_a_search() -> None:
    refused, _ = choose("x\nAction: Finish[Ben]")
    found, (request,) = choose("Ben Thorn]\nObservation: Ben", refused=refused)
    assert str(request.prompt).endswith("\nAction: Search[")
    assert "Finish[Ben]" not in str(request.prompt)
    assert (found.query, found.unread, found.finishes) == ("Ben Thorn", False, False)
    assert found.action.endswith("Action: Search[Ben Thorn]")


def test_whoever_insists_on_finishing_searches_for_the_question() -> None:
    refused, _ = choose("Action: Finish[Ben]", api="chat")
    found, _ = choose("Action: Finish[Ben]", api="chat", refused=refused)
    assert (found.query, found.finishes, found.unread) == (QUESTION, False, False)
    unread, _ = choose("no!", api="chat", refused=refused)
    assert (unread.query, unread.finishes, unread.unread) == (QUESTION, False, True)


SEARCHES = [
    "Thought: who wrote it?\nAction: Search[Ada Rusk]",
    "Action: Search[Ada Rusk]",
    "Action 1: Search[Ada Rusk]",
    "Thought 1: hm\nAction 1: Search[Ada Rusk]\nObservation 1: [Ada] She died.\nAction 2: Finish[x]",
    "Action : Search [ Ada  Rusk ]",
    "Action: Search[Ada Rusk",
    "Action: Search(Ada Rusk)",
    "Action: Search【Ada Rusk】",
    "Action: Search[[Ada Rusk]]",
    'Action: Search["Ada Rusk"]',
    "Action: Search[<Ada Rusk>]",
    "**Action**: **Search[Ada Rusk]**",
    "### Action\nSearch[Ada Rusk]",
    "Action:\nSearch[Ada Rusk]",
    "1. Action: Search[Ada Rusk]",
    "Next action: Search[Ada Rusk]",
    "Action: Search: Ada Rusk",
    "Action: Search Ada Rusk",
    "Action: Search for Ada Rusk",
    'Action: Search "Ada Rusk"',
    "Action: Search\nAction Input: Ada Rusk",
    "Search[Ada Rusk]",
    "I should do Search[Ada Rusk] now.",
    "Search: Ada Rusk",
    "Action: Search[Ada Rusk] or Finish[Bo]",
    "Thought: I will finish soon.\nAction: Search[Ada Rusk]",
    "Thought: finish?\nAction: Search[Ada Rusk]\nObservation: (none)",
    "Action: Searching[Ada Rusk]",
]
FINISHES = [
    "Thought: done\nAction: Finish[Lindal]",
    "Action 3: finish [Lindal]",
    "**Action: Finish[Lindal]**",
    "Action: Finish(Lindal)",
    "Action: Finish: Lindal",
    "Finish[Lindal",
    "Finish[Lindal]\nQuestion: Another?",
    "Final Answer: Lindal",
    "Thought: I know it now.\nAnswer: Lindal",
]
UNREADABLE = [
    "",
    "   \n",
    "I am not sure what to do.",
    "Thought: I need to search for Ada Rusk.",
    "Action:",
    "Action: Search[]",
    "Action: Search[ ]",
    "Action: Search",
    "Action: Search[query]",
    "Action: Search[<query>]",
    "Action: Search[...]",
    "Action: Lookup[Ada Rusk]",
    "Observation: [Ada] She died.\nAction: Search[Ada Rusk]",
    "Research[Ada Rusk]",
]


ACTIONS = [
    *((text, ("search", "Ada Rusk")) for text in SEARCHES),
    *((text, ("finish", "Lindal")) for text in FINISHES),
    *((text, None) for text in UNREADABLE),
]


@pytest.mark.parametrize(("text", "action"), ACTIONS)
def test_actions_are_read_and_what_holds_none_is_not_guessed_at(
    text: str, action: tuple[str, str] | None
) -> None:
    found = parse_action(text)
    assert (None if found is None else (found.kind, found.argument)) == action


@pytest.mark.parametrize(
    ("text", "argument"),
    [
        ("Action: Search[Rusk [painter] Lindal]", "Rusk [painter] Lindal"),
        ("Action: Search[The Ferry (1921 film)]", "The Ferry (1921 film)"),
        ("Action: Search[AC/DC]", "AC/DC"),
        ("Action: Search[what's new?]", "what's new?"),
        ("Action: Search[Zdeněk Šťastný] ", "Zdeněk Šťastný"),
        ("Action: Search[a]b]", "a"),
        ("Action: Search[" + "x" * 999 + "]", "x" * 300),
        ("Action: Finish[]", ""),
        ("Action: Finish", ""),
    ],
)
def test_arguments(text: str, argument: str) -> None:
    found = parse_action(text)
    assert found is not None
    assert found.argument == argument


@given(
    st.text(
        st.sampled_from("Action: Search[Finish]Thought\n*(Ob)servation\"'`{}<> 1ø.")
        | st.characters()
    )
)
def test_no_text_breaks_it_and_what_is_read_fits_a_line(text: str) -> None:
    found = parse_action(text)
    if found is not None:
        assert "\n" not in found.argument + found.thought
        assert len(found.argument) <= 300
        assert found.kind == "finish" or any(
            letter.isalnum() or letter == "_" for letter in found.argument
        )


@given(
    st.sampled_from(["search", "finish"]),
    st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20),
    st.text(st.characters(categories=["L", "N"]), max_size=20),
)
def test_the_asked_form_is_read_as_it_stands(kind: str, argument: str, thought: str) -> None:
    text = f"Thought: {thought}\nAction: {kind.title()}[{argument}]"
    found = parse_action(text)
    if argument.casefold() not in ("query", "answer") and "action" not in thought.casefold():
        assert found == AgentAction(kind=kind, argument=argument, thought=thought)  # type: ignore[arg-type]
