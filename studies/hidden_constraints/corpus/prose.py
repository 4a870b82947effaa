"""The written material of the benchmark, and documents about services made of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from suffice.errors import InternalError

Entry = Mapping[str, Any]
"""A table of the files in ``material``, whose comments say what its entries are."""

GENRES = ("overview", "procedure", "limits", "trouble", "release", "reference")
FEWEST_WORDS, MOST_WORDS = 60, 120
_WANTED = (60, 96)
DRAWS = 200
_SLOT = re.compile(r"(?:\b([Aa]) )?#([A-Za-z]+)")
_START = re.compile(r"(^|[.?!] )([a-z])")
_SENTENCE = re.compile(r"(?<=[.?!]) +(?=[A-Z])")
_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_FIRST_YEAR, _YEARS = 2021, 4
_PER_DOCUMENT = re.compile(r"\[([^\[\]]*)\]")
_PER_CORPUS = re.compile(r"\{([^{}]*)\}")


@cache
def _read(name: str) -> dict[str, Any]:
    path = Path(__file__).with_name("material") / f"{name}.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def material(rng: np.random.Generator) -> Entry:
    """The material of one corpus: every ``{a|b}`` settled by one draw, every ``[a|b]`` left open."""
    return {name: _settled(_read(name), rng) for name in ("services", "kinds", "facts", "frames")}


def _settled(value: Any, rng: np.random.Generator) -> Any:
    if isinstance(value, str):
        return _drawn(_PER_CORPUS, value, rng)
    if isinstance(value, dict):
        return {key: _settled(part, rng) for key, part in value.items()}
    return tuple(_settled(part, rng) for part in value)


def draw(text: str, rng: np.random.Generator) -> str:
    """The text with one alternative drawn for each ``[a|b]``.

    >>> draw("a [red] boat", np.random.default_rng(0))
    'a red boat'
    """
    return _drawn(_PER_DOCUMENT, text, rng)


def _drawn(pattern: re.Pattern[str], text: str, rng: np.random.Generator) -> str:
    return pattern.sub(lambda choice: one_of(choice[1].split("|"), rng), text)


def one_of(options: Sequence[str], rng: np.random.Generator) -> str:
    """One of the texts, each as likely as the others."""
    return options[int(rng.random() * len(options))]  # a quarter of the time of integers()


def months(rng: np.random.Generator) -> dict[str, str]:
    """Two months with their years, the second later."""
    first = int(rng.integers(12 * _YEARS))
    numbers = (first, first + int(rng.integers(3, 24)))
    named = (f"{_MONTHS[at % 12]} {_FIRST_YEAR + at // 12}" for at in numbers)
    return dict(zip(("month", "later"), named, strict=True))


def fill(text: str, values: Mapping[str, str], rng: np.random.Generator) -> str:
    """Settle the alternatives of a frame and fill its slots: ``a #unit`` may become ``An index``."""

    def value(match: re.Match[str]) -> str:
        article, filled = match[1], values[match[2]]
        if article is None:
            return filled
        return f"{article}{'n' if filled[0].lower() in 'aeio' else ''} {filled}"

    filled = _SLOT.sub(value, draw(text, rng))
    return _START.sub(lambda match: match[1] + match[2].upper(), filled)


def paragraph(sentences: Sequence[str], spare: Sequence[str], rng: np.random.Generator) -> str:
    """The sentences joined, with spare ones behind them up to a drawn number of words."""
    kept = [sentence for sentence in sentences if sentence]
    wanted = int(rng.integers(*_WANTED))
    count = sum(len(sentence.split()) for sentence in kept)
    for sentence in spare:
        if count >= wanted:
            break
        words = len(sentence.split())
        if sentence and sentence not in kept and count + words <= MOST_WORDS:
            kept.append(sentence)
            count += words
    return " ".join(kept)


def unseen(drafts: Iterable[tuple[str, str]], seen: set[str], about: str) -> tuple[str, str]:
    """The first title and text whose text is none of ``seen``, which it joins."""
    for title, text in drafts:
        if text not in seen:
            seen.add(text)
            return title, text
    raise InternalError(f"no new text about {about!r} after {len(seen)} documents")


