"""Read thought and action out of what an agent generated."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

__all__ = ["AgentAction", "parse_action"]

_MAX_THOUGHT = 400
_MAX_ARGUMENT = 300
_PAIRS = {"[": "]", "(": ")", "{": "}", "【": "】"}
_QUOTES = "\"'`“”‘’*"
_PLACEHOLDERS = frozenset({"query", "answer", "the query", "the answer", "..."})

_MARKUP = re.compile(r"[*`#]+|_{2,}")
_OBSERVATION = re.compile(r"^\W*observation\s*\d*\s*:?", re.IGNORECASE | re.MULTILINE)
_LABELLED = re.compile(
    r"(?:^|(?<=[.;\n]))[^\S\n]*(?:\W|\d+\.)*(?:next[ ]+)?action[ ]*\d*[^\S\n]*(?:[:\-=]|\n)\s*\W*"
    r"(?P<verb>search|finish)(?:ing|ed)?\b",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"\b(?P<verb>search|finish)[^\S\n]*(?=[\[【({])", re.IGNORECASE)
_AT_LINE_START = re.compile(
    r"^\W*(?P<verb>search|finish)[^\S\n]*(?=[:\"“])", re.IGNORECASE | re.MULTILINE
)
_ANSWER = re.compile(
    r"^\W*(?:final[ ]+answer|answer)[^\S\n]*:[^\S\n]*(?P<rest>[^\n]*\S)",
    re.IGNORECASE | re.MULTILINE,
)
_INPUT = re.compile(
    r"\s*action[ _]input[^\S\n]*\d*[^\S\n]*:[^\S\n]*(?P<rest>[^\n]+)", re.IGNORECASE
)
_THOUGHT = re.compile(r"^(?:\W*thought[ ]*\d*[ ]*[:\-][ ]*)+", re.IGNORECASE)
_FILLER = re.compile(r"^(?:for|query|with)\b[^\S\n]*[:=]?[^\S\n]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAction:
    """What an agent wants: to search for ``argument``, or to finish with it; and what it thought."""

    kind: Literal["search", "finish"]
    argument: str
    thought: str = ""


def parse_action(text: str) -> AgentAction | None:
    r"""The first action, read tolerantly; ``None`` when there is none or it searches for nothing.

    What follows a made-up observation is cut off. Looked for in this order: a verb after an ``Action``
    label; a verb with a bracket; a verb that begins a line; a final answer, which is a finish. Case,
    markdown, numbers after labels, other brackets, quotes and a missing bracket do not matter.

    >>> parse_action("Thought: who wrote it?\nAction: Search[The Ferry author]")
    AgentAction(kind='search', argument='The Ferry author', thought='who wrote it?')
    >>> parse_action("**Action 2:** finish(Oslo").argument
    'Oslo'
    >>> parse_action("I am not sure.") is None
    True
    """
    made_up = _OBSERVATION.search(text)
    plain = _MARKUP.sub("", text[: made_up.start()] if made_up else text)
    for pattern in (_LABELLED, _BRACKETED, _AT_LINE_START):
        found = pattern.search(plain)
        if found:
            return _action(plain, found)
    answer = _ANSWER.search(plain)
    if answer:
        argument = _clean(answer["rest"])
        return AgentAction(
            kind="finish", argument=argument, thought=_thought(plain, answer.start())
        )
    return None


def _action(text: str, found: re.Match[str]) -> AgentAction | None:
    argument = _clean(_argument(text[found.end() :]))
    thought = _thought(text, found.start())
    if found["verb"].lower() == "finish":
        return AgentAction(kind="finish", argument=argument, thought=thought)
    if not re.search(r"\w", argument) or argument.casefold() in _PLACEHOLDERS:
        return None
    return AgentAction(kind="search", argument=argument, thought=thought)


def _argument(rest: str) -> str:
    """What stands in the brackets, or to the end of the line where there are none or one is missing."""
    given = _INPUT.match(rest)
    line = (given["rest"] if given else rest.partition("\n")[0]).strip()
    closing = _PAIRS.get(line[:1])
    if closing is None:
        return _FILLER.sub("", line.lstrip(":=- \t"))
    depth = 0
    for at, letter in enumerate(line):
        depth += (letter == line[0]) - (letter == closing)
        if depth == 0:
            return line[1:at]
    return line[1:]


def _clean(argument: str) -> str:
    """Without brackets, quotes and a full stop around it, on one line."""
    squeezed = " ".join(argument.split())[:_MAX_ARGUMENT]
    before = None
    while squeezed != before:
        before = squeezed
        squeezed = squeezed.strip().strip(_QUOTES)
        for opening, closing in _PAIRS.items():
            if squeezed.startswith(opening) and squeezed.endswith(closing):
                squeezed = squeezed[1:-1]
        if squeezed.startswith("<") and squeezed.endswith(">"):
            squeezed = squeezed[1:-1]
    return squeezed


def _thought(text: str, end: int) -> str:
    """What was said before the action, without its label, on one line."""
    said = _THOUGHT.sub("", " ".join(text[:end].split()))
    return re.sub(r"\W*\b(?:next )?action\s*\d*\W*$", "", said, flags=re.IGNORECASE)[:_MAX_THOUGHT]
