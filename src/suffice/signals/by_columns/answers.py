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
from suffice.columns.texts import Texts, by_ascii
from suffice.signals.answer_stability import published_normalizer
from suffice.signals.by_columns.rounds import RoundColumns

Array = NDArray[np.float64]


def published_forms(texts: pa.Array) -> pa.Array:
    """The published code's normal form of every text, for :meth:`Texts.mapped`."""
    return by_ascii(_published, published_normalizer)(texts)


def _published(texts: pa.Array) -> pa.Array:
    return squeezed(without_punctuation(without_articles(pc.ascii_lower(texts))))


def _forms(rounds: RoundColumns) -> Texts:
    """The answers in the form by which they are compared."""
    return rounds.texts("answer").mapped(answer_forms)


def repeats(rounds: RoundColumns) -> Array:
    """``answer_repeats``."""
    now = rounds.once(_forms).codes
    previous = rounds.before(now, -1)
    return np.where(previous < 0, np.nan, now == previous)
