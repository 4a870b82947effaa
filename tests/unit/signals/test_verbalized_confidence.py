"""The model's own rating, defined from 1 to 5 only."""

from __future__ import annotations

import math

import pytest

from suffice.signals.model_confidence import VERBALIZED_CONFIDENCE
from suffice.trace.rounds.records import LoopView, Round


@pytest.mark.parametrize("rating", [1.0, 3.0, 5.0])
def test_a_rating_is_taken_as_it_stands(rating: float) -> None:
    view = LoopView("q", (Round(answer="x", verbalized_confidence=rating),))
    assert VERBALIZED_CONFIDENCE(view) == rating


@pytest.mark.parametrize("rating", [None, 0.0, 0.99, 5.01, 10.0, -3.0, math.nan, math.inf])
def test_anything_else_is_undefined_not_three(rating: float | None) -> None:
    view = LoopView("q", (Round(answer="x", verbalized_confidence=rating),))
    assert math.isnan(VERBALIZED_CONFIDENCE(view))
