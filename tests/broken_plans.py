"""Final replies as models write them, with what is to be read out of each."""

from __future__ import annotations

from dataclasses import dataclass, field

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
PYTHON = GOOD.replace('"', "'")
ESCAPED = GOOD.replace('"', '\\"')
DECISION = f'{{"constraint": "{HTTP}", "decision": "WILL_ENFORCE", "reason": "{WHY}"}}'


def lost(name: str, text: str, failure: str) -> Broken:
    """Of which nothing can be read."""
    return Broken(
        name=name, text=text, level=None, plan="", constraints=(), decisions=(), failure=failure
    )


def saved(name: str, text: str, plan: str) -> Broken:
    """A numbered plan without an object."""
    return Broken(name=name, text=text, level="salvaged", plan=plan, constraints=(), decisions=())


def decided(name: str, verdict: str, *, enforced: bool) -> Broken:
    """A verdict spelled otherwise."""
    return Broken(
        name=name,
        text=GOOD.replace('"WILL_ENFORCE"', verdict),
        decisions=((HTTP, enforced, WHY),),
    )


def planned(name: str, plan: str, read: str = PLAN) -> Broken:
    """A plan that is no text."""
    return Broken(name=name, text=GOOD.replace(f'"{PLAN}"', plan), plan=read)


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
    Broken(name="HTML", text=GOOD.replace('"', "&quot;")),
    Broken(name="HTML numbers", text=GOOD.replace('"', "&#34;")),
    Broken(name="escaped", text=ESCAPED),
    Broken(name="a text that holds JSON", text=f'"{ESCAPED}"'),
    # --- wrappers
    Broken(name="output", text=f'{{"output": {GOOD}}}'),
    Broken(name="output in a result", text=f'{{"result": {{"output": {GOOD}}}}}'),
    Broken(name="list of one", text=f"[{GOOD}]"),
    Broken(name="wrapped text", text=f'{{"output": "{ESCAPED}"}}'),
    Broken(name="wrapped list of one", text=f'{{"id": 7, "response": [{GOOD}]}}'),
    # --- quotes
    Broken(name="single quotes", text=PYTHON),
    Broken(
        name="apostrophes in single quotes",
        text="{'constraints': [], 'decisions': [], 'plan': '1) Don't open port 80. 2) It's done.'}",
        plan="1) Don't open port 80. 2) It's done.", constraints=(), decisions=(),
    ),
    Broken(name="smart quotes", text=GOOD.replace('{"', "{“").replace('"', "”")),
    Broken(name="curly on both sides", text=GOOD.replace('"', "”")),
    Broken(name="unquoted keys", text=GOOD.replace('"plan"', "plan").replace('"decisions"', "decisions")),
    Broken(name="unquoted verdict", text=GOOD.replace('"WILL_ENFORCE"', "WILL_ENFORCE")),
    planned("triple quotes", f'"""{PLAN}"""'),
    planned(
        "quotes inside",
        '"1) Set the mode to "strict" and go on. 2) Say "done"."',
        '1) Set the mode to "strict" and go on. 2) Say "done".',
    ),
    planned("quotes and a comma inside", '"1) Call it "a", then "b"."', '1) Call it "a", then "b".'),
    planned("an unknown escape", r'"1) Match \d+ there."', r"1) Match \d+ there."),
    planned("escapes", r"'1) caf\u00e9 \ud83d\ude00 \t 2) \ud83d \u12'", "1) café 😀 \t 2) � \\u12"),
    planned("added texts", '"1) Open port 443. " + "2) Set disable_plaintext_http_002 on the listener."'),
    # --- commas, comments, line ends
    Broken(name="trailing commas", text=GOOD.replace("]", ",]").replace("}", ",}")),
    Broken(name="doubled commas", text=GOOD.replace('", ', '",, ')),
    Broken(name="no comma between fields", text=GOOD.replace('], "', ']\n"')),
    Broken(name="line comment", text=GOOD.replace('"decisions"', '// what I do\n"decisions"')),
    Broken(name="hash comment", text=GOOD.replace('"decisions"', '# what I do\n"decisions"')),
    Broken(name="block comment", text=GOOD.replace('"decisions"', '/* what "I" do */ "decisions"')),
    planned("raw line ends", PLAN.replace(" 2)", "\n2)").join('""'), PLAN.replace(" 2)", "\n2)")),
    planned("a raw tab", '"1) Open\tport 443."', "1) Open\tport 443."),
    Broken(name="equals for colons", text=GOOD.replace('": ', '" = ')),
    Broken(
        name="None and True",
        text=f"{{'constraints': None, 'decisions': [{{'constraint': '{HTTP}', 'enforced': True, "
        f"'reason': None}}], 'plan': '{PLAN}'}}",
        constraints=(), decisions=((HTTP, True, ""),),
    ),
    Broken(name="keys twice", text=GOOD[:-1] + f', "plan": "{PLAN}"}}'),
    Broken(name="keys twice, the last empty", text=GOOD[:-1] + ', "plan": ""}'),
    Broken(name="keys twice, the last counts", text='{"plan": "1) Draft.", ' + GOOD[1:]),
    # --- cut
    Broken(name="cut after the plan", text=GOOD[:-1]),
    Broken(name="cut in the plan", text=GOOD[:-14], plan=PLAN[:-12]),
    Broken(name="cut after a backslash", text=GOOD[:-14] + "\\", plan=PLAN[:-12]),
    Broken(name="a list never closed", text=GOOD.replace('"], "decisions"', '", "decisions"')),
    Broken(name="a list never opened", text=GOOD.replace(f'["{HTTP}"]', f'"{HTTP}"]')),
    Broken(name="a decision never closed", text=GOOD.replace('"}]', '"]')),
    Broken(name="a bracket too many", text=GOOD.replace('"}]', '"}]]')),
    Broken(name="a brace too few around lists", text=GOOD.replace('"}], ', '"}, ')),
    Broken(
        name="cut before the plan",
        text=GOOD[: GOOD.index(', "plan"')],
        level=None, plan="", failure="an object without a plan",
    ),
    Broken(
        name="cut in a verdict",
        text=GOOD[: GOOD.index("_ENFORCE")],
        level=None, plan="", decisions=((HTTP, True, ""),), failure="an object without a plan",
    ),
    Broken(
        name="cut in the constraints",
        text=GOOD[:24],
        level=None, plan="", constraints=(GOOD[18:24],), decisions=(), failure="an object without a plan",
    ),
    # --- fields of another kind
    planned("list of steps", str(list(STEPS)).replace("'", '"')),
    planned("list of numbered steps", f'["1) {STEPS[0]}", "2. {STEPS[1]}"]'),
    planned(
        "list of objects",
        f'[{{"step": 1, "action": "{STEPS[0]}"}}, {{"step": 2, "action": "{STEPS[1]}"}}]',
    ),
    planned("object of steps", f'{{"1": "{STEPS[0]}", "2": "{STEPS[1]}"}}'),
    planned("steps in the plan", f'{{"steps": ["{STEPS[0]}", "{STEPS[1]}"]}}'),
    decided("small letters", '"will enforce"', enforced=True),
    decided("spaces", '"WILL ENFORCE"', enforced=True),
    decided("cannot in words", '"Can not enforce"', enforced=False),
    decided("can't", '"can\'t enforce"', enforced=False),
    decided("won't", '"won’t enforce"', enforced=False),
    decided("true", "true", enforced=True),
    decided("False", "False", enforced=False),
    decided("yes", '"Yes"', enforced=True),
    decided("a number", "0", enforced=False),
    Broken(name="neither", text=GOOD.replace("WILL_ENFORCE", "PERHAPS"), decisions=()),
    Broken(name="other letters in keys", text=GOOD.replace('"plan"', '"Final Plan"').replace(
        '"constraints"', '"Constraints"')),
    Broken(name="constraints as a text", text=GOOD.replace(f'["{HTTP}"]', f'"{HTTP}, {LOGS}"', 1),
           constraints=(HTTP, LOGS)),
    Broken(name="constraints as objects", text=GOOD.replace(f'["{HTTP}"]', f'[{{"token": "{HTTP}"}}]', 1)),
    Broken(name="constraints twice", text=f"[{GOOD}]".replace(f'["{HTTP}"]', f'["{HTTP}", "{HTTP}"]', 1)),
    Broken(
        name="decisions by constraint",
        text=GOOD.replace(f"[{DECISION}]", f'{{"{HTTP}": "WILL_ENFORCE"}}'),
        decisions=((HTTP, True, ""),),
    ),
    Broken(
        name="reasons by constraint",
        text=GOOD.replace(f"[{DECISION}]", f'{{"{HTTP}": {{"decision": "CANNOT", "reason": "{WHY}"}}}}'),
        decisions=((HTTP, False, WHY),),
    ),
    Broken(name="one decision", text=GOOD.replace(f"[{DECISION}]", DECISION)),
    Broken(
        name="decisions as lines",
        text=GOOD.replace(f"[{DECISION}]", f'["{HTTP}: CANNOT_ENFORCE - {WHY}"]'),
        decisions=((HTTP, False, WHY),),
    ),
    Broken(name="the plan alone", text=f'{{"plan": "{PLAN}"}}', constraints=(), decisions=()),
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
    lost("too deep", '{"plan": ' * 60, "brackets nested deeper than 40"),
    lost("too late", "a" * 100_000 + '{"plan": ["Add TLS"]}', "neither a JSON object nor numbered steps"),
)  # fmt: skip
