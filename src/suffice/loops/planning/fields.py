"""The fields of a final plan, whatever shape a model gave them, and the steps of a plan's text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from suffice.protocols import whole_text
from suffice.trace.plans.records import ConstraintDecision

_FIELDS = {
    **dict.fromkeys(("plan", "finalplan", "steps", "plansteps", "finalsteps"), "plan"),
    **dict.fromkeys(
        ("constraints", "constraint", "hiddenconstraints", "foundconstraints"), "constraints"
    ),
    **dict.fromkeys(("decisions", "constraintdecisions", "enforcement"), "decisions"),
}
_NAMED = ("constraint", "token", "name", "identifier", "id", "requirement")
_DECIDED = ("decision", "verdict", "status", "enforced", "enforce", "willenforce", "action")
_EXPLAINED = ("reason", "why", "rationale", "explanation", "justification")
_COUNTED = frozenset({"id", "number", "no", "index", "stepnumber", "order"})

_CANNOT = re.compile(
    r"(?:can|will|do|does|would|could|is|are)(?:not|nt)|[cw][ao]nt|no$|not|never|unable|false|0$|unenforce|refuse"
)
_WILL = re.compile(r"will|can|yes$|true$|1$|enforce|shall|must|do$")
_DECISION_LINE = re.compile(
    r"[-*•\s]{0,20}(?P<name>[^:=\n]{1,200}?)\s{0,5}(?::|=>|=|->|[-–—]\s)\s{0,20}"
    r"(?P<verdict>(?:will|cannot|can\s?not|can't|won't)[\s_-]{0,5}enforce)\b[\s:;,.(–—-]{0,10}"
    r"(?P<reason>[^\n]{0,400})",
    re.IGNORECASE,
)
_NUMBER = (
    r"\(?(?:step[ \t]{0,5})?\#?(?P<n>\d{1,3})[*_]{0,2}"
    r"(?P<mark>\)|[.:\]](?=[\s*_]|\Z)|[ \t]{1,5}[-–—](?=[ \t]))[*_]{0,2}"
)
_AT_LINE = re.compile(
    rf"^(?P<indent>[ \t]*+)(?:[-*•#]{{1,6}}[ \t]+)?[*_]{{0,2}}{_NUMBER}",
    re.MULTILINE | re.IGNORECASE,
)
_INLINE = re.compile(rf"(?:(?<=[\s;*>])|\A)(?P<indent>){_NUMBER}", re.IGNORECASE)
_BULLET = re.compile(r"^[ \t]*+(?:[-*•–‣▪]|->)[ \t]+", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PlanFields:
    """What an object with at least one of the three fields says; ``plan`` is empty when it has none."""

    plan: str
    constraints: tuple[str, ...]
    decisions: tuple[ConstraintDecision, ...]


def field_name(key: str) -> str | None:
    """Which of the three fields a key means; ``None``: none.

    >>> field_name("Final Plan"), field_name("title")
    ('plan', None)
    """
    return _FIELDS.get(plain_key(key))


def clean_text(text: str) -> str:
    """Without what no file of text can hold: half of a pair of surrogates, and NUL."""
    return whole_text(text).replace("\0", "")


def has_words(text: str) -> bool:
    """Whether there is a letter in it."""
    return re.search(r"[^\W\d_]", text) is not None


def plain_key(key: str) -> str:
    """A key in small letters without spaces and signs."""
    return re.sub(r"[\W_]", "", key).lower()


def read_fields(value: object) -> PlanFields | None:
    """The fields of a mapping; ``None`` when it has none of them.

    A plan may be a text, a list or a mapping of steps; constraints texts or mappings; a decision a
    mapping, a line, or a verdict by constraint. A decision that says neither will nor cannot is left out.
    """
    if not isinstance(value, Mapping):
        return None
    fields: dict[str, object] = {}
    for key, member in value.items():
        name = field_name(str(key))
        if name is not None and not fields.get(name):
            fields[name] = member
    if not fields:
        return None
    plan = clean_text(_plan(fields.get("plan")))
    return PlanFields(
        plan if has_words(plan) else "",
        tuple(dict.fromkeys(map(clean_text, _names(fields.get("constraints"))))),
        tuple(map(_clean_decision, _decisions(fields.get("decisions")))),
    )


def plan_steps(plan: str) -> tuple[str, ...]:
    r"""The steps of a plan, on one line each, without numbers: numbered, else bullets, else lines.

    A number counts where it follows on the one before, so that those inside a step do not.

    >>> plan_steps("1) Open port 443. 2) Add 2 zones: a, b. 3) Test.")
    ('Open port 443.', 'Add 2 zones: a, b.', 'Test.')
    >>> plan_steps("- Open port 443\n- Add TLS 1.3")
    ('Open port 443', 'Add TLS 1.3')
    """
    numbered = numbered_steps(plan)
    if numbered:
        return numbered
    bullets = list(_BULLET.finditer(plan))
    if bullets:
        ends = [bullet.start() for bullet in bullets[1:]] + [len(plan)]
        parts = [plan[bullet.end() : end] for bullet, end in zip(bullets, ends, strict=True)]
    else:
        parts = plan.splitlines()
    return tuple(step for step in map(_step, parts) if step)


def numbered_steps(text: str) -> tuple[str, ...]:
    """The steps that numbers 1, 2, ... begin: those at line starts, else all; empty without a 1."""
    for pattern, least in ((_AT_LINE, 2), (_INLINE, 1)):
        marks = _in_order(pattern.finditer(text))
        if len(marks) < least:
            continue
        ends = [mark.start() for mark in marks[1:]] + [len(text)]
        parts = [text[mark.end() : end] for mark, end in zip(marks, ends, strict=True)]
        # what follows a blank line after the last step is no longer the plan
        parts[-1] = parts[-1].strip().partition("\n\n")[0]
        return tuple(step for step in map(_step, parts) if step)
    return ()


def joined_steps(steps: Sequence[str]) -> str:
    """Steps as a numbered plan."""
    return " ".join(f"{number}) {step}" for number, step in enumerate(steps, start=1))


def _in_order(matches: Iterator[re.Match[str]]) -> list[re.Match[str]]:
    """Those that count 1, 2, ..., written like the first and not further in."""
    marks: list[re.Match[str]] = []
    for mark in matches:
        if int(mark["n"]) != len(marks) + 1:
            continue
        if marks and (
            mark["mark"].strip() != marks[0]["mark"].strip()
            or len(mark["indent"]) > len(marks[0]["indent"])
        ):
            continue
        marks.append(mark)
    return marks


def _step(text: str) -> str:
    """On one line, without emphasis and loose ends."""
    return " ".join(text.replace("**", "").split()).strip("*;,- \t")


def _plan(value: object) -> str:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, Mapping):
        inner = next(
            (inside for key, inside in value.items() if field_name(str(key)) == "plan"), None
        )
        return _plan(list(value.values()) if inner is None else inner)
    if isinstance(value, list):
        steps = (_text(item) for item in value)
        return joined_steps(tuple(_unnumbered(step) for step in steps if step))
    return ""


def _unnumbered(step: str) -> str:
    lead = _AT_LINE.match(step)
    return _step(step[lead.end() :] if lead else step)


def _text(value: object) -> str:
    """What a step, a name or a reason says, whatever holds it."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, Mapping):
        kept = (member for key, member in value.items() if plain_key(str(key)) not in _COUNTED)
        parts = [part for part in map(_text, kept) if part and not part.isdecimal()]
        return ": ".join(parts)
    if isinstance(value, list):
        return ", ".join(part for part in map(_text, value) if part)
    return ""


