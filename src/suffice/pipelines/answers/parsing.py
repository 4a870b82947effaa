"""Read answer and confidence out of a reply; every failure is an empty answer with a reason."""

from __future__ import annotations

import re
from dataclasses import dataclass

ANSWER_MARKER = "Answer:"
_CONFIDENCE = re.compile(r"^[ \t]*Confidence:(?P<value>[^\n]*)", re.MULTILINE)
_LONE_RATING = re.compile(r"\s*([1-5])\s*\.?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """``answer`` is empty exactly when ``failure`` says why; ``confidence`` is 1-5 or ``None``."""

    answer: str
    confidence: float | None
    failure: str | None


def parse_reply(text: str) -> ParsedReply:
    r"""Answer: from the first ``Answer:`` to the end of its line, or the first line without a marker.

    Confidence: a lone 1-5 after ``Confidence:``; "10", "4/5" or words leave it undefined
    (METHODS 1; corrected).

    >>> parse_reply("Answer: Oslo\nConfidence: 4")
    ParsedReply(answer='Oslo', confidence=4.0, failure=None)
    >>> parse_reply("Answer:\nConfidence: 10")
    ParsedReply(answer='', confidence=None, failure='empty answer line')
    """
    rating = _CONFIDENCE.search(text)
    lone = _LONE_RATING.fullmatch(rating.group("value")) if rating else None
    answer, failure = _answer(text)
    return ParsedReply(
        answer=answer, confidence=float(lone.group(1)) if lone else None, failure=failure
    )


def _answer(text: str) -> tuple[str, str | None]:
    if not text.strip():
        return "", "empty reply"
    _, marker, rest = text.partition(ANSWER_MARKER)
    if marker:
        answer = rest.split("\n", 1)[0].strip()
        return answer, None if answer else "empty answer line"
    first = text.strip().split("\n", 1)[0].strip()
    if _CONFIDENCE.match(first):
        return "", "no answer line"
    return first, None
