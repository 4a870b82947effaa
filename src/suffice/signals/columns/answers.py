"""What :mod:`suffice.scoring` says of answers, of columns of them: normal forms and scores."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.scoring import SPECIAL, F1Kind, ScoreName, answer_form, normalize_answer
from suffice.signals.columns.characters import without_articles
from suffice.signals.columns.pairs import contained, f1_of_pairs
from suffice.signals.columns.ragged import Ragged, ranges
from suffice.signals.columns.texts import NONE, Codes, Texts, by_text

Array = NDArray[np.float64]


def normal_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.normalize_answer` of every text, for :meth:`Texts.mapped`.

    >>> normal_forms(pa.array(["The  A-ha, a.m.", "?"])).to_pylist()
    ['aha am', '']
    """
    return without_articles(texts, normalize_answer.__wrapped__)


def answer_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.answer_form` of every text, for :meth:`Texts.mapped`.

    >>> answer_forms(pa.array(["The Tempest.", "(A)", "the"])).to_pylist()
    ['tempest', 'a', '']
    """
    forms = normal_forms(texts)
    nothing = pc.equal(forms, "")
    if not pc.any(nothing).as_py():
        return forms
    left = by_text(answer_form.__wrapped__)(texts.filter(nothing))
    return pc.replace_with_mask(forms, nothing, left.cast(forms.type))


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
    """Pairs of an answer and a gold answer, positions in their normal ``forms``."""

    same: NDArray[np.bool_]
    said: NDArray[np.bool_]
    other: NDArray[np.int64]
    answer: Codes
    gold: Codes
    forms: pa.Array

    @classmethod
    def of(cls, answer: Codes, gold: Codes, forms: pa.Array) -> _Pairs:
        coded = Texts.of(forms).codes
        same = coded[answer] == coded[gold]
        rows = np.flatnonzero(~same)
        keys = answer[rows] * len(forms) + gold[rows]
        _, place, other = np.unique(keys, return_index=True, return_inverse=True)
        place = rows[place]
        said = pc.greater(pc.binary_length(forms), 0).to_numpy(zero_copy_only=False)
        return cls(same, same & said[gold], other.reshape(-1), answer[place], gold[place], forms)

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
