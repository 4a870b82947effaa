"""Where a model's reply begins behind its reasoning, which is no answer."""

from __future__ import annotations

import re

_NAME = r"(?:think|thinking|thoughts?|reasoning|seed:think)"
_OPENING = rf"(?:<{_NAME}(?:\s[^<>/]*)?>|\[THINK\]|◁think▷|<\|START_THINKING\|>|<unused94>)"
_CLOSING = rf"(?:</{_NAME}\s*>|<{_NAME}\s*/>|\[/THINK\]|◁/think▷|<\|END_THINKING\|>|<unused95>)"
_OPENS = re.compile(rf"\s*+{_OPENING}", re.IGNORECASE)
# quoted, a tag is what the text is about
_MARK = re.compile(rf"(?<![`'\"“])(?:(?P<closes>{_CLOSING})|{_OPENING})(?![`'\"”])", re.IGNORECASE)
_PREAMBLE = re.compile(rf"\s*+(?![^\n]*answer)[^\n<]{{1,200}}+\n\s*+(?={_OPENING})", re.IGNORECASE)
# of gpt-oss; a server that drops the marks leaves the channels' names
_CHANNELS = re.compile(
    r"\s*+(?:<\|start\|>\s*assistant\s*)?(?:<\|channel\|>|<\|message\|>|analysis(?=[A-Z]))"
)
_FINAL = re.compile(r"<\|channel\|>\s*final\b[^\n]{0,80}?<\|message\|>|assistantfinal")
_ENDS = re.compile(r"\s*<\|(?:end|return|start|channel|call)\|>")


def said_span(text: str) -> tuple[int, int]:
    """Return where the part of a reply stands that is no reasoning, as start and end.

    Reasoning is blocks at the beginning; all up to a closing tag that nothing opened, since some prompts end
    with the opening tag; and the channels before the final one. If it never ends, the span is empty. A line
    before the first block is part of the reasoning if words follow the block.
    """
    if preamble := _PREAMBLE.match(text):
        start, end = said_span(text[preamble.end() :])
        if text[preamble.end() :][start:end].strip():
            return preamble.end() + start, preamble.end() + end
    if _CHANNELS.match(text) or "<|channel|>final" in text:
        finals = [final.end() for final in _FINAL.finditer(text)]
        start = finals[-1] if finals else len(text)
        ends = _ENDS.search(text, start)
        return start, ends.start() if ends else len(text)
    start = 0
    while True:
        opens = _OPENS.match(text, start)
        marks = _MARK.finditer(text, opens.end() if opens else start)
        # inside a block an opening tag is a thought; outside of one it is a text about tags
        mark = next((mark for mark in marks if mark["closes"] or not opens), None)
        if mark is not None and mark["closes"]:
            start = mark.end()
        else:
            return (len(text) if opens else start), len(text)


def thinks(text: str, start: int, end: int) -> bool:
    """Say whether a part of a text holds a tag of reasoning."""
    return _MARK.search(text, start, end) is not None


def without_reasoning(text: str) -> str:
    """Return what a reply says behind its reasoning.

    >>> without_reasoning("<think>Oslo or Bergen?</think>Oslo")
    'Oslo'
    """
    start, end = said_span(text)
    return text[start:end]
