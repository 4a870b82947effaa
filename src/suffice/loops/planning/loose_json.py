"""Read JSON as language models write it: quotes, commas, keys and brackets need not be right.

Nothing is evaluated. Work grows with the length of the text, and nesting has a limit.
"""

from __future__ import annotations

import re

MAX_DEPTH = 40

_SKIPPED = re.compile(r"(?:\s+|//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/|\Z)|\#[^\n]*)*+")
_CLOSERS = {
    '"': '"',
    "“": '”“"',
    "”": '”"',
    "„": '”“"',
    "'": "'",
    "‘": "’'",
    "’": "’'",
    "`": "`",
}
_BRACKETS = {"{": "}", "[": "]", "(": ")"}
_WORDS = {"true": True, "false": False, "null": None, "none": None, "undefined": None}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_KEY = re.compile(r"[^\s\"'“”‘’`{}\[\],:=][^\s{}\[\],:=]*")
_BARE = re.compile(r"[^,}\]\n]+")
_SPACE = re.compile(r"\s*+")
_COLON = re.compile(r"=>|:|=")
# what may follow the quote that ends a text, by what the text is in
_GOES_ON = r"[}\])]|//|/\*|\#|\+\s*+[\"'“]|(?:,\s*+)++"
_AFTER_VALUE = re.compile(rf"{_GOES_ON}(?:[\"'“”‘`}}\]]|\Z|//|/\*|\#|[A-Za-z_][\w-]*+\s*+:)")
_AFTER_ITEM = re.compile(
    rf"{_GOES_ON}(?:[\"'“”‘`{{\[}}\])]|\Z|//|/\*|\#|-?\d|(?:true|false|null|None|True|False)\b)"
)
_NEXT_KEY = re.compile(r"[\"'“][^\"'“”\n]{1,60}[\"'”]\s*+:")
_NEXT_ITEM = re.compile(r"[\"'“{]")


class TooDeep(ValueError):  # noqa: N818 - reads as what it is
    """Nesting went past :data:`MAX_DEPTH`."""


def read_loose(text: str, start: int = 0) -> tuple[object, int]:
    r"""The value that begins at ``start``, and where it ends.

    Taken for what they stand for: single, smart, triple and missing quotes, quotes and line ends inside
    a text, commas too many or missing, comments, Python's words and round brackets, and brackets never
    closed. Of equal keys the last that is not empty counts. Numbers stay text.
    """
    reader = _Reader(text, start)
    value = reader.value(_AFTER_VALUE, 0)
    return value, reader.at


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = start
        self.open: list[str] = []

    def skip(self) -> str:
        """Pass over white space and comments; the letter then looked at, "" at the end."""
        skipped = _SKIPPED.match(self.text, self.at)
        self.at = skipped.end() if skipped else self.at
        return self.text[self.at : self.at + 1]

    def value(self, after: re.Pattern[str], depth: int) -> object:
        letter = self.skip()
        if letter in _BRACKETS:
            if depth >= MAX_DEPTH:
                raise TooDeep(f"nested deeper than {MAX_DEPTH}")
            self.at += 1
            self.open.append(letter)
            container = self.members(depth + 1) if letter == "{" else self.items(letter, depth + 1)
            self.open.pop()
            return container
        if letter in _CLOSERS:
            return self.joined(after)
        return self.bare()

    def members(self, depth: int) -> dict[str, object]:
        """An object, after its brace."""
        members: dict[str, object] = {}
        while (letter := self.skip()) not in ("", "}"):
            if letter == "]" and "[" in self.open:  # of the list around this object, never closed
                return members
            key = self.key(letter)
            if key is None:
                self.at += 1
                continue
            self.skip()
            colon = _COLON.match(self.text, self.at)
            if colon:
                self.at = colon.end()
            if self.skip() in ("", "}", ","):
                continue
            value = self.value(_AFTER_VALUE, depth)
            if value not in (None, "", [], {}) or key not in members:
                members[key] = value
        self.at = min(self.at + 1, len(self.text))
        return members

    def key(self, letter: str) -> str | None:
        if letter in _CLOSERS:
            return self.quoted(_COLON)
        match = _KEY.match(self.text, self.at)
        if not match:
            return None
        self.at = match.end()
        return match.group()

    def items(self, opening: str, depth: int) -> list[object]:
        """A list, after its bracket."""
        closing, items = _BRACKETS[opening], list[object]()
        while (letter := self.skip()) not in ("", closing):
            if letter == "}" and "{" in self.open:  # of the object around this list, never closed
                return items
            if letter in ",:)]}":
                self.at += 1
                continue
            if "{" in self.open and _NEXT_KEY.match(self.text, self.at):
                return items
            items.append(self.value(_AFTER_ITEM, depth))
        self.at = min(self.at + 1, len(self.text))
        return items

    def joined(self, after: re.Pattern[str]) -> str:
        """A text, with what a plus sign adds to it."""
        parts = [self.quoted(after)]
        while self.skip() == "+":
            self.at += 1
            if self.skip() not in _CLOSERS:
                break
            parts.append(self.quoted(after))
        return "".join(parts)

    def quoted(self, after: re.Pattern[str]) -> str:
        """A text between quotes; a quote that nothing fitting follows is part of it."""
        opening = self.text[self.at]
        if self.text.startswith(opening * 3, self.at):
            return self.triple(opening * 3)
        closers = _CLOSERS[opening]
        stop = re.compile(f"[\\\\{closers}]")
        parts: list[str] = []
        at = self.at + 1
        while (match := stop.search(self.text, at)) is not None:
            parts.append(self.text[at : match.start()])
            at = match.end()
            if match.group() == "\\":
                said, at = self.escaped(at)
                parts.append(said)
            elif self.ends(at, after):
                self.at = at
                return "".join(parts)
            else:
                parts.append(match.group())
        parts.append(self.text[at:])
        self.at = len(self.text)
        return "".join(parts)

    def ends(self, at: int, after: re.Pattern[str]) -> bool:
        """Whether what follows the quote before ``at`` can only follow a text's end."""
        space = _SPACE.match(self.text, at)
        end = space.end() if space else at
        if end == len(self.text) or after.match(self.text, end):
            return True
        if "\n" not in self.text[at:end]:
            return False
        line = {_AFTER_VALUE: _NEXT_KEY, _AFTER_ITEM: _NEXT_ITEM}.get(after)
        return line is not None and line.match(self.text, end) is not None

    def triple(self, quotes: str) -> str:
        start = self.at + 3
        end = self.text.find(quotes, start)
        end = len(self.text) if end < 0 else end
        self.at = min(end + 3, len(self.text))
        return self.text[start:end].strip()

    def escaped(self, at: int) -> tuple[str, int]:
        """What a backslash before ``at`` makes of what follows, and where that ends."""
        letter = self.text[at : at + 1]
        if letter == "u":
            digits = re.compile(r"[0-9a-fA-F]{4}").match(self.text, at + 1)
            if digits:
                return chr(int(digits.group(), 16)), digits.end()
        if letter in _ESCAPES:
            return _ESCAPES[letter], at + 1
        return (letter if letter in "\"'`\\/\n" else f"\\{letter}"), at + len(letter)

    def bare(self) -> object:
        """What stands without quotes, up to a comma, a closing bracket or the line's end."""
        match = _BARE.match(self.text, self.at)
        if not match:
            self.at += 1
            return ""
        self.at = match.end()
        said = match.group().strip()
        return _WORDS.get(said.lower(), said)
