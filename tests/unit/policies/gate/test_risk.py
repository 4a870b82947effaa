"""Risk, confidence, the remaining share and how many documents a retrieval asks for."""

from __future__ import annotations

import math

import pytest

from suffice.errors import UsageError
from suffice.policies.gate.settings import RiskModel, remaining_share, retrieval_depth


def test_the_worked_example() -> None:
    """SC = 1, CD = 1, DR = 1/6: R = 13/6, c = 0.103."""
    model = RiskModel()
    risk = model.risk(agreement=1.0, contradiction=1.0, remaining=1 / 6)
    assert risk == pytest.approx(13 / 6)
    assert model.confidence(risk) == pytest.approx(1 / (1 + math.exp(13 / 6)), abs=1e-15)
    assert model.confidence(risk) == pytest.approx(0.103, abs=5e-4)


def test_each_part_raises_risk_by_its_weight() -> None:
    model = RiskModel(disagreement=0.3, contradiction=0.5, remaining=0.7, intercept=1.1)
    assert model.risk(agreement=0.0, contradiction=0.0, remaining=0.0) == pytest.approx(0.3)
    assert model.risk(agreement=1.0, contradiction=1.0, remaining=0.0) == pytest.approx(0.5)
    assert model.risk(agreement=1.0, contradiction=0.0, remaining=1.0) == pytest.approx(0.7)
    assert model.largest == pytest.approx(1.5)
    assert model.confidence(1.1) == 0.5
    assert math.isnan(model.confidence(math.nan))


def test_the_remaining_share_falls_to_zero_and_stays() -> None:
    assert [remaining_share(done, 5) for done in range(8)] == [1.0, 0.8, 0.6, 0.4, 0.2, 0, 0, 0]
    with pytest.raises(UsageError, match="total_steps=0"):
        remaining_share(0, 0)


def test_a_retrieval_asks_for_more_the_lower_the_confidence() -> None:
    """1 + round(5 (1 - c / tau_low)), held in 1..6."""
    depths = [retrieval_depth(step / 1000, 0.25, 6) for step in range(251)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[-1]) == (6, 1)
    assert set(depths) == {1, 2, 3, 4, 5, 6}
    assert retrieval_depth(0.1, 0.25, 6) == 1 + round(5 * 0.6)


@pytest.mark.parametrize(
    ("confidence", "tau_low", "expected"), [(0.9, 0.25, 1), (0.1, 0.0, 1), (0.1, -1.0, 1)]
)
def test_a_depth_is_never_below_one(confidence: float, tau_low: float, expected: int) -> None:
    assert retrieval_depth(confidence, tau_low, 6) == expected


def test_one_document_at_most_where_k_max_is_one() -> None:
    assert retrieval_depth(0.0, 0.25, 1) == 1
