"""What models make of the form they are asked for, and what is read out of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.loops.react import AgentAction, parse_action

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


@pytest.mark.parametrize("text", SEARCHES)
def test_searches_are_read(text: str) -> None:
    found = parse_action(text)
    assert found is not None
    assert (found.kind, found.argument) == ("search", "Ada Rusk")


@pytest.mark.parametrize("text", FINISHES)
def test_finishes_are_read(text: str) -> None:
    found = parse_action(text)
    assert found is not None
    assert (found.kind, found.argument) == ("finish", "Lindal")


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_holds_no_action_is_not_guessed_at(text: str) -> None:
    assert parse_action(text) is None


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


@pytest.mark.parametrize(
    ("text", "thought"),
    [
        ("Thought: who\nwrote  it?\nAction: Search[x]", "who wrote it?"),
        ("Thought 2: who?\nAction 2: Search[x]", "who?"),
        (" who wrote it?\nAction: Search[x]", "who wrote it?"),
        ("**Thought:** who?\n**Action:** Search[x]", "who?"),
        ("Action: Search[x]", ""),
        ("Thought: I will Search[x]", "I will"),
        ("Thought: " + "a" * 999 + "\nAction: Search[x]", "a" * 400),
    ],
)
def test_thoughts(text: str, thought: str) -> None:
    found = parse_action(text)
    assert found is not None
    assert found.thought == thought


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
