"""Normal forms and scores of whole columns of answers, equal to :mod:`suffice.scoring`."""

from __future__ import annotations

import string
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.scoring import SPECIAL, F1Kind, ScoreName, answer_form, mlqa_form, normalize_answer
from suffice.signals.columns.arrays import NONE, Ragged, Texts, by_text, ranges
from suffice.stats.units import Array, Mask

_PUNCTUATION = string.punctuation.encode()
_ARTICLES = ("", "a", "an", "the")
_ARTICLE = r"\b(?:a|an|the)\b"
EUROPEAN = (
    r"^[\x00-\x1b -\x{84}\x{86}-\x{9f}\x{a1}-\x{12f}\x{131}-\x{24f}"
    r"\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{206f}]*$"
)
_BESIDE = r"[^\t\n -~](?:a|an|the)|(?:a|an|the)[^\t\n -~]"
_TELLING = (  # where :func:`answer_form` may differ from the normal form
    r"[^\t\n\f\r -~]|[+#]|[[:punct:]][0-9]|[-<>]\s+[0-9]|[A-Za-z]-(?:\s|$)|(?:^|[^0-9])0[0-9]"
    r"|[\])}0-9],\S"
)
_FEW = 16  # texts, as of a loop under way, that are sooner formed one by one


def without_articles(
    texts: pa.Array, one: Callable[[str], str], *, articles_first: bool = False
) -> pa.Array:
    """Normalize texts: lower case, no punctuation, no articles; ``one`` does the same for one text."""
    if len(texts) <= _FEW:
        return by_text(one)(texts).cast(texts.type)
    lower = pc.utf8_lower(texts)
    bare = _without_punctuation(lower)
    beside = pc.match_substring_regex(lower if articles_first else bare, _BESIDE)
    alike = pc.and_not(pc.match_substring_regex(texts, EUROPEAN), beside)
    if articles_first:
        lower = pc.replace_substring_regex(lower, _ARTICLE, " ")
        bare = _without_punctuation(lower)
    words = pc.ascii_split_whitespace(bare)
    gone = pa.array(_ARTICLES[:1] if articles_first else _ARTICLES, texts.type)
    kept = pc.invert(pc.is_in(words.flatten(), value_set=gone))
    before = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    lists = pa.ListArray.from_arrays(
        pa.array(before[words.offsets.to_numpy()], pa.int32()), words.flatten().filter(kept)
    )
    formed = pc.binary_join(lists, " ").cast(texts.type)
    return instead(formed, pc.invert(alike), texts, one)


