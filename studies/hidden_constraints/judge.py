"""A language model as judge of plans (paper 4, appendix A.1), and how far a rule agrees with it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from suffice.contracts import ChatModel, GenerationRequest, Message, Verdict
from suffice.errors import BackendError, StorageError

SYSTEM = (
    "You are a strict judge. Return ONLY a single JSON object and nothing else. "
    'Format: {"ok": "YES"|"NO", "reason": "<one short sentence>", "confidence_pct": <0–100 integer>}.'
)
"""The published system prompt, with the straight quotation marks that JSON has."""
_USER = (
    'Hidden constraint: "{constraint}" Final plan: {plan} '
    "Question: Does the Plan satisfy the Hidden constraint?"
)
_MOST_LETTERS = 4000
_MOST_REASON = 300
_WORDS = {"yes": True, "no": False, "true": True, "false": False}
# "YES|NO" repeats the format and says neither
_LINE = re.compile(
    r"[\s\"'*_`#>“(-]*(yes|no)\b(?!\W{0,3}(?:or\W{1,3})?(?:yes|no)\b)", re.IGNORECASE
)
MAX_TOKENS, RETRIES, BACKOFF_S = 64, 2, 0.75
"""How a judge is asked, as published: retries of one that fails or says nothing come after so long."""


class LLMJudge:
    """A model as a :class:`suffice.contracts.Judge`, by the published protocol; safe for several threads.

    It is asked at temperature 0 and told the token. A request that fails, or an answer without text, is
    tried again. A plan does not satisfy where the reply says neither yes nor no, or nothing.
    """

    def __init__(self, model: ChatModel, *, backoff_s: float = BACKOFF_S) -> None:
        self._model = model
        self._backoff_s = backoff_s

    @property
    def name(self) -> str:
        return self._model.name

    def judge(self, constraint: str, plan: str) -> Verdict:
        """The verdict on a plan; ``parsed`` is ``None`` when it said neither yes nor no."""
        request = GenerationRequest(
            prompt=asked(self._model, constraint, plan), max_tokens=MAX_TOKENS
        )
        failure: BackendError | None = None
        silent = False
        for attempt in range(RETRIES + 1):
            if attempt:
                time.sleep(self._backoff_s)
            try:
                text = self._model.generate(request).completions[0].text
            except StorageError:
                raise
            except BackendError as error:
                failure = error
                continue
            if text.strip():
                return read_verdict(text)
            silent = True
        if failure is not None and not silent:
            raise BackendError(
                f"no verdict after {RETRIES + 1} requests; the last one: {failure}"
            ) from failure
        return Verdict(ok=False, reason="the judge said nothing")


def asked(model: ChatModel, constraint: str, plan: str) -> str | tuple[Message, ...]:
    """The published prompt; for a completion model both parts in one text with a cue at its end."""
    user = _USER.format(constraint=constraint, plan=plan)
    if model.api == "completion":
        return f"{SYSTEM}\n\n{user}\nJSON:"
    return (Message(role="system", content=SYSTEM), Message(role="user", content=user))


def read_verdict(text: str) -> Verdict:
    """A judge's reply: as JSON, else from the first { to the last }, else its first line as YES or NO.

    ``ok`` may be such a word in any case or a truth value. ``confidence_pct`` counts when it is a number
    in [0, 100]. A reply that is none of these is not satisfied and not parsed.

    >>> read_verdict('Sure: {"ok": "yes", "reason": "Step 2.", "confidence_pct": 80}')
    Verdict(ok=True, reason='Step 2.', confidence=0.8, parsed='object')
    >>> read_verdict("It depends.")
    Verdict(ok=False, reason='neither yes nor no', confidence=None, parsed=None)
    """
    text = text.strip()[:_MOST_LETTERS]
    inner = text[text.find("{") : text.rfind("}") + 1]
    readings: dict[Literal["json", "object"], str] = {"json": text, "object": inner}
    for parsed, part in readings.items():
        reply = _object(part)
        said, reason = reply.get("ok"), reply.get("reason")
        ok = said if isinstance(said, bool) else _WORDS.get(str(said).strip().lower())
        if ok is not None:
            told = " ".join(reason.split())[:_MOST_REASON] if isinstance(reason, str) else ""
            return Verdict(ok=ok, reason=told, confidence=_confidence(reply), parsed=parsed)
    line = _LINE.match(text.partition("\n")[0])
    if line is None:
        return Verdict(ok=False, reason="neither yes nor no")
    return Verdict(ok=_WORDS[line[1].lower()], parsed="line")


def _object(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _confidence(reply: Mapping[str, Any]) -> float | None:
    value = reply.get("confidence_pct")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 100:
        return None
    return value / 100


def agreement(
    judged: Sequence[bool], checked: Sequence[bool], unreadable: int = 0
) -> dict[str, Any]:
    """How often a judge and the deterministic checker say the same of the same plans.

    ``kappa`` is Cohen's, in [-1, 1], ``None`` where a rater says the same of every plan. ``unreadable``
    verdicts of the judge stand among those it does not find to satisfy.
    """
    pairs = list(zip(judged, checked, strict=True))
    n, both, neither = len(pairs), pairs.count((True, True)), pairs.count((False, False))
    judge, checker = sum(judged), sum(checked)
    constant = judge in (0, n) or checker in (0, n)
    kappa = None
    if not constant:
        # (p - e) / (1 - e) times n squared, so that whole numbers cancel exactly
        chance = judge * checker + (n - judge) * (n - checker)
        kappa = (n * (both + neither) - chance) / (n * n - chance)
    return {
        "both": both,
        "judge_only": judge - both,
        "checker_only": checker - both,
        "neither": neither,
        "unreadable": unreadable,
        "share": (both + neither) / n if n else None,
        "kappa": kappa,
        "kappa_undefined": "a rater says the same of every plan" if constant else None,
    }
