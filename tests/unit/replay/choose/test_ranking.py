"""Which candidate estimates speak for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from suffice.measures.costs import CostAxis
from suffice.replay.choose.learn_then_test import Certification
from suffice.replay.choose.ranking import Estimates, pick
from suffice.replay.settings import ChoiceSettings

UNPROVEN = cast(
    "Certification", SimpleNamespace(fell_back=True, certified=np.zeros(4, np.bool_), chosen=3)
)


def estimates(**changed: Any) -> Estimates:
    """Four candidates, each dearer and better than the one before."""
    return Estimates(
        **{
            "loss": np.array([0.4, 0.2, 0.01, 0.0]),
            "cost": np.array([1.0, 2.0, 2.5, 3.0]),
            "kept": np.array([False, False, True, True]),
            "latest": np.ones(4, np.bool_),
            "fixed": np.ones(4, np.bool_),
            "full": 3,
            "axis": CostAxis(name="rounds", label="rounds", unit=""),
            "unfitted": np.arange(4),
            "tune": None,
            **changed,
        }
    )


@pytest.mark.parametrize(
    ("most", "number", "guess", "said"),
    [
        (None, 3, 2, "Nothing cheaper is proven"),
        (3.5, 3, 2, "Nothing cheaper is proven"),
        (2.7, 2, None, "Of the 3 candidates within it this one lost least"),
        (2.2, 1, None, "Of the 2 candidates within it this one lost least"),
        (0.5, 0, None, "Nothing costs so little; this costs least."),
    ],
)
def test_where_nothing_is_proven(
    most: float | None, number: int, guess: int | None, said: str
) -> None:
    settings = ChoiceSettings(max_loss=0.02, max_cost=most)
    picked = pick(estimates(), UNPROVEN, settings, np.array([False, False, True, False]))
    assert (picked.number, picked.guess) == (number, guess)
    assert said in picked.why
    assert sorted(picked.order.tolist()) == [0, 1, 2, 3]
    assert picked.order[0] == number


def test_within_the_cap_what_kept_all_that_was_asked_comes_first() -> None:
    kept = np.array([True, False, False, True])
    settings = ChoiceSettings(max_wrong_stops=0.1, max_cost=2.7)
    assert pick(estimates(kept=kept), UNPROVEN, settings, kept).number == 0
