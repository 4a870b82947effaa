"""Read what a planning agent wrote: the final plan, one next step, a yes or no."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Literal

from suffice.loops.planning.fields import (
    PlanFields,
    clean_text,
    field_name,
    has_words,
    joined_steps,
    numbered_steps,
    plain_key,
    read_fields,
)
from suffice.loops.planning.loose_json import TooDeep, read_loose
from suffice.protocols import MAX_REPLY_LETTERS, strict_json
from suffice.trace.plans.records import ConstraintDecision

MAX_CANDIDATE = 400
_MAX_STARTS = 20
_MAX_READ = MAX_REPLY_LETTERS  # once they are read, no further try begins
_MAX_WRAPPERS = 4

# servers turn bounds into rules of a grammar; llama.cpp allows 2,000 repetitions
PLAN_SCHEMA: Mapping[str, Any] = MappingProxyType(
    {
        "type": "object",
        "properties": {
            "constraints": {
                "type": "array",
                "items": {"type": "string", "maxLength": 120},
                "maxItems": 6,
            },
            "decisions": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "constraint": {"type": "string", "maxLength": 120},
                        "decision": {"type": "string", "enum": ["WILL_ENFORCE", "CANNOT_ENFORCE"]},
                        "reason": {"type": "string", "maxLength": 120},
                    },
                    "required": ["constraint", "decision", "reason"],
                    "additionalProperties": False,
                },
                "maxItems": 6,
            },
            "plan": {"type": "string", "maxLength": 1500},
        },
        "required": ["constraints", "decisions", "plan"],
        "additionalProperties": False,
    }
)

Level = Literal["json", "repaired", "salvaged"]
_ESCAPED = re.compile(r"\{\s*+\\+[\"n]")
_JSON = re.compile(r"\s*+(?:```\w*+\s*+)?(?:\{|\[\s*+[\"'{])")
_MARKUP = re.compile(r"\*\*|`+|^\s*\#+\s*|^\s*>+\s")
_PREFIX = re.compile(
    r"(?:[-*•–▪]+\s+|\[\s?x?\]\s+|\(?\d{1,3}[.):\]](?!\d)\s*|\(?[a-z][.)]\s+"
    r"|(?:the\s+)?(?:(?:proposed|next|candidate|suggested|following|plan)\s+){0,3}"
    r"(?:step|candidate|action|task|option|answer|response|output|plan)\s*(?:\#?\d{1,3}|[a-z]\b)?"
    r"(?:\s+(?:is|would\s+be))?\s*(?::|\.(?=\s)|[-–—](?=\s))\s*"
    r"|(?:here\s+is|here's|this\s+is|sure|certainly|okay|ok)\b[^:\n]{0,60}[:!]\s*)",
    re.IGNORECASE,
)
_PAIRS = {'"': '"', "'": "'", "“": "”", "‘": "’", "*": "*", "_": "_"}
_STEP_KEYS = ("step", "nextstep", "action", "candidate", "description", "text", "plan")
_NOTHING = frozenset(
    {"none", "n/a", "na", "null", "nothing", "no further steps", "no step", "done"}
)
_VERDICT = re.compile(
    r"\W*(?:(?:final|my|the)\s+)?(?:(?:answer|verdict|response|decision|judgement|needed?)\W+)?"
    r"(?:is\W+)?(?P<word>yes|no|true|false|y|n)\b(?!\s*[/|]|\s+or\b)",
    re.IGNORECASE,
)
_YES_NO = re.compile(r"\b(?:yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPlan:
    """What a final reply says; ``parsed`` is how it was read, ``None`` exactly when ``failure`` says why not.

    Without a plan, ``constraints`` and ``decisions`` may still hold what was read.
    """

    plan: str
    constraints: tuple[str, ...] = ()
    decisions: tuple[ConstraintDecision, ...] = ()
    parsed: Level | None = None
    failure: str | None = None


def parse_plan(text: str) -> ParsedPlan:
    r"""The plan, the constraints and the decisions of a final reply, at the first level that gives a plan.

    ``json``: the whole reply is one object of :data:`PLAN_SCHEMA`'s shape; more fields do not matter.
    ``repaired``: an object with a plan, once mended: fences and text around it, quotes, commas, comments,
    brackets never closed, Python's words, escapes, wrappers, fields of other names or types. Of several
    objects the first with the most fields counts. A decision that says neither is left out.
    ``salvaged``: no object, but numbered steps. The first 100,000 letters are read.

    >>> parse_plan("```json\n{'constraints': [], 'plan': ['Open port 443', 'Add TLS'],}").plan
    '1) Open port 443 2) Add TLS'
    >>> parse_plan("I cannot help with that.").failure
    'neither a JSON object nor numbered steps'
    """
    text = clean_text(text[:MAX_REPLY_LETTERS])
    return _strict(text) or _loose(_without_thought(text))


def parse_candidate(text: str) -> str:
    r"""The one next step a free reply proposes: its first line with words; "" when there is none.

    Numbers, bullets, labels, markdown and quotes around it are taken off; at most 400 letters.

    >>> parse_candidate("**Next step:**\n1. \"Enable   TLS on the load balancer.\"\n2. Test it.")
    'Enable TLS on the load balancer.'
    """
    text = _without_thought(clean_text(text[:MAX_REPLY_LETTERS]))
    if _JSON.match(text):
        return _candidate_in_json(text)
    for line in filter(str.strip, text.splitlines()):
        step = _bare_line(line)
        if step:
            return "" if step.rstrip(".").lower() in _NOTHING else step
    return ""


def parse_yes_no(text: str) -> bool | None:
    """A verdict: the word a reply begins with, else the only one of the two it has; else ``None``.

    >>> parse_yes_no("**Answer:** Yes, the region is unknown."), parse_yes_no("maybe")
    (True, None)
    """
    text = _without_thought(text[:MAX_REPLY_LETTERS])
    start = _VERDICT.match(text)
    if start:
        return start["word"].lower() in ("yes", "true", "y")
    words = {match.group().lower() for match in _YES_NO.finditer(text)}
    return words == {"yes"} if len(words) == 1 else None


# --- levels ----------------------------------------------------------------------------------
def _failed(why: str) -> ParsedPlan:
    return ParsedPlan(plan="", failure=why)


def _parsed(fields: PlanFields, level: Level) -> ParsedPlan:
    return ParsedPlan(
        plan=fields.plan, constraints=fields.constraints, decisions=fields.decisions, parsed=level
    )


def _strict(text: str) -> ParsedPlan | None:
    try:
        value = strict_json(text)
    except (ValueError, RecursionError):
        return None
    if not _has_shape(value):
        return None
    fields = read_fields(value)
    return _parsed(fields, "json") if fields is not None else None


def _loose(text: str) -> ParsedPlan:
    if not text.strip():
        return _failed("empty reply")
    try:
        fields = _Mending().best(text)
    except TooDeep as error:
        return _failed(f"brackets {error}")
    if fields is None:
        steps = numbered_steps(text)
        if len(steps) < 2:
            return _failed("neither a JSON object nor numbered steps")
        return ParsedPlan(plan=joined_steps(steps), parsed="salvaged")
    if not fields.plan:
        return replace(_parsed(fields, "repaired"), parsed=None, failure="an object without a plan")
    return _parsed(fields, "repaired")


def _has_shape(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("plan"), str):
        return False
    constraints, decisions = value.get("constraints"), value.get("decisions")
    if not isinstance(constraints, list) or not isinstance(decisions, list):
        return False
    return (
        has_words(value["plan"])
        and all(isinstance(constraint, str) for constraint in constraints)
        and all(
            isinstance(decision, dict)
            and isinstance(decision.get("constraint"), str)
            and isinstance(decision.get("reason"), str)
            and decision.get("decision") in ("WILL_ENFORCE", "CANNOT_ENFORCE")
            for decision in decisions
        )
    )


class _Mending:
    """Tries to read objects out of one reply, within the texts of which there may be more such texts.

    Each text is tried from many braces, so the letters read are counted over all of them.
    """

    def __init__(self) -> None:
        self.left = _MAX_READ

    def best(self, text: str, wrappers: int = 0) -> PlanFields | None:
        """The best object that can be read out of a text; ``wrappers``: texts around it."""
        if "&quot;" in text or "&#34;" in text or "&#x27;" in text:
            text = html.unescape(text)
        # of a text in which the first object is, as of a wrapped one, the reader takes care
        if _ESCAPED.match(text, max(text.find("{"), 0)):
            text = text.replace("\\\\", "\\").replace('\\"', '"').replace("\\n", "\n")
        best: tuple[int, PlanFields] | None = None
        at = text.find("{")
        for _ in range(_MAX_STARTS):
            if at < 0 or self.left <= 0:
                break
            value, end = read_loose(text, at)
            self.left -= end - at
            inner = self._unwrapped(value, wrappers)
            fields = inner if isinstance(inner, PlanFields) else read_fields(inner)
            if fields is not None:
                score = 4 * bool(fields.plan) + bool(fields.constraints) + bool(fields.decisions)
                if best is None or score > best[0]:
                    best = score, fields
            at = text.find("{", end if fields is not None else at + 1)
        return None if best is None else best[1]

    def _unwrapped(self, value: object, wrappers: int) -> object:
        """The object with the fields, out of objects, lists and texts around it."""
        for _ in range(_MAX_WRAPPERS):
            if not isinstance(value, dict | list):
                break
            inside: Iterable[object] = value.values() if isinstance(value, dict) else value
            if isinstance(value, dict) and any(field_name(key) for key in value):
                break
            value = next((item for item in inside if isinstance(item, dict | list)), None) or next(
                (item for item in inside if isinstance(item, str) and "{" in item), None
            )
        if isinstance(value, str) and wrappers < _MAX_WRAPPERS:
            return self.best(value, wrappers + 1)
        return value


def _without_thought(text: str) -> str:
    """What comes after a reasoning model's thoughts."""
    _, closed, rest = text.rpartition("</think>")
    # thoughts that never end are cut by the length limit: nothing was said yet
    return rest if closed else text.partition("<think>")[0]