def _without_punctuation(texts: pa.Array) -> pa.Array:
    """Remove ASCII punctuation; add a blank behind each text."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.cast("binary"))
    joined = b"%b\xff" % pc.binary_join(whole, b"\xff")[0].as_buffer()
    text = np.frombuffer(bytearray(joined.translate(None, _PUNCTUATION)), np.uint8)
    ends = np.flatnonzero(text == 0xFF) + 1
    text[ends - 1] = ord(" ")
    offsets = pa.py_buffer(np.append(0, ends).astype(np.int32))
    return pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(text))


def instead(
    formed: pa.Array, others: pa.Array, texts: pa.Array, one: Callable[[str], str]
) -> pa.Array:
    """Replace the forms where ``others`` is true by what ``one`` returns of the text."""
    if not others.true_count:
        return formed
    own = by_text(one)(texts.filter(others)).cast(formed.type)
    return pc.replace_with_mask(formed, others, own)


Positions = NDArray[np.int64]


def contained(texts: pa.Array, part: Positions, whole: Positions) -> Mask:
    """Say whether one text contains the other, (n_pairs,); an empty part counts as not contained."""
    pairs = (texts.take(pa.array(of)).to_pylist() for of in (part, whole))
    within = (one != "" and one in other for one, other in zip(*pairs, strict=True))
    return np.fromiter(within, np.bool_, len(part))


def f1_of_pairs(texts: pa.Array, first: Positions, second: Positions) -> Array:
    """Return :func:`suffice.scoring.token_f1` of every pair of normal forms, (n_pairs,), bit for bit."""
    used, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    texts = texts.take(pa.array(used))
    lists = pc.split_pattern(texts, " ")  # one empty word of an empty text
    offsets = lists.offsets.to_numpy().astype(np.int64)
    words, lengths = _numbered(lists.flatten(), offsets), np.diff(offsets)
    empty = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    first, second = place[: len(first)], place[len(first) :]
    asked = np.repeat(second * len(words), lengths[first])
    asked += words[ranges(offsets[first], offsets[first + 1])]
    held = np.repeat(np.arange(len(used)) * len(words), lengths) + words
    there = pc.is_in(pa.array(asked), value_set=pa.array(held)).to_numpy(zero_copy_only=False)
    pair = np.repeat(np.arange(len(first)), lengths[first])
    shared = np.bincount(pair[there], minlength=len(first))
    some = np.flatnonzero((shared > 0) & ~empty[first])
    precision, recall = (shared[some] / lengths[of[some]] for of in (first, second))
    scores = np.zeros(len(first))
    scores[some] = 2 * precision * recall / (precision + recall)
    return scores


def _numbered(words: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number words below ``len(words)``, equal for the same occurrence of a word in a text."""
    coded = words.dictionary_encode()
    codes, many = coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    keys = np.repeat(np.arange(len(offsets) - 1) * many, np.diff(offsets)) + codes
    order = np.argsort(keys, kind="stable")
    begins = np.diff(keys[order], prepend=-1) != 0
    place = np.arange(len(keys))
    times = np.empty(len(keys), np.int64)
    times[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return np.unique(times * many + codes, return_inverse=True)[1].reshape(-1)


def normal_forms(texts: pa.Array) -> pa.Array:
    """Apply :func:`suffice.scoring.normalize_answer` to every text, for :meth:`Texts.mapped`."""
    return without_articles(texts, normalize_answer.__wrapped__)


def answer_forms(texts: pa.Array) -> pa.Array:
    """Apply :func:`suffice.scoring.answer_form` to every text, for :meth:`Texts.mapped`."""
    if len(texts) <= _FEW:
        return by_text(answer_form.__wrapped__)(texts).cast(texts.type)
    forms = normal_forms(pc.if_else(pc.match_substring_regex(texts, _TELLING), "", texts))
    return instead(forms, pc.equal(forms, ""), texts, answer_form.__wrapped__)  # "A", too


_FORMS = {"agreement": answer_forms, "mlqa": by_text(mlqa_form)}


@dataclass(frozen=True, slots=True, eq=False)
class GoldAnswers:
    """Hold the gold answers of all questions, end to end in ``texts``.

    Question i has those from ``offsets[i]`` to before ``offsets[i + 1]``; ``offsets`` is (n_questions + 1,).
    """

    texts: Texts
    offsets: NDArray[np.int64]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> GoldAnswers:
        """Read a column of lists, one per question; leave out null and empty gold answers."""
        lists = Ragged.of(column)
        said = pc.fill_null(pc.greater(pc.binary_length(lists.values), 0), False)
        before = np.append(0, np.cumsum(said.to_numpy(zero_copy_only=False)))
        return cls(Texts.of(lists.values.filter(said)), before[lists.offsets])

    @property
    def labelled(self) -> Mask:
        """Say which questions have gold answers, (n_questions,)."""
        return np.diff(self.offsets) > 0


class ScoredAnswers:
    """Score answers against the gold answers of their questions, (n,); the best gold answer counts.

    A score is NaN where the answer is null or its question has no gold answer. Scores equal those of
    :mod:`suffice.scoring` bit for bit, ``by`` the official scripts, ``mlqa`` or ``agreement``.
    Each distinct text and each distinct pair is worked on once.
    """

    def __init__(
        self, answers: Texts, gold: GoldAnswers, question: NDArray[np.int64], by: str = ""
    ) -> None:
        self._n, self._by = len(answers), by
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
        answer, golden = np.repeat(code, counts), gold.texts.codes[ranges(begin, end)]
        golden = golden + len(answers.distinct)
        both = [answers.distinct, gold.texts.distinct.cast(answers.distinct.type)]
        self._forms = _FORMS.get(by, normal_forms)(pa.concat_arrays(both))
        coded = Texts.of(self._forms).codes
        self._same: Mask = coded[answer] == coded[golden]
        rows = np.flatnonzero(~self._same)
        keys = answer[rows] * len(self._forms) + golden[rows]
        _, place, other = np.unique(keys, return_index=True, return_inverse=True)
        said = pc.greater(pc.binary_length(self._forms), 0).to_numpy(zero_copy_only=False)
        self._said: Mask = self._same & said[golden]
        self._other = other.reshape(-1)  # of the distinct pairs that are not equal
        self._answer, self._gold = answer[rows[place]], golden[rows[place]]

    def score(self, name: ScoreName, f1_kind: F1Kind = "hotpotqa") -> Array:
        """Return one of the scores, (n,)."""
        best = self._of_pairs(name, f1_kind)
        if len(best) > len(self._starts):
            best = np.maximum.reduceat(best, self._starts)
        scores = np.full(self._n, np.nan)
        scores[self._rows] = best[self._of_row]
        return scores

    def _of_pairs(self, name: ScoreName, f1_kind: F1Kind) -> Array:
        if name == "em":
            return self._same.astype(np.float64)
        if name == "acc":
            of_others = contained(self._forms, self._gold, self._answer).astype(np.float64)
        else:
            of_others = self._f1
        if name == "f1" and f1_kind == "hotpotqa":
            special = pc.is_in(self._forms, pa.array(sorted(SPECIAL), self._forms.type))
            of_forms = special.to_numpy(zero_copy_only=False)
            of_others = np.where(of_forms[self._answer] | of_forms[self._gold], 0.0, of_others)
        scores = (self._same if self._by == "agreement" else self._said).astype(np.float64)
        scores[~self._same] = of_others[self._other]
        return scores

    @cached_property
    def _f1(self) -> Array:
        return f1_of_pairs(self._forms, self._answer, self._gold)
