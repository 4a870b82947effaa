"""Answer stability of all rounds: whether, and how nearly, the answer repeats the previous round's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.columns.texts import Texts, by_text
from suffice.scoring import answer_form
from suffice.signals.by_columns.rounds import RoundColumns

Array = NDArray[np.float64]


def _forms(rounds: RoundColumns) -> Texts:
    """The answers in the form by which they are compared."""
    return rounds.texts("answer").mapped(by_text(answer_form))


def repeats(rounds: RoundColumns) -> Array:
    """``answer_repeats``."""
    now = rounds.once(_forms).codes
    previous = rounds.before(now, -1)
    return np.where(previous < 0, np.nan, now == previous)
