"""What a planning agent writes, and what is read out of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.broken_plans import CORPUS, GOOD, Broken

from suffice.llm.wire import schema_text
from suffice.loops.planning.parsing import PLAN_SCHEMA, parse_candidate, parse_plan, parse_yes_no


@pytest.mark.parametrize("broken", CORPUS, ids=lambda broken: broken.name)
def test_a_reply_is_read_at_the_level_expected(broken: Broken) -> None:
    found = parse_plan(broken.text)
    assert (found.parsed, found.failure) == (broken.level, broken.failure)
    assert found.plan == broken.plan
    assert found.constraints == broken.constraints
    decisions = tuple((each.constraint, each.enforced, each.reason) for each in found.decisions)
    assert decisions == broken.decisions


def test_the_schema_is_json_with_the_plan_last() -> None:
    schema: dict[str, Any] = json.loads(schema_text(PLAN_SCHEMA))
    # decisions are made before the plan that carries them out
    assert list(schema["properties"]) == schema["required"] == ["constraints", "decisions", "plan"]
    assert list(json.loads(GOOD)) == schema["required"]
    verdict = schema["properties"]["decisions"]["items"]["properties"]["decision"]
    assert verdict["enum"] == ["WILL_ENFORCE", "CANNOT_ENFORCE"]


STEP = "Enable TLS on port 443."


@pytest.mark.parametrize(
    "text",
    [
        STEP,
        f"\n\n  {STEP}\nThen test.",
        f"1) {STEP}",
        f"* **{STEP}**",
        f"**Step 3:** {STEP}",
        f"Next step:\n1. {STEP}",
        f"Proposed next action: {STEP}",
        f"“{STEP}”",
        f'"{STEP}',
        f"Sure! Here is the next step: {STEP}",
        f"Here is the next step:\n\n{STEP}",
        f"> {STEP}",
        f"```\n{STEP}\n```",
        "Enable   TLS\ton port 443.",
        f'{{"step": "{STEP}"}}',
        f'```json\n{{"next_step": "{STEP}"}}\n```',
        f"<think>1. hm</think>\n{STEP}",
    ],
)
def test_a_candidate_is_the_step_without_what_stands_around_it(text: str) -> None:
    assert parse_candidate(text) == STEP


@pytest.mark.parametrize(
    "text",
    ["", "\n \n", "...", "---", "```", "Next step:", "None", "N/A.", "1)", "{}", '{"step": ""}', "[" * 99],
)  # fmt: skip
def test_no_candidate(text: str) -> None:
    assert parse_candidate(text) == ""


def test_a_candidate_keeps_what_belongs_to_it() -> None:
    for step in (
        'Set the mode to "strict"',
        "Use TLS 1.3: it is newer",
        "2FA is enabled for all users",
        "Plan the subnets",
        "Add __init__ and *.example.org",
    ):
        assert parse_candidate(step) == step
    assert parse_candidate("word " * 200) == ("word " * 80).strip()
    assert len(parse_candidate("a" * 500)) == 400


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (" Yes, the region is unknown.", True),
        ("No. All is known, yes.", False),
        ("**Yes**", True),
        ("Final answer: yes", True),
        ('{"answer": "no"}', False),
        ("N", False),
        ("True", True),
        ("The plan needs no more evidence.", False),
        ("<think>yes or no</think>NO", False),
        ("Yes/No", None),
        ("maybe", None),
        ("Know your nose", None),
        ("", None),
    ],
)
def test_a_yes_or_no(text: str, verdict: bool | None) -> None:
    assert parse_yes_no(text) is verdict
