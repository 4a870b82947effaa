"""Which candidate estimates speak for where nothing is proven."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.replay.choose.procedure import Estimates, in_order
from suffice.replay.settings import ChoiceSettings


def estimates(**changed: Any) -> Estimates:
    """Four candidates, each dearer and better than the one before."""
    return Estimates(
        **{
            "loss": np.array([0.4, 0.2, 0.01, 0.0]),
            "cost": np.array([1.0, 2.0, 2.5, 3.0]),
            "kept": np.array([False, False, True, True]),
            "full": 3,
            "axis": CostAxis(name="rounds", label="rounds", unit=""),
            **changed,
        }
    )


def test_candidates_are_ordered_by_what_they_kept() -> None:
    order, _ = in_order(estimates(), ChoiceSettings(max_loss=0.1), proven=True)
    assert order.tolist() == [2, 3, 1, 0]


def test_aims_without_a_promise() -> None:
    for asked, first in (
        (ChoiceSettings(cost_per_error=100.0), 3),
        (ChoiceSettings(cost_per_error=1e-6), 0),
        (ChoiceSettings(max_cost=2.2), 1),
    ):
        assert in_order(estimates(), asked, proven=None)[0][0] == first
    with pytest.raises(UsageError):
        in_order(estimates(), ChoiceSettings(max_cost=0.5), proven=None)
