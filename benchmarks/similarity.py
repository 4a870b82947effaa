"""Answers compared letter by letter, beside ``difflib``, whose values they have."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.timing import best_cpu_seconds
from suffice.signals.answer_stability import MAX_COMPARED, matching_characters

_WORDS = (
    "barack",
    "obama",
    "new",
    "york",
    "city",
    "river",
    "ferry",
    "1912",
    "1721",
    "university",
    "of",
)


def by_difflib(one: str, other: str) -> float:
    """The ratio of the standard library, without its shortcut for long texts."""
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()


def answers(count: int, *, seed: int = 0) -> list[tuple[str, str]]:
    """Pairs of answers of one to five words."""
    rng = random.Random(seed)
    texts = [" ".join(rng.choices(_WORDS, k=rng.randint(1, 5))) for _ in range(2 * count)]
    return list(zip(texts[:count], texts[count:], strict=True))


def stairs(length: int, mark: str) -> str:
    """Runs of 1, 2, 3, ... times "a", each closed by a mark."""
    return "".join("a" * run + mark for run in range(1, int((2 * length) ** 0.5)))


def _all(way: Callable[[str, str], float], pairs: Sequence[tuple[str, str]]) -> None:
    for one, other in pairs:
        way(one, other)


def main() -> dict[str, float]:
    """Ratios of CPU time: short answers, then long ones of one letter; and seconds of the longest."""
    pairs = answers(2_000)
    if any(by_difflib(*pair) != matching_characters(*pair) for pair in pairs):
        raise SystemExit("the values differ")
    slow, fast = (
        best_cpu_seconds(partial(_all, way, pairs), repeats=5)
        for way in (by_difflib, matching_characters)
    )
    figures = {"short answers: difflib over ours": slow / fast}
    for length in (100, 200, 400):
        one, other = "a" * length, "ab" * (length // 2)
        slow, fast = (
            best_cpu_seconds(partial(way, one, other), repeats=3)
            for way in (by_difflib, matching_characters)
        )
        figures[f"aaa... against abab... of {length} letters: difflib over ours"] = slow / fast
    one, other = stairs(MAX_COMPARED, "b"), stairs(MAX_COMPARED, "c")
    seconds = best_cpu_seconds(partial(matching_characters, one, other), repeats=3)
    figures[f"{MAX_COMPARED} letters with the most different runs, s"] = seconds
    return figures