# --- one step --------------------------------------------------------------------------------
def _candidate_in_json(text: str) -> str:
    """The step in a reply that is JSON; "" when there is none."""
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    try:
        value, _ = read_loose(text, min(starts))
    except TooDeep:
        return ""
    for _ in range(_MAX_WRAPPERS):
        if isinstance(value, list):
            value = value[0] if value else None
        elif isinstance(value, dict):
            plain = {plain_key(key): member for key, member in value.items()}
            texts = (member for member in value.values() if isinstance(member, str))
            value = next((plain[key] for key in _STEP_KEYS if plain.get(key)), next(texts, None))
    return _bare_line(clean_text(value)) if isinstance(value, str) else ""


def _bare_line(line: str) -> str:
    """A line without what stands around its step; "" when nothing or only a heading is left."""
    if line.lstrip().startswith("```"):
        return ""
    step = " ".join(line[: 4 * MAX_CANDIDATE].split())
    before = None
    while step != before:
        before = step
        step = _unquoted(_MARKUP.sub("", step).strip())
        prefix = _PREFIX.match(step)
        step = step[prefix.end() :] if prefix else step
    if step.endswith(":") or not re.search(r"\w", step):
        return ""
    return step[:MAX_CANDIDATE].rstrip()


def _unquoted(step: str) -> str:
    """Without a pair of quotes around all of it, or a lone one at an end."""
    for opening, closing in _PAIRS.items():
        if step.startswith(opening) and step.endswith(closing) and len(step) > 1:
            inside = step[1:-1]
            if closing not in inside and opening not in inside:
                return inside.strip()
        if step.startswith(opening) and closing not in step[1:]:
            return step[1:].strip()
        if step.endswith(closing) and opening not in step[:-1] and closing not in "*_'’":
            return step[:-1].strip()
    return step
