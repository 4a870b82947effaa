"""Answers and queries of all rounds: whether they repeat what was said before, or abstain."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import answer_forms
from suffice.columns.characters import by_characters, without_articles_first
from suffice.columns.pairs import f1_of_pairs
from suffice.columns.texts import NONE, Codes, Texts
from suffice.signals.abstained import HEAD, Abstentions
from suffice.signals.answer_stability import matching_characters, published_normalizer
from suffice.signals.by_columns.passages import added_nothing
from suffice.signals.by_columns.rounds import RoundColumns, by_appearance

Array = NDArray[np.float64]


def as_published(texts: pa.Array) -> pa.Array:
    """:func:`published_normalizer` of every text, for :meth:`Texts.mapped`."""
    return by_characters(without_articles_first, published_normalizer)(texts)


def forms(rounds: RoundColumns) -> Texts:
    """The answers in the form by which they are compared."""
    return rounds.texts("answer").mapped(answer_forms)


def published_forms(rounds: RoundColumns) -> Texts:
    """The answers as the published code normalises them."""
    return rounds.texts("answer").mapped(as_published)


def stable(rounds: RoundColumns) -> Array:
    """``answer_stable``."""
    return np.where(rounds.once(added_nothing), np.nan, repeats(rounds))


def repeats(rounds: RoundColumns) -> Array:
    """``answer_repeats``."""
    return _equal_to_previous(rounds, rounds.once(forms))


def stable_published(rounds: RoundColumns) -> Array:
    """``answer_stable_published``."""
    return _equal_to_previous(rounds, rounds.once(published_forms))


def similarity_f1(rounds: RoundColumns) -> Array:
    """``answer_similarity_f1``."""
    pairs, answers = rounds.once(_pairs), rounds.once(forms)
    return pairs.of_rows(f1_of_pairs(answers.distinct, pairs.current, pairs.previous))


def similarity_seq(rounds: RoundColumns) -> Array:
    """``answer_similarity_seq``; letters are compared of the distinct pairs of two different answers only."""
    pairs, answers = rounds.once(_pairs), rounds.once(forms)
    empty = answers.code_of("")
    same, some = pairs.current == pairs.previous, pairs.current != empty
    ratios = np.where(same & some, 1.0, 0.0)
    rows = np.flatnonzero(~same & some & (pairs.previous != empty))
    texts = [
        answers.distinct.take(pa.array(codes[rows])).to_pylist()
        for codes in (pairs.previous, pairs.current)
    ]
    ratios[rows] = list(map(matching_characters, *texts))
    return pairs.of_rows(ratios)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """The different pairs of an answer's form and the previous one's that similarity is measured of.

    ``previous`` and ``current`` (n_pairs,) are codes; ``of_row`` (n_rows,) is each row's pair, or ``NONE``.
    """

    previous: Codes
    current: Codes
    of_row: Codes

    def of_rows(self, values: Array) -> Array:
        """What is known of pairs, of every row; NaN where it has none."""
        return np.append(values, np.nan)[self.of_row]


def _pairs(rounds: RoundColumns) -> _Pairs:
    current = rounds.once(forms).codes
    previous = rounds.before(current, NONE)
    defined = (previous != NONE) & (current != NONE) & ~rounds.once(added_nothing)
    rows = np.flatnonzero(defined)
    keys = previous[rows] * (current.max(initial=0) + 1) + current[rows]
    pair, places = by_appearance(keys)
    of_row = np.full(rounds.n_rows, NONE)
    of_row[rows] = pair
    return _Pairs(previous[rows][places], current[rows][places], of_row)


def _equal_to_previous(rounds: RoundColumns, answers: Texts) -> Array:
    previous = rounds.before(answers.codes, NONE)
    return np.where(previous == NONE, np.nan, answers.codes == previous)


# --- abstention --------------------------------------------------------------------------------------
_FROM_HEAD_ON = rf"(?s)(?:{HEAD.pattern}).*"
_AT_ONCE = 500  # phrases in one pattern, of which RE2 does not take any number


def abstained(rounds: RoundColumns, phrases: Abstentions) -> Array:
    """``abstained`` by these phrases."""
    answers = rounds.texts("answer")
    return answers.through(abstaining(answers.distinct, phrases).astype(np.float64), np.nan)


def abstaining(texts: pa.Array, phrases: Abstentions) -> NDArray[np.bool_]:
    """:meth:`Abstentions.holds` of every text, (n,)."""
    forms = answer_forms(texts)
    whole = pa.array(sorted(phrases.whole), forms.type)
    abstain = _flags(pc.or_(pc.equal(forms, ""), pc.is_in(forms, whole)))
    abstain |= _stand(forms, "^", phrases.beginnings, "(?: |$)")
    headed = _flags(pc.match_substring_regex(texts, HEAD.pattern))
    abstain |= ~headed & _stand(forms, "(?:^| )", phrases.ends, "$")
    open_ones = np.flatnonzero(headed & ~abstain)
    heads = pc.replace_substring_regex(texts.take(pa.array(open_ones)), _FROM_HEAD_ON, "")
    abstain[open_ones] = _flags(pc.is_in(answer_forms(heads), whole))
    return abstain


def _stand(
    forms: pa.Array, before: str, by_word: Mapping[str, Iterable[str]], behind: str
) -> NDArray[np.bool_]:
    """Of which forms one of the phrases stands between two patterns, (n,)."""
    phrases = [re.escape(phrase.strip(" ")) for alike in by_word.values() for phrase in alike]
    stand = np.zeros(len(forms), bool)
    for first in range(0, len(phrases), _AT_ONCE):
        some = "|".join(phrases[first : first + _AT_ONCE])
        stand |= _flags(pc.match_substring_regex(forms, f"{before}(?:{some}){behind}"))
    return stand


def _flags(cells: pa.Array) -> NDArray[np.bool_]:
    return np.array(cells.to_numpy(zero_copy_only=False))


# --- queries -----------------------------------------------------------------------------------------
def query_repeats(rounds: RoundColumns) -> Array:
    """``query_repeats``."""
    queries = rounds.texts("query").mapped(answer_forms)
    keys = rounds.question * (len(queries.distinct) + 1) + queries.codes + 1
    number, places = by_appearance(keys)
    unsent = queries.codes == NONE
    unsent_before = rounds.before(rounds.so_far(unsent), False)
    repeats = np.where(unsent_before, np.nan, 0.0)
    repeats[places[number] < np.arange(rounds.n_rows)] = 1.0
    repeats[unsent | rounds.first] = np.nan
    return repeats
