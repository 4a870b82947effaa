"""Whatever a model writes is read in bounded time, and what is read can be stored."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from studies.hidden_constraints.checker import plan_steps
from tests.properties import examples

from suffice.loops.planning.parsing import parse_candidate, parse_plan, parse_yes_no

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
