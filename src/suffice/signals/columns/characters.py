"""Normal forms of many texts at once, by a few passes over the characters of all of them.

The characters of a slice of texts stand in one array, a separator before, between and behind the texts: a
byte each of ASCII texts, two of those of Unicode's first plane. Python looks at texts with others, and with
the two letters whose lower case is not one letter of its own.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.texts import by_text, slices

Characters = NDArray[Any]
_BLANK, _A, _E, _H, _N, _T = b" aehnt"
_PUNCTUATION = string.punctuation.encode()
_KEPT = np.array(
    [byte not in _PUNCTUATION for byte in range(129)]
)  # the last stands for all beyond
_ASCII = "".join(map(chr, range(128)))
_LOWER = "".join(" " if letter.isspace() else letter.lower() for letter in _ASCII).encode()
_LOWER += bytes(range(128, 256))


@dataclass(frozen=True, slots=True, eq=False)
class Alphabet:
    r"""Characters by number."""

    word: NDArray[np.bool_]
    lower: Characters
    separator: int
    unlike: int

    def read(self, texts: pa.Array, *, less: bytes = b"") -> Characters:
        """The texts in lower case, without the ASCII characters ``less``."""
        between = chr(self.separator).encode() if len(self.lower) else bytes([self.separator])
        whole = pa.array([0, len(texts)], pa.int32())
        lists = pa.ListArray.from_arrays(whole, pc.cast(texts, pa.binary()))
        joined = bytearray().join([between, pc.binary_join(lists, between)[0].as_buffer(), between])
        joined = joined.translate(_LOWER, less)
        if not len(self.lower):
            return np.frombuffer(joined, np.uint8)
        return self.lower.take(np.frombuffer(joined.decode().encode("utf-16-le"), "<u2"))

    def write(self, characters: Characters) -> pa.StringArray:
        """The texts, one blank for several and none at their ends."""
        blank, ends = characters == _BLANK, np.flatnonzero(characters == self.separator)
        kept = ~blank
        kept[ends] = False
        kept[:-1] |= blank[:-1] & kept[1:]  # the last one before a word
        offsets = ends - np.searchsorted(np.flatnonzero(~kept), ends)
        characters = characters.compress(kept)
        data: Any = characters
        if len(self.lower):
            data = characters.tobytes().decode("utf-16-le").encode()
            width = np.add(characters >= 0x80, characters >= 0x800, dtype=np.int8) + np.int8(1)
            offsets = np.append(0, np.cumsum(width))[offsets]
        texts = pa.StringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)
        )
        return pc.ascii_ltrim(texts, " ")

    def blank_articles(self, characters: Characters) -> None:
        """Put blanks for the words a, an and the."""
        edge = ~self.word.take(characters)
        begins = (characters[1:] == _A) | (characters[1:] == _T)
        begins &= edge[:-1]
        first = np.flatnonzero(begins) + 1
        # beyond the end stands the last separator
        second = characters.take(first + 1, mode="clip")
        is_a = characters.take(first) == _A
        a = is_a & edge.take(first + 1, mode="clip")
        an = is_a & (second == _N) & edge.take(first + 2, mode="clip")
        the = ~is_a & (second == _H) & (characters.take(first + 2, mode="clip") == _E)
        the &= edge.take(first + 3, mode="clip")
        for article, length in ((a, 1), (an, 2), (the, 3)):
            places = first[article]
            for place in range(length):
                characters[places + place] = _BLANK


@cache
def _alphabet(*, ascii_only: bool) -> Alphabet:
    if ascii_only:
        word = np.array([letter.isalnum() or letter == "_" for letter in _ASCII])
        return Alphabet(np.append(word, np.zeros(128, bool)), np.zeros(0, np.uint8), 255, 254)
    separator, unlike = 0xFFFF, 0xFFFE
    letters = [chr(number).lower() for number in range(separator + 1)]
    lower = [ord(letter) if len(letter) == 1 else unlike for letter in letters]
    table = np.array(lower, "<u2")
    table[[letter.isspace() for letter in letters]] = _BLANK
    table[0x3A3] = unlike  # capital sigma, whose lower case hangs on its neighbours
    table[0xD800:0xE000] = unlike  # halves of characters beyond the first plane
    word = np.array([letter.isalnum() or letter == "_" for letter in letters])
    return Alphabet(word, table, separator, unlike)


Form = Callable[[Alphabet, pa.Array], Characters]
_FEW = 16  # texts, as of a loop under way, that are sooner formed one by one


def normal(alphabet: Alphabet, texts: pa.Array) -> Characters:
    """In lower case without punctuation, then without articles."""
    characters = alphabet.read(texts, less=_PUNCTUATION)
    alphabet.blank_articles(characters)
    return characters


def without_articles_first(alphabet: Alphabet, texts: pa.Array) -> Characters:
    """In lower case without articles, then without punctuation."""
    characters = alphabet.read(texts)
    alphabet.blank_articles(characters)
    return characters.compress(_KEPT.take(characters, mode="clip"))


def by_characters(form: Form, one: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """A form of texts, for :meth:`suffice.signals.columns.texts.Texts.mapped`.

    ``one`` gives the same of a single text, where characters do not do.
    """

    def of_all(texts: pa.Array) -> pa.Array:
        if len(texts) <= _FEW:
            return by_text(one)(texts).cast(texts.type)
        parts = [_of_slice(part, form, one).cast(texts.type) for part in slices(texts)]
        return pa.concat_arrays([pa.array([], texts.type), *parts])

    return of_all


def _of_slice(texts: pa.Array, form: Form, one: Callable[[str], str]) -> pa.Array:
    is_ascii = pc.string_is_ascii(texts)
    n_ascii = is_ascii.true_count
    if n_ascii in (0, len(texts)):
        return _formed(texts, form, one, _alphabet(ascii_only=n_ascii > 0))
    others = pc.invert(is_ascii)
    formed = pa.concat_arrays(
        [
            _formed(texts.filter(is_ascii), form, one, _alphabet(ascii_only=True)),
            _formed(texts.filter(others), form, one, _alphabet(ascii_only=False)),
        ]
    )
    after = others.to_numpy(zero_copy_only=False)
    return formed.take(pa.array(np.where(after, n_ascii + np.cumsum(after), np.cumsum(~after)) - 1))


def _formed(texts: pa.Array, form: Form, one: Callable[[str], str], by: Alphabet) -> pa.StringArray:
    characters = form(by, texts)
    ends = np.flatnonzero(characters == by.separator)
    if len(ends) != len(texts) + 1:
        return by_text(one)(texts)
    unlike = np.flatnonzero(characters == by.unlike)
    formed = by.write(characters)
    if not len(unlike):
        return formed
    by_one = np.zeros(len(texts), bool)
    by_one[np.searchsorted(ends, unlike) - 1] = True
    mask = pa.array(by_one)
    return pc.replace_with_mask(formed, mask, by_text(one)(texts.filter(mask)))
