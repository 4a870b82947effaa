"""What a planning agent writes, and what is read out of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from suffice.llm.wire import schema_text
from suffice.loops.planning.parsing import PLAN_SCHEMA, parse_candidate, parse_plan, parse_yes_no

HTTP = "disable_plaintext_http_002"
LOGS = "keep_audit_logs_017"
PLAN = f"1) Open port 443. 2) Set {HTTP} on the listener."
WHY = "the listener allows it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    name: str
    text: str
    level: str | None = "repaired"
    plan: str = PLAN
    constraints: tuple[str, ...] = (HTTP,)
    # constraint, enforced, reason
    decisions: tuple[tuple[str, bool, str], ...] = field(default=((HTTP, True, WHY),))
    failure: str | None = None


GOOD = (
    f'{{"constraints": ["{HTTP}"], "decisions": [{{"constraint": "{HTTP}", "decision": "WILL_ENFORCE", '
    f'"reason": "{WHY}"}}], "plan": "{PLAN}"}}'
)


def lost(name: str, text: str, failure: str) -> Broken:
    return Broken(
        name=name, text=text, level=None, plan="", constraints=(), decisions=(), failure=failure
    )


def saved(name: str, text: str, plan: str) -> Broken:
    return Broken(name=name, text=text, level="salvaged", plan=plan, constraints=(), decisions=())


def decided(name: str, verdict: str, *, enforced: bool) -> Broken:
    return Broken(
        name=name,
        text=GOOD.replace('"WILL_ENFORCE"', verdict),
        level="json",
        decisions=((HTTP, enforced, WHY),),
    )


def planned(name: str, plan: str, read: str = PLAN) -> Broken:
    return Broken(name=name, text=GOOD.replace(f'"{PLAN}"', plan), level="json", plan=read)


STEPS = ("Open port 443.", f"Set {HTTP} on the listener.")

CORPUS = (
    # --- right as they are
    Broken(name="good", text=GOOD, level="json"),
    Broken(name="good with white space", text=f"\n  {GOOD}\n\n", level="json"),
    Broken(name="good with another field", text=GOOD[:-1] + ', "notes": 3}', level="json"),
    Broken(
        name="good and empty",
        text='{"constraints": [], "decisions": [], "plan": "1) Wait."}',
        level="json", plan="1) Wait.", constraints=(), decisions=(),
    ),
    # --- text around it
    Broken(name="fence", text=f"```json\n{GOOD}\n```"),
    Broken(name="fence without a word", text=f"```\n{GOOD}\n```"),
    Broken(name="fence never closed", text=f"```json\n{GOOD}"),
    Broken(name="prose before", text=f"Sure! Here is the result:\n{GOOD}"),
    Broken(name="prose after", text=f"{GOOD}\n\nLet me know whether {{this}} helps."),
    Broken(name="braces before", text=f"For the task {{goal}} I propose {GOOD}"),
    Broken(name="BOM", text=f"\ufeff{GOOD}"),
    Broken(name="NUL", text=f"\0{GOOD}", level="json"),
    Broken(name="thoughts", text=f'<think>{{"plan": "1) no"}} hm</think>\n{GOOD}'),
    Broken(name="two objects", text=GOOD + '\nJSON: {"constraints": [], "plan": "1) Other."}'),
    Broken(
        name="half a character",
        text=GOOD.replace(HTTP, "a\\ud800").replace(WHY, "b\\udfff\\u0000").replace("Open", "\\ud83d Open"),
        level="json", plan="1) � Open port 443. 2) Set a� on the listener.",
        constraints=("a�",), decisions=(("a�", True, "b�"),),
    ),
    Broken(name="two full objects", text=f"{GOOD}\n{GOOD.replace(HTTP, LOGS)}"),
    Broken(name="echoed form", text='{"constraints": [...], "decisions": [...], "plan": "..."}\n' + GOOD),
    Broken(name="the cue said again", text=f"JSON: {GOOD}\nJSON: {GOOD}"),
    # --- wrappers
    Broken(name="output", text=f'{{"output": {GOOD}}}'),
    Broken(name="list of one", text=f"[{GOOD}]"),
    # --- commas and line ends
    Broken(name="trailing commas", text=GOOD.replace("]", ",]").replace("}", ",}")),
    # --- as Python and JavaScript write it, and quotes of people
    Broken(name="single quotes", text=GOOD.replace('"', "'")),
    Broken(name="keys without quotes", text=GOOD.replace('"plan"', "plan")),
    Broken(name="a missing comma", text=GOOD.replace('", "plan"', '" "plan"').replace('], "', '] "')),
    Broken(name="a comment", text=GOOD.replace('"plan"', '// the plan\n "plan"')),
    Broken(name="curly quotes", text=GOOD.replace('"plan"', "“plan”")),
    Broken(name="None of Python", text=GOOD[:-1] + ', "note": None}'),
    planned("raw line ends", PLAN.replace(" 2)", "\n2)").join('""'), PLAN.replace(" 2)", "\n2)")),
    planned("a raw tab", '"1) Open\tport 443."', "1) Open\tport 443."),
    Broken(name="keys twice", text='{"plan": "1) Draft.", ' + GOOD[1:], level="json"),
    # --- cut
    Broken(name="cut after the plan", text=GOOD[:-1]),
    Broken(name="cut in the plan", text=GOOD[:-14], plan=PLAN[:-12]),
    Broken(name="cut after a backslash", text=GOOD[:-14] + "\\", plan=PLAN[:-12]),
    Broken(
        name="cut before the plan",
        text=GOOD[: GOOD.index(', "plan"')],
        level=None, plan="", failure="an object without a plan",
    ),
    Broken(
        name="cut in a verdict",
        text=GOOD[: GOOD.index("_ENFORCE")],
        level=None, plan="", decisions=(), failure="an object without a plan",
    ),
    Broken(
        name="cut in the constraints",
        text=GOOD[:24],
        level=None, plan="", constraints=(GOOD[18:24],), decisions=(), failure="an object without a plan",
    ),
    # --- fields of another kind
    planned("list of steps", str(list(STEPS)).replace("'", '"')),
    planned("list of numbered steps", f'["1) {STEPS[0]}", "2. {STEPS[1]}"]'),
    decided("small letters", '"will enforce"', enforced=True),
    decided("spaces", '"CANNOT ENFORCE"', enforced=False),
    decided("true", "true", enforced=True),
    Broken(name="neither", text=GOOD.replace("WILL_ENFORCE", "PERHAPS"), level="json", decisions=()),
    Broken(name="constraints as a text", text=GOOD.replace(f'["{HTTP}"]', f'"{HTTP}"', 1),
           level="json", constraints=()),
    Broken(name="constraints twice", text=f"[{GOOD}]".replace(f'["{HTTP}"]', f'["{HTTP}", "{HTTP}"]', 1)),
    Broken(name="the plan alone", text=f'{{"plan": "{PLAN}"}}', level="json", constraints=(), decisions=()),
    # --- no object
    saved("a numbered plan", f"Plan: {PLAN}", PLAN),
    saved("a plan in lines", f"1. {STEPS[0]}\n2. {STEPS[1]}\n\nThat is all.", PLAN),
    saved("a plan in markdown", f"## Plan\n\n**Step 1:** {STEPS[0]}\n\n**Step 2:** {STEPS[1]}", PLAN),
    saved("a plan with sub-steps", f"1. {STEPS[0]}\n   1. Ask.\n   2. Do.\n2. {STEPS[1]}",
          f"1) {STEPS[0]} 1. Ask. 2. Do. 2) {STEPS[1]}"),
    # --- nothing
    lost("empty", "", "empty reply"),
    lost("white space", " \n\t ", "empty reply"),
    lost("thoughts alone", "<think>hm</think>", "empty reply"),
    lost("prose", "I cannot help with that.", "neither a JSON object nor numbered steps"),
    lost("one number", "1) Open port 443.", "neither a JSON object nor numbered steps"),
    lost("another object", '{"answer": "Paris"}', "neither a JSON object nor numbered steps"),
    lost("brackets", "[" * 9000, "neither a JSON object nor numbered steps"),
    lost("the form alone", '{"constraints": [], "decisions": [], "plan": "..."}', "an object without a plan"),
    lost("too deep", '{"plan": ' * 60, "an object without a plan"),
    lost("too late", "a" * 100_000 + '{"plan": ["Add TLS"]}', "neither a JSON object nor numbered steps"),
)  # fmt: skip


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
