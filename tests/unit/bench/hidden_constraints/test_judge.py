from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from typing import cast

import pytest

from studies.hidden_constraints.judge import (
    Agreement,
    JudgeSettings,
    LLMJudge,
    agreement,
    read_verdict,
)
from suffice.errors import BackendError, UsageError
from suffice.protocols import Message, Verdict
from suffice.testing.models import Failures, ScriptedModel

TOKEN = "disable_plaintext_http_002"
PLAN = "1) Open the queue. 2) Enforce disable_plaintext_http_002."
YES = '{"ok": "YES", "reason": "Step 2.", "confidence_pct": 90}'

READ = [
    (YES, True, "json"),
    ('{"ok": "NO", "reason": "None.", "confidence_pct": 90}', False, "json"),
    ('  {"ok":"yes"}\n', True, "json"),
    ('{"ok": " No "}', False, "json"),
    ('{"ok": true}', True, "json"),
    ('{"ok": false}', False, "json"),
    ('{"ok": "True"}', True, "json"),
    ('{"ok": "FALSE"}', False, "json"),
    ('```json\n{"ok": "YES"}\n```', True, "object"),
    ('Here is my verdict: {"ok": "NO", "reason": "It says {nothing}."} Thanks.', False, "object"),
    ('YES, since {"ok": "NO"}', False, "object"),
    ("YES", True, "line"),
    ("no.", False, "line"),
    ("**Yes**, step 2 does.", True, "line"),
    ('"NO"\n{"ok"', False, "line"),
    ("\n\nYes\nNo", True, "line"),
    ('YES {"ok": "maybe"}', True, "line"),
    ('YES {"reason": "no word"}', True, "line"),
    ('No, {"ok": "YES"} {"ok": "YES"}', False, "line"),
]
UNREAD = [
    '{"ok": "YES", "reason": "The plan names the contr',
    '{"ok": "YES"',
    '{"ok": "YES"|"NO", "reason": "<one short sentence>"}',
    '{"ok": "YES|NO"}',
    '{"ok": "maybe"}',
    '{"ok": 1}',
    '{"ok": null}',
    '{"ok": ["YES"]}',
    '{"verdict": "YES"}',
    '["YES"]',
    "1",
    "YES|NO",
    "yes or no",
    "YES / NO",
    "Ja.",
    "Nee, het plan noemt de maatregel niet.",
    "Notably the plan enforces it.",
    "Yesterday it did.",
    "The plan satisfies the constraint: YES",
    "It depends.\nYES",
    "",
    "{}",
    "{YES}",
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


@pytest.mark.parametrize(
    ("given", "confidence"),
    [
        ("0", 0),
        ("100", 1),
        ("62.5", 0.625),
        ("-1", None),
        ("101", None),
        ("1e999", None),
        ("NaN", None),
        ("true", None),
        ('"80"', None),
        ("null", None),
    ],
)
def test_a_confidence_out_of_range_is_ignored(given: str, confidence: float | None) -> None:
    verdict = read_verdict(f'{{"ok": "YES", "confidence_pct": {given}}}')
    assert (verdict.ok, verdict.parsed, verdict.confidence) == (True, "json", confidence)


def test_a_reason_is_one_line_of_bounded_length() -> None:
    assert read_verdict('{"ok": "NO", "reason": " a\\n b "}').reason == "a b"
    assert read_verdict('{"ok": "NO", "reason": 7}').reason == ""
    assert len(read_verdict(f'{{"ok": "NO", "reason": "{"x" * 900}"}}').reason) == 300


# --- asking ----------------------------------------------------------------------------------
class Sleeps(list[float]):
    def __call__(self, seconds: float) -> None:
        self.append(seconds)


def naps(judge: LLMJudge) -> list[float]:
    return list(cast("Sleeps", judge._sleep))


def judge_of(replies: Sequence[str], *, failures: int = 0, **rest: object) -> LLMJudge:
    model = ScriptedModel(replies, api="chat", failures=Failures(first=failures))
    return LLMJudge(model, sleep=Sleeps(), **rest)  # type: ignore[arg-type]


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


def test_a_completion_model_is_asked_in_one_text() -> None:
    model = ScriptedModel([YES], api="completion")
    assert LLMJudge(model).judge(TOKEN, "1) {braces} and %s").ok
    prompt = model.requests[0].prompt
    assert isinstance(prompt, str)
    assert prompt.startswith("You are a strict judge.")
    assert (
        'Hidden constraint: "disable_plaintext_http_002" Final plan: 1) {braces} and %s' in prompt
    )
    assert prompt.endswith("satisfy the Hidden constraint?\nJSON:")


def test_the_judge_can_be_told_the_requirement() -> None:
    model = ScriptedModel([YES], api="chat")
    judge = LLMJudge(
        model,
        requirements={TOKEN: "No HTTP."},
        settings=JudgeSettings(constraint_text="requirement"),
    )
    assert judge.judge(TOKEN, PLAN).ok
    told = model.requests[0].prompt[-1]
    assert isinstance(told, Message)
    assert f'Hidden constraint: "{TOKEN} (No HTTP.)" Final' in told.content
    with pytest.raises(UsageError, match="no requirement is known of the constraint 'other_001'"):
        judge.judge("other_001", PLAN)
    with pytest.raises(UsageError, match="give requirements"):
        LLMJudge(model, settings=JudgeSettings(constraint_text="requirement"))


def test_requirements_are_not_told_unless_wanted() -> None:
    model = ScriptedModel([YES], api="chat")
    LLMJudge(model, requirements={TOKEN: "No HTTP."}).judge(TOKEN, PLAN)
    assert "No HTTP." not in str(model.requests[0].prompt)


def test_failures_and_silence_are_tried_again() -> None:
    judge = judge_of(["", " \n", YES])
    assert judge.judge(TOKEN, PLAN).ok
    assert naps(judge) == [0.75, 0.75]
    assert (judge.calls, judge.retries, judge.unreadable) == (3, 2, 0)
    judge = judge_of([YES], failures=2)
    assert judge.judge(TOKEN, PLAN).ok
    assert (judge.calls, judge.retries, naps(judge)) == (3, 2, [0.75, 0.75])


def test_a_reply_that_says_neither_is_counted_and_not_asked_again() -> None:
    judge = judge_of(["Perhaps.", "NO", "Ja."])
    verdicts = [judge.judge(TOKEN, PLAN) for _ in range(3)]
    assert [verdict.parsed for verdict in verdicts] == [None, "line", None]
    assert not any(verdict.ok for verdict in verdicts)
    assert (judge.calls, judge.retries, judge.unreadable, naps(judge)) == (3, 0, 2, [])


def test_failure_of_everything_is_an_error() -> None:
    judge = judge_of([YES], failures=3)
    with pytest.raises(BackendError, match=r"no verdict after 3 requests; .*failure of request 3"):
        judge.judge(TOKEN, PLAN)
    assert (judge.calls, judge.retries, judge.unreadable) == (3, 2, 0)


def test_silence_of_all_is_counted_as_unreadable() -> None:
    judge = judge_of(["", "", ""])
    verdict = judge.judge(TOKEN, PLAN)
    assert verdict == Verdict(ok=False, reason="the judge said nothing")
    assert (judge.calls, judge.unreadable) == (3, 1)
    mixed = judge_of(["", ""], failures=1)
    assert mixed.judge(TOKEN, PLAN).reason == "the judge said nothing"


def test_the_fallback_is_asked_in_the_same_way() -> None:
    sleeps = Sleeps()
    first = ScriptedModel([], api="chat", failures=Failures(first=9), name="first")
    second = ScriptedModel(["", "YES"], api="completion", name="second")
    judge = LLMJudge(first, fallback=second, sleep=sleeps)
    assert judge.name == "first"
    assert judge.judge(TOKEN, PLAN).ok
    assert (len(first.requests), len(second.requests)) == (3, 2)
    assert isinstance(second.requests[0].prompt, str)
    assert (judge.calls, judge.retries, judge.fallbacks, sleeps) == (5, 3, 1, [0.75] * 3)


def test_a_judge_that_answers_needs_no_fallback() -> None:
    second = ScriptedModel([YES], api="chat")
    judge = judge_of(["Perhaps."], fallback=second)
    assert not judge.judge(TOKEN, PLAN).ok
    assert (len(second.requests), judge.fallbacks) == (0, 0)


def test_both_failing_is_an_error() -> None:
    broken = ScriptedModel([], api="chat", failures=Failures(first=9))
    judge = judge_of([], failures=9, fallback=broken)
    with pytest.raises(BackendError, match="after 6 requests"):
        judge.judge(TOKEN, PLAN)


def test_settings_change_tries_and_pauses() -> None:
    judge = judge_of(["", YES], settings=JudgeSettings(retries=1, backoff_s=0.1, max_tokens=4))
    assert judge.judge(TOKEN, PLAN).parsed is None  # four tokens cut the object off
    assert naps(judge) == [0.1]
    once = judge_of([""], settings=JudgeSettings(retries=0))
    assert once.judge(TOKEN, PLAN).parsed is None
    assert (once.calls, naps(once)) == (1, [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"constraint_text": "all"}, "must be token or requirement, found 'all'"),
        ({"retries": -1}, "retries must be at least 0, found -1"),
        ({"max_tokens": 0}, "max_tokens must be at least 1, found 0"),
        ({"backoff_s": math.nan}, "backoff_s must be at least 0, found nan"),
    ],
)
def test_settings_out_of_range(wrong: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        JudgeSettings(**wrong)  # type: ignore[arg-type]


def test_counts_hold_when_threads_ask() -> None:
    judge = LLMJudge(ScriptedModel(lambda request, index: "Perhaps.", api="chat"))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: judge.judge(TOKEN, PLAN), range(200)))
    assert (judge.calls, judge.unreadable) == (200, 200)


