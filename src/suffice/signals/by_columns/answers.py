"""Answer stability of all rounds: whether, and how nearly, the answer repeats the previous round's."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.columns.texts import NONE, Texts, by_text
from suffice.scoring import answer_form
from suffice.signals.answer_stability import published_normalizer
from suffice.signals.by_columns.passages import added_nothing
from suffice.signals.by_columns.rounds import RoundColumns

Array = NDArray[np.float64]


def forms(rounds: RoundColumns) -> Texts:
    """The answers in the form by which they are compared."""
    return rounds.texts("answer").mapped(by_text(answer_form))


def published_forms(rounds: RoundColumns) -> Texts:
    """The answers as the published code normalises them."""
    return rounds.texts("answer").mapped(by_text(published_normalizer))


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
