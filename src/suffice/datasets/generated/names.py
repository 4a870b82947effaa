"""Invented names built from syllables. Distinct numbers give distinct names."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

_FIRST = (
    "B", "Br", "D", "Dr", "F", "G", "Gr", "H", "J", "K", "Kr", "L", "M", "N", "P", "R", "S",
    "St", "T", "Tr", "V", "W", "Y", "Z",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u")
# A name is read back without doubt: every syllable is one of these clusters and one vowel.
_INNER = (
    "lm", "ndr", "rv", "lk", "lw", "rm", "mbr", "lt", "sk", "rst", "rw", "vr", "thr", "lst",
    "mpr", "ss",
)  # fmt: skip
_LAST = ("", "n", "r", "l", "s", "th", "m", "x")

_GIVEN_FIRST = (
    "Al", "Be", "Co", "Da", "El", "Fe", "Ha", "Il", "Jo", "Ka", "Li", "Ma", "Ne", "Or", "Pe",
    "Ra", "Sa", "Te", "Ul", "Vi",
)  # fmt: skip
_GIVEN_INNER = ("b", "d", "l", "m", "n", "r", "s", "v")
_GIVEN_LAST = {"she": ["a", "ena", "ise", "eth", "ira"], "he": ["o", "an", "ek", "in", "or"]}

_SHORT = len(_FIRST) * len(_VOWELS) * len(_INNER) * len(_VOWELS) * len(_LAST)
_SYLLABLE = len(_INNER) * len(_VOWELS)


def _spell(number: int, inner_syllables: int) -> str:
    number, last = divmod(number, len(_LAST))
    name = _LAST[last]
    for _ in range(inner_syllables):
        number, syllable = divmod(number, _SYLLABLE)
        cluster, vowel = divmod(syllable, len(_VOWELS))
        name = _INNER[cluster] + _VOWELS[vowel] + name
    first, vowel = divmod(number, len(_VOWELS))
    return _FIRST[first] + _VOWELS[vowel] + name


def _coprime(rng: random.Random, size: int) -> int:
    while math.gcd(step := rng.randrange(size // 4, size), size) != 1:
        pass
    return step


@dataclass(frozen=True, slots=True)
class NameSpace:
    """One world's order of names: short names first, then longer ones, without end.

    ``NameSpace.of(seed)[n]`` differs for every ``n``; another seed gives another order.
    """

    step: int
    shift: int

    @classmethod
    def of(cls, seed: int) -> NameSpace:
        """The order that belongs to a seed."""
        rng = random.Random(f"names {seed}")  # noqa: S311 - a data set, not a secret
        return cls(step=_coprime(rng, _SHORT), shift=rng.randrange(_SHORT))

    def __getitem__(self, number: int) -> str:
        size, inner = _SHORT, 1
        while number >= size:
            number -= size
            size *= _SYLLABLE
            inner += 1
        # gcd(step, _SHORT) = 1 carries over: longer spaces only add the primes 2 and 5 again
        return _spell((number * self.step + self.shift) % size, inner)


def given_name(rng: random.Random, pronoun: str) -> str:
    """A first name for ``she`` or ``he``; not unique."""
    first, inner = rng.choice(_GIVEN_FIRST), rng.choice(_GIVEN_INNER)
    return first + inner + rng.choice(_GIVEN_LAST[pronoun])
