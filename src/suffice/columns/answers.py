"""What :mod:`suffice.scoring` says of answers, of columns of them: normal forms and scores."""

from __future__ import annotations

import string
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.pairs import contained, equal, f1_of_pairs
from suffice.columns.ragged import Ragged, ranges
from suffice.columns.texts import NONE, Codes, Texts, by_ascii, slices
from suffice.scoring import SPECIAL, F1Kind, ScoreName, answer_form, normalize_answer

Array = NDArray[np.float64]

_BLANKS = b"\t\n\v\f\r\x1c\x1d\x1e\x1f "
"""What ``str.split`` takes for blank among ASCII."""
_CONTROLS = bytes(byte for byte in (*range(32), 127) if byte not in _BLANKS)
_PUNCTUATION = string.punctuation.encode()
_BLANK, _END = 32, 1
_LOWER = bytes(_BLANK if byte in _BLANKS else byte for byte in bytes(range(255)).lower()) + bytes(
    [_END]
)


def normal_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.normalize_answer` of every text, for :meth:`Texts.mapped`.

    >>> normal_forms(pa.array(["The  A-ha, a.m.", "?"])).to_pylist()
    ['aha am', '']
    """
    return by_ascii(_normal_forms, normalize_answer.__wrapped__)(texts)


def answer_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.answer_form` of every text, for :meth:`Texts.mapped`.

    >>> answer_forms(pa.array(["The Tempest.", "(A)", "the"])).to_pylist()
    ['tempest', 'a', '']
    """
    return by_ascii(_answer_forms, answer_form.__wrapped__)(texts)


def without_articles(texts: pa.Array) -> pa.Array:
    """A blank in place of a, an and the, of ASCII texts in lower case."""
    return pc.replace_substring_regex(texts, r"\b(?:a|an|the)\b", " ")


def without_punctuation(texts: pa.Array) -> pa.Array:
    """Texts less ``string.punctuation``."""
    return pc.replace_substring_regex(texts, r"[!-/:-@\[-`{-~]", "")


def squeezed(texts: pa.Array) -> pa.Array:
    """ASCII texts as ``" ".join(text.split())`` gives them."""
    # single blanks, which are most, are left alone
    single = pc.replace_substring_regex(
        texts, r"[\x09-\x0d\x1c-\x20]{2,}|[\x09-\x0d\x1c-\x1f]", " "
    )
    return pc.ascii_trim(single, " ")


def _normal_forms(texts: pa.Array) -> pa.Array:
    forms = [pa.array([], texts.type), *(_normal_slice(part) for part in slices(texts))]
    return pa.concat_arrays(forms)


def _normal_slice(texts: pa.Array) -> pa.Array:
    """The same of ASCII texts, all of them as one array of bytes in which ``_END`` follows each.

    Other controls than blanks end words without being blanks: texts with them go through Arrow.
    """
    joined = pc.binary_join_element_wise(texts.cast(pa.binary()), b"", b"\xff").buffers()[2]
    text = bytearray(b"\xff" + joined.to_pybytes() + b"\xff" * 3)
    if len(text.translate(None, _CONTROLS)) < len(text):
        words = without_articles(without_punctuation(pc.ascii_lower(texts)))
        return squeezed(words)
    data = np.frombuffer(text.translate(_LOWER, _PUNCTUATION), np.uint8)
    _blank_articles(data)
    word = data > _BLANK
    kept = word | (data == _END)
    kept[:-1] |= word[1:]  # one blank before each word
    data = data[kept][:-3]
    ends = np.flatnonzero(data == _END)
    offsets = (ends - np.arange(len(ends))).astype(np.int32)
    buffers = pa.py_buffer(offsets), pa.py_buffer(data.tobytes().translate(None, bytes([_END])))
    forms = pa.StringArray.from_buffers(len(texts), *buffers)
    return pc.ascii_ltrim(forms, " ").cast(texts.type)


def _blank_articles(data: NDArray[np.uint8]) -> None:
    """Blanks in place of the words a, an and the."""
    gap = data <= _BLANK
    starts = np.flatnonzero(gap[:-3] & ((data[1:-2] == ord("a")) | (data[1:-2] == ord("t")))) + 1
    for article in (b"a", b"an", b"the"):
        size = len(article)
        there = starts[gap[np.minimum(starts + size, len(data) - 1)]]
        for place, letter in enumerate(article):
            there = there[data[there + place] == letter]
        for place in range(size):
            data[there + place] = _BLANK


def _answer_forms(texts: pa.Array) -> pa.Array:
    forms = _normal_forms(texts)
    nothing = pc.equal(forms, "")
    words = without_punctuation(pc.ascii_lower(texts.filter(nothing)))
    letter = pc.equal(pc.ascii_trim(words, _BLANKS.decode()), "a")
    left = pc.if_else(letter, "a", "").cast(forms.type)
    return pc.replace_with_mask(forms, nothing, left)


# --- scores -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class GoldAnswers:
    """The gold answers of questions, ``texts`` of all of them end to end.

    ``offsets`` (n_questions + 1,) are where those of each question begin.
    """

    texts: Texts
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> GoldAnswers:
        """Of a column of lists, one a question; null and empty gold answers are none."""
        lists = Ragged.of(column)
        said = pc.fill_null(pc.greater(pc.binary_length(lists.values), 0), False)
        before = np.append(0, np.cumsum(said.to_numpy(zero_copy_only=False)))
        return cls(Texts.of(lists.values.filter(said)), before[lists.offsets])

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """Which questions have any, (n_questions,)."""
        return np.diff(self.offsets) > 0


class ScoredAnswers:
    """Answers against the gold answers of their questions; each score (n,), the best over these.

    NaN where the answer is null or its question has no gold answer. Equal to :mod:`suffice.scoring`
    bit for bit: ``ScoredAnswers(samples, gold, question).score("f1", "squad")`` is what ``f1_score``
    gives of every sample. Texts are normalised once for all scores, and what is more than equality is
    computed of distinct pairs of an answer and a gold answer.

    Parameters
    ----------
    answers
        (n,); they may be samples, several for a round.
    gold
        Of all questions.
    question
        The question of each answer, (n,), a position in ``gold``.
    """

    def __init__(self, answers: Texts, gold: GoldAnswers, question: NDArray[np.int64]) -> None:
        self._n = len(answers)
        self._rows = np.flatnonzero((answers.codes != NONE) & gold.labelled[question])
        code, asked = answers.codes[self._rows], question[self._rows]
        # an answer is often that of the round before
        new = np.ones(len(code), bool)
        new[1:] = (code[1:] != code[:-1]) | (asked[1:] != asked[:-1])
        self._of_row = np.cumsum(new) - 1
        code, asked = code[new], asked[new]
        begin, end = gold.offsets[asked], gold.offsets[asked + 1]
        counts = end - begin
        self._starts = np.cumsum(counts) - counts  # of each answer's pairs
        both = [answers.distinct, gold.texts.distinct.cast(answers.distinct.type)]
        self._pairs = _Pairs.of(
            np.repeat(code, counts),
            gold.texts.codes[ranges(begin, end)] + len(answers.distinct),
            normal_forms(pa.concat_arrays(both)),
        )

    def score(self, name: ScoreName, f1_kind: F1Kind = "hotpotqa") -> Array:
        """One of the scores, (n,)."""
        best = self._pairs.score(name, f1_kind)
        if len(best) > len(self._starts):
            best = np.maximum.reduceat(best, self._starts)
        scores = np.full(self._n, np.nan)
        scores[self._rows] = best[self._of_row]
        return scores


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of an answer and a gold answer, positions in their normal ``forms``.

    ``same`` (n_pairs,) is where the two are equal, and ``said`` where both are more than nothing; ``other``
    (n_others,) are the pairs that are not equal, as positions in the distinct ones ``answer`` and ``gold``
    (n_distinct,).
    """

    same: NDArray[np.bool_]
    said: NDArray[np.bool_]
    other: NDArray[np.int32]
    answer: Codes
    gold: Codes
    forms: pa.Array

    @classmethod
    def of(cls, answer: Codes, gold: Codes, forms: pa.Array) -> _Pairs:
        same = equal(forms, answer, gold)
        keys = answer[~same] * len(forms) + gold[~same]
        distinct = pa.array(keys).dictionary_encode()
        of_answer, of_gold = np.divmod(distinct.dictionary.to_numpy(), max(1, len(forms)))
        said = pc.greater(pc.binary_length(forms), 0).to_numpy(zero_copy_only=False)
        return cls(same, same & said[gold], distinct.indices.to_numpy(), of_answer, of_gold, forms)

    def score(self, name: ScoreName, f1_kind: F1Kind) -> Array:
        """(n_pairs,)"""
        if name == "em":
            return self.same.astype(np.float64)
        scores = self.said.astype(np.float64)
        of_others = self._contained if name == "acc" else self._f1
        if name == "f1" and f1_kind == "hotpotqa":
            of_others = np.where(self._special, 0.0, of_others)
        scores[~self.same] = of_others[self.other]
        return scores

    @cached_property
    def _f1(self) -> Array:
        return f1_of_pairs(self.forms, self.answer, self.gold)

    @cached_property
    def _contained(self) -> Array:
        return contained(self.forms, self.gold, self.answer).astype(np.float64)

    @cached_property
    def _special(self) -> NDArray[np.bool_]:
        """Where either is yes, no or noanswer."""
        special = pc.is_in(self.forms, pa.array(sorted(SPECIAL), self.forms.type))
        of_forms = special.to_numpy(zero_copy_only=False)
        either: NDArray[np.bool_] = of_forms[self.answer] | of_forms[self.gold]
        return either