class _Writer:
    """Draws documents about one service."""

    def __init__(self, frames: Entry, service: Entry, rng: np.random.Generator) -> None:
        self._frames = frames
        self._service = service
        self._rng = rng

    def document(self, genre: str, topic: Entry, second: Entry) -> tuple[str, str]:
        """Title and text; ``second`` is another topic that is looked at in passing."""
        frames, rng = self._frames[genre], self._rng
        said = {name: draw(topic[name], rng) for name in ("what", "how", "bound", "fail")}
        values = self._values(topic, second, said["what"])
        opening = fill(one_of(frames["openings"], rng), values, rng)
        body = self._body(genre, said, draw(second["what"], rng), values)
        closings = self._frames["topical"]["closings"]
        closing, last, third = (fill(one_of(closings, rng), values, rng) for _ in range(3))
        own = said[one_of(("fail", "how"), rng)]
        other = self._frame("limits", "other", values)
        spare = [closing, own, other, last] if rng.random() < 0.4 else [own, other, closing, last]
        if any(own in sentence for sentence in body) or genre == "procedure":
            spare.remove(own)
        if genre in ("limits", "overview"):  # they have looked at the other topic already
            spare[spare.index(other)] = third
        pattern = one_of(frames["titles"], rng)
        head = topic["name"] if pattern.startswith("#topic") else self._lowered(topic["name"])
        title = fill(pattern, {**values, "topic": head}, rng)
        return title, paragraph([opening, *body], spare, rng)

    def _values(self, topic: Entry, second: Entry, what: str) -> dict[str, str]:
        when = months(self._rng)
        return {
            "product": self._service["product"],
            "unit": self._service["unit"],
            "topic": self._lowered(topic["name"]),
            "second": self._lowered(second["name"]),
            "Second": second["name"],
            "bound": self._lowered(draw(second["bound"], self._rng)),
            "what": self._lowered(what),
            **when,
        }

    def _body(
        self, genre: str, said: Mapping[str, str], second: str, values: Mapping[str, str]
    ) -> list[str]:
        rng = self._rng
        what, how, bound, fail = (said[name] for name in ("what", "how", "bound", "fail"))
        first = _SENTENCE.split(what)[0]
        even = rng.random() < 0.5
        if genre == "overview":
            related = [self._frame("overview", "related", values), _SENTENCE.split(second)[0]]
            return [what, bound, *related] if even else [what, how, *related]
        if genre == "procedure":
            then = self._frame("procedure", "then", values)
            return [*_numbered(how, then), bound] if even else [first, how, then]
        if genre == "limits":
            other = self._frame("limits", "other", values)
            return [first, bound, other, fail] if even else [bound, how, other, fail]
        if genre == "trouble":
            background = self._frame("trouble", "background", values)
            return [fail, background] if even else [first, fail, how]
        if genre == "release":
            return [what, how] if even else [how, bound, first]
        return [what, how, bound] if even else [first, bound, how, fail]

    def _frame(self, table: str, entry: str, values: Mapping[str, str]) -> str:
        return fill(one_of(self._frames[table][entry], self._rng), values, self._rng)

    def _lowered(self, text: str) -> str:
        """Text as it reads within a sentence."""
        if text.startswith(self._service["product"]) or (text[:2].isalpha() and text[:2].isupper()):
            return text
        return text[0].lower() + text[1:]


def _numbered(how: str, then: str) -> list[str]:
    steps = [*_SENTENCE.split(how), then]
    return [f"{number}. {step}" for number, step in enumerate(steps, start=1)]


def service_documents(
    written: Entry, count: int, rng: np.random.Generator
) -> Iterator[tuple[str, str]]:
    """``count`` titles and texts about all topics by turns, each in its next genre, no text twice."""
    topics = [
        (writer, topic, [other for other in service["topic"] if other is not topic])
        for service in written["services"]["service"]
        for writer in [_Writer(written["frames"], service, rng)]
        for topic in service["topic"]
    ]
    shift = rng.integers(len(GENRES), size=len(topics)).tolist()
    seen: set[str] = set()
    turn = 0
    while True:
        for place in rng.permutation(len(topics)).tolist():
            if len(seen) == count:
                return
            writer, topic, others = topics[place]
            genre = GENRES[(shift[place] + turn) % len(GENRES)]
            drafts = (
                writer.document(genre, topic, others[int(rng.integers(len(others)))])
                for _ in range(DRAWS)
            )
            yield unseen(drafts, seen, topic["name"])
        turn += 1
