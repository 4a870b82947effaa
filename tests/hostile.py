"""Texts that a reader, a signal or a terminal may stumble over, at any length."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

_PIECES = (
    *".,;:=-><#*_`|'\"\\/()[]{}0a",
    *(" ", "\n", "\r", "\t", "\r\n", " \n", "\x00"),
    *("\u2028", "\ud800", "İ", "Σ", "a\u0301", "\u202e", "😀"),
    *("1. ", "1) ", "1.1", "2) 1) ", "e9", "-1 ", "x.x", "a, ", "a: ", "(a) ", "the ", "n't ", "not ", "- "),
    *("{'a': 'b\\", "{'a':", '{"plan":"', '["a", ', '":', '",', '" ', '"\n', "'a' + ", '"""'),
    *("{}", "((", "\\u12"),
    *("//", "/*", "*/", "&quot;", "```", "~~~\n", "# ", "\n- ", "\n\n", "https://"),
    *("Action", "Action:", "Action\n", "action 1 ", "next action ", "Thought: ", "\nobservation", "Search["),
    *("Search ", "Finish ", "Answer:", "\nanswer", "Confidence:", "Rating: ", "<STOP>", "Decision:", "yes/"),
    *("step 1: ", "the proposed ", "will enforce ", "and ", "not (", "calibrated(", "1 < "),
    *("</think>", "\x1b[31m", "a b "),
)  # fmt: skip
_FRAMES = (
    ("Action:", "x"),
    ("Action: Search\nAction Input:", "!"),
    ("{'plan': '", "'}"),
    ("```json\n", "]"),
    ("Answer:", "Action: Search[a]"),
    ("Rating: 1", "!"),
)
_WORST = ("{'a': 'b\\", ".", "\n", " ", "1. ", "İ")


def hostile_texts(length: int, *, all_of_them: bool = True) -> Mapping[str, str]:
    """Texts of about that many letters, by what they repeat: each alone and in a frame."""
    pieces = _PIECES if all_of_them else _WORST
    texts = {repr(piece): (piece * (length // len(piece) + 1))[:length] for piece in pieces}
    framed = {
        f"{head!r} {name} {tail!r}": f"{head}{text}{tail}"
        for (name, text), (head, tail) in zip(texts.items(), cycle(_FRAMES), strict=False)
    }
    return {**texts, **framed}