# --- agreement -------------------------------------------------------------------------------
def test_agreement_by_hand() -> None:
    # 20 plans: both 8, judge only 2, checker only 3, neither 7
    judged = [True] * 10 + [False] * 10
    checked = [True] * 8 + [False] * 2 + [True] * 3 + [False] * 7
    found = agreement(judged, checked)
    assert found == Agreement(both=8, judge_only=2, checker_only=3, neither=7)
    assert (found.plans, found.judge_ok, found.checker_ok) == (20, 10, 11)
    assert found.share == 0.75
    # chance: .5 * .55 + .5 * .45 = .5
    assert found.kappa == pytest.approx((0.75 - 0.5) / (1 - 0.5))
    assert found.kappa_undefined is None


def test_kappa_is_one_for_the_same_and_minus_one_for_the_opposite() -> None:
    mixed = [True, False, True, False]
    assert agreement(mixed, mixed).kappa == 1
    assert agreement(mixed, [not each for each in mixed]).kappa == -1
    assert agreement([True, True, False, False], [True, False, True, False]).kappa == 0


@pytest.mark.parametrize(
    ("judged", "checked", "why"),
    [
        ([], [], "there are no plans"),
        ([False, False], [True, False], "the judge finds none of the 2 plans to satisfy"),
        ([True, False], [True, True], "the checker finds all of the 2 plans to satisfy"),
        ([True, True], [True, True], "the judge finds all of the 2 plans to satisfy"),
    ],
)
def test_kappa_is_undefined_where_one_rater_is_constant(
    judged: list[bool], checked: list[bool], why: str
) -> None:
    found = agreement(judged, checked)
    assert (found.kappa, found.kappa_undefined) == (None, why)


def test_agreement_of_verdicts_counts_the_unreadable_ones() -> None:
    judged = [Verdict(ok=True, parsed="json"), Verdict(ok=False), Verdict(ok=False, parsed="line")]
    checked: list[Verdict | bool] = [
        Verdict(ok=True, parsed="rule"),
        True,
        Verdict(ok=False, parsed="rule"),
    ]
    found = agreement(judged, checked)
    assert found == Agreement(both=1, judge_only=0, checker_only=1, neither=1, unreadable=1)
    assert found.to_json() == {
        "both": 1,
        "judge_only": 0,
        "checker_only": 1,
        "neither": 1,
        "unreadable": 1,
        "share": pytest.approx(2 / 3),
        "kappa": pytest.approx(0.4),
        "kappa_undefined": None,
    }
    assert agreement([], []).share is None
    with pytest.raises(FrozenInstanceError):
        found.both = 3  # type: ignore[misc]


def test_verdicts_must_be_of_the_same_plans() -> None:
    with pytest.raises(UsageError, match="1 verdicts of the judge cannot be compared with 2"):
        agreement([True], [True, False])
