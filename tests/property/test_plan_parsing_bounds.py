"""Whatever a model writes is read in bounded time, and what is read can be stored."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from studies.hidden_constraints.checker import plan_steps
from tests.properties import examples

from suffice.loops.planning.parsing import (
    parse_candidate,
    parse_plan,
    parse_yes_no,
)

PIECES = st.sampled_from(
    [*'{}[]()"\'`,:;\\/#*+-=&|<>“”’\n\t 1a', '"plan"', '"constraints"', "decisions", "WILL", "1) ", "2) ",
     "//", "/*", "*/", "```", '"""', "true", "None", "&quot;", "\\u12", "\\ud800", "</think>", "Step 1:",
     "{'a': ["]
)  # fmt: skip
REPLIES = st.one_of(
    st.text(max_size=300),
    st.text(alphabet=st.characters(), max_size=50),
    st.lists(PIECES, max_size=80).map("".join),
)
WORDS = st.text(alphabet="abc _-.é\"'\\\n", max_size=30).map(lambda text: f"w{text}w")


@settings(max_examples=examples(400), deadline=None)
@given(REPLIES)
def test_any_reply_is_read_or_is_a_failure(text: str) -> None:
    found = parse_plan(text)
    assert (found.parsed is None) == (found.failure is not None) == (not found.plan)
    json.dumps(
        [found.plan, found.constraints, [each.reason for each in found.decisions]],
        ensure_ascii=False,
    ).encode()
    step = parse_candidate(text)
    assert step == " ".join(step.split())
    assert len(step) <= 400
    assert parse_yes_no(text) in (True, False, None)
    assert all(each == " ".join(each.split()) != "" for each in plan_steps(text))


@given(
    st.lists(WORDS, max_size=3, unique=True),
    st.lists(st.tuples(WORDS, st.booleans(), WORDS), max_size=3),
    WORDS,
    st.sampled_from([None, 2]),
)
def test_right_json_is_read_as_json_and_in_a_fence_to_the_same(
    constraints: list[str], decisions: list[tuple[str, bool, str]], plan: str, indent: int | None
) -> None:
    said = {
        "constraints": constraints,
        "decisions": [
            {"constraint": name, "decision": "WILL_ENFORCE" if will else "CANNOT_ENFORCE", "reason": why}
            for name, will, why in decisions
        ],
        "plan": plan,
    }  # fmt: skip
    text = json.dumps(said, indent=indent)
    found, fenced = parse_plan(text), parse_plan(f"Here:\n```json\n{text}\n```\n")
    assert (found.parsed, fenced.parsed) == ("json", "repaired")
    assert found.plan == fenced.plan == plan
    assert found.constraints == fenced.constraints
    assert found.decisions == fenced.decisions
    assert [each.enforced for each in found.decisions] == [will for _, will, _ in decisions]


HOSTILE = {
    "brackets": "[" * MAX_REPLY_LETTERS,
    "braces": "{" * (MAX_REPLY_LETTERS // 2) + "}" * (MAX_REPLY_LETTERS // 2),
    "objects": '{"plan":' * (MAX_REPLY_LETTERS // 8),
    "objects in pairs": "{}" * (MAX_REPLY_LETTERS // 2),
    "keys": '{"a":' + '"b":' * 24_000,
    "quotes": '{"plan": ' + '"' * 90_000,
    "quotes and space": '{"plan": ' + '" ' * 45_000,
    "quotes and lines": '{"plan": ["' + '"\n' * 45_000,
    "a quote, then lines": '{"plan": "a"' + "\n" * 90_000 + "x",
    "commas": "{" + "," * 90_000,
    "quotes and commas": '{"plan": "' + '",' * 45_000,
    "a quote, then commas": '{"plan": "a"' + ", " * 45_000 + "x",
    "colons": '{"plan"' + ":" * 90_000,
    "comments": '{"plan": ' + "/*" * 45_000,
    "stars": '{"plan": /*' + "*" * 90_000,
    "backslashes": '{"plan": "' + "\\" * 90_000,
    "escaped": '{\\"plan\\": ' + '\\"' * 45_000,
    "apostrophes": "{'plan': '" + "it's " * 18_000,
    "numbers": "1) " * 30_000,
    "counting": " ".join(f"{n}) a" for n in range(1, 12_000)),
    "steps": "step " * 20_000,
    "spaces": "1" + " " * 90_000 + ")",
    "lines": "\n" * 90_000 + "- a",
    "tabs": ("\t" * 300 + "\n") * 300,
    "stars alone": "*" * 90_000,
    "starts": '{"x": 1} ' * 11_000,
    "wrappers": '{"a": ' * 30 + '"{" ' * 9_000,
    "think": "</think>" * 12_000,
    "entities": "&quot;" * 16_000,
    "decisions": '{"decisions": ["' + "a" * 90_000,
    "decision lines": '{"decisions": "' + "a: " * 30_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_replies_end_soon(name: str) -> None:
    text = HOSTILE[name]
    assert len(text) <= MAX_REPLY_LETTERS
    start = process_time()
    parse_plan(text)
    parse_candidate(text)
    parse_yes_no(text)
    plan_steps(text)
    # milliseconds where work grows with the length; minutes where it grows with its square
    assert process_time() - start < 5
