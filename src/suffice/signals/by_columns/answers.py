"""Answer stability of all rounds: whether, and how nearly, the answer repeats the previous round's."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import (
    answer_forms,
    squeezed,
    without_articles,
    without_punctuation,
)
from suffice.columns.texts import NONE, Texts, by_ascii
from suffice.signals.answer_stability import published_normalizer
from suffice.signals.by_columns.passages import added_nothing
from suffice.signals.by_columns.rounds import RoundColumns

Array = NDArray[np.float64]


def as_published(texts: pa.Array) -> pa.Array:
    """:func:`published_normalizer` of every text, for :meth:`Texts.mapped`."""
    return by_ascii(_published, published_normalizer)(texts)


def _published(texts: pa.Array) -> pa.Array:
    return squeezed(without_punctuation(without_articles(pc.ascii_lower(texts))))


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


def _equal_to_previous(rounds: RoundColumns, answers: Texts) -> Array:
    previous = rounds.before(answers.codes, NONE)
    return np.where(previous == NONE, np.nan, answers.codes == previous)
