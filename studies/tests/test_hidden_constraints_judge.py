"""The judge's published protocol: its prompt, its replies, what is tried again."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from studies.hidden_constraints.judge import LLMJudge, agreement, read_verdict

from suffice.contracts import Message, Verdict
from suffice.testing.models import Failures, ScriptedModel

TOKEN = "disable_plaintext_http_002"
PLAN = "1) Open the queue. 2) Enforce disable_plaintext_http_002."
YES = '{"ok": "YES", "reason": "Step 2.", "confidence_pct": 90}'

READ = [
    (YES, True, "json"),
    ('{"ok": "NO", "reason": "None.", "confidence_pct": 90}', False, "json"),
    ('  {"ok":"yes"}\n', True, "json"),
    ('{"ok": true}', True, "json"),
    ('{"ok": "FALSE"}', False, "json"),
    ('```json\n{"ok": "YES"}\n```', True, "object"),
    ('Here is my verdict: {"ok": "NO", "reason": "It says {nothing}."} Thanks.', False, "object"),
    ('YES, since {"ok": "NO"}', False, "object"),
    ("YES", True, "line"),
    ("**Yes**, step 2 does.", True, "line"),
    ('"NO"\n{"ok"', False, "line"),
    ("\n\nYes\nNo", True, "line"),
    ('YES {"ok": "maybe"}', True, "line"),
    ('No, {"ok": "YES"} {"ok": "YES"}', False, "line"),
]
UNREAD = [
    '{"ok": "YES", "reason": "The plan names the contr',
    '{"ok": "YES"|"NO", "reason": "<one short sentence>"}',
    '{"ok": "YES|NO"}',
    '{"ok": "maybe"}',
    '{"ok": 1}',
    '{"verdict": "YES"}',
    '["YES"]',
    "YES|NO",
    "YES / NO",
    "Nee, het plan noemt de maatregel niet.",
    "Notably the plan enforces it.",
    "The plan satisfies the constraint: YES",
    "It depends.\nYES",
    "",
    "[" * 3000,
    '{"ok":' * 600,
    '{"ok": "YES"' + " " * 4000 + "}",
]


@pytest.mark.parametrize(("text", "ok", "parsed"), READ)
def test_replies_that_say_yes_or_no(text: str, ok: bool, parsed: str) -> None:
    verdict = read_verdict(text)
    assert (verdict.ok, verdict.parsed) == (ok, parsed)


@pytest.mark.parametrize("text", UNREAD)
def test_replies_that_say_neither(text: str) -> None:
    assert read_verdict(text) == Verdict(ok=False, reason="neither yes nor no")


# --- asking ----------------------------------------------------------------------------------


def test_the_published_prompt() -> None:
    model = ScriptedModel([YES], api="chat")
    verdict = LLMJudge(model).judge(TOKEN, PLAN)
    assert verdict == Verdict(ok=True, reason="Step 2.", confidence=0.9, parsed="json")
    (request,) = model.requests
    assert (request.n, request.temperature, request.max_tokens) == (1, 0.0, 64)
    assert request.prompt == (
        Message(
            role="system",
            content="You are a strict judge. Return ONLY a single JSON object and nothing else. Format: "
            '{"ok": "YES"|"NO", "reason": "<one short sentence>", "confidence_pct": <0–100 integer>}.',
        ),
        Message(
            role="user",
            content=f'Hidden constraint: "{TOKEN}" Final plan: {PLAN} '
            "Question: Does the Plan satisfy the Hidden constraint?",
        ),
    )


def judge_of(replies: Sequence[str], *, failures: int = 0) -> tuple[LLMJudge, ScriptedModel]:
    model = ScriptedModel(replies, api="chat", failures=Failures(first=failures))
    return LLMJudge(model, backoff_s=0), model


@pytest.mark.parametrize(
    ("replies", "failures", "parsed", "asked"),
    [
        (["", " \n", YES], 0, "json", 3),
        ([YES], 2, "json", 3),
        (["Perhaps."], 0, None, 1),  # says neither, and is not asked again
        (["", "", ""], 0, None, 3),
        (["", ""], 1, None, 3),
    ],
)
def test_failures_and_silence_are_tried_again(
    replies: list[str], failures: int, parsed: str | None, asked: int
) -> None:
    judge, model = judge_of(replies, failures=failures)
    assert judge.judge(TOKEN, PLAN).parsed == parsed
    assert len(model.requests) == asked


# --- agreement -------------------------------------------------------------------------------
def test_agreement_by_hand() -> None:
    # 20 plans: both 8, judge only 2, checker only 3, neither 7
    judged = [True] * 10 + [False] * 10
    checked = [True] * 8 + [False] * 2 + [True] * 3 + [False] * 7
    found = agreement(judged, checked)
    parts = ("both", "judge_only", "checker_only", "neither", "share", "kappa_undefined")
    assert [found[part] for part in parts] == [8, 2, 3, 7, 0.75, None]
    # chance: .5 * .55 + .5 * .45 = .5
    assert found["kappa"] == pytest.approx((0.75 - 0.5) / (1 - 0.5))


@pytest.mark.parametrize(
    ("judged", "checked"),
    [([], []), ([False, False], [True, False]), ([True, False], [True, True])],
)
def test_kappa_is_undefined_where_one_rater_is_constant(
    judged: list[bool], checked: list[bool]
) -> None:
    found = agreement(judged, checked)
    assert (found["kappa"], found["kappa_undefined"] is None) == (None, False)