def _pick(value: Mapping[object, object], names: tuple[str, ...]) -> object:
    """The member of the first of these names, ``None`` without one."""
    plain = {plain_key(str(key)): member for key, member in value.items()}
    return next((plain[name] for name in names if name in plain), None)


def _names(value: object) -> Iterator[str]:
    if isinstance(value, str):
        parts = re.split(r"[\n;]", value)
        if all(" " not in piece.strip() for piece in value.split(",")):
            parts = re.split(r"[\n;,]", value)
        yield from (
            name for part in parts if (name := _unnumbered(part)) and name.lower() != "none"
        )
    elif isinstance(value, Mapping):
        named = _pick(value, _NAMED)
        if named is not None:
            yield from filter(None, [_text(named)])
            return
        for key, member in value.items():
            name = str(key) if "_" in str(key) else _text(member)
            yield from filter(None, [name])
    elif isinstance(value, list):
        for item in value:
            yield from filter(None, [_text(item)] if isinstance(item, str) else _names(item))


def _decisions(value: object) -> Iterator[ConstraintDecision]:
    if isinstance(value, str):
        value = value.splitlines()
    if isinstance(value, Mapping):
        if _pick(value, _NAMED[:3]) is None:
            value = [_named(str(key), said) for key, said in value.items()]
        else:
            value = [value]
    if not isinstance(value, list):
        return
    for item in value:
        decision = _decision_line(item) if isinstance(item, str) else _decision(item)
        if decision is not None:
            yield decision


def _named(constraint: str, said: object) -> object:
    """One entry of a mapping from constraints to what is decided."""
    inside = said if isinstance(said, Mapping) else {"decision": said}
    return {"constraint": constraint, **{str(key): member for key, member in inside.items()}}


def _clean_decision(decision: ConstraintDecision) -> ConstraintDecision:
    return replace(
        decision,
        constraint=clean_text(decision.constraint),
        reason=clean_text(decision.reason),
    )


def _decision_line(line: str) -> ConstraintDecision | None:
    matched = _DECISION_LINE.match(line)
    if matched is None:
        return None
    enforced = _enforced(matched["verdict"])
    if enforced is None:
        return None
    return ConstraintDecision(
        constraint=matched["name"].strip(), enforced=enforced, reason=matched["reason"].strip(" )")
    )


def _decision(value: object) -> ConstraintDecision | None:
    if not isinstance(value, Mapping):
        return None
    constraint = _text(_pick(value, _NAMED))
    enforced = _enforced(_pick(value, _DECIDED))
    if not constraint or enforced is None:
        return None
    return ConstraintDecision(
        constraint=constraint, enforced=enforced, reason=_text(_pick(value, _EXPLAINED))
    )


def _enforced(value: object) -> bool | None:
    """Whether a verdict, however spelled, says that the constraint is enforced."""
    if isinstance(value, bool):
        return value
    said = plain_key(_text(value))
    if _CANNOT.match(said):
        return False
    return True if _WILL.match(said) else None
