"""A gate's numbers: risk and confidence, presets, thresholds from costs, what is refused and warned of."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from suffice.errors import SufficeWarning, UsageError
from suffice.policies.gate.gate_settings import (
    GateCosts,
    GateSettings,
    RiskModel,
    remaining_share,
    retrieval_depth,
)


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


# --- settings -------------------------------------------------------------------------------------
FITTED = RiskModel(disagreement=2.0, contradiction=1.0, remaining=0.5, intercept=1.5)


def published(**changes: Any) -> GateSettings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        return GateSettings.published(**changes)


class TestCosts:
    def test_retrieve_below_one_minus_their_ratio(self) -> None:
        """Eq. 12: P(fail) L_f > c_r."""
        costs = GateCosts(retrieval=1.0, failure=5.0)
        assert costs.tau_low == pytest.approx(0.8)
        for confidence in (0.7, 0.79, 0.81, 0.9):
            assert (confidence < costs.tau_low) == ((1.0 - confidence) * 5.0 > 1.0)

    def test_asking_and_ending_have_their_own(self) -> None:
        alike = GateCosts(retrieval=1.0, failure=4.0)
        assert (alike.tau_low, alike.tau_high, alike.tau_stop) == (0.75, 0.75, None)
        own = GateCosts(retrieval=1.0, failure=4.0, ask=0.5, stop=3.0)
        assert (own.tau_low, own.tau_high, own.tau_stop) == (0.75, 0.875, 0.25)


class TestPresets:
    def test_published_are_the_papers_numbers(self) -> None:
        chosen = published()
        assert (chosen.risk, chosen.tau_low, chosen.tau_high) == (RiskModel(), 0.25, 0.75)
        assert (chosen.order, chosen.revises, chosen.k_max) == ("retrieve-first", False, 6)
        assert (chosen.kappa, chosen.budget, chosen.cooldown) == (0.5, 3, 1)

    def test_corrected_has_fitted_numbers_and_real_actions(self) -> None:
        chosen = GateSettings.corrected(FITTED, GateCosts(retrieval=1.0, failure=2.0), budget=1)
        assert (chosen.risk, chosen.tau_low, chosen.tau_high) == (FITTED, 0.5, 0.5)
        assert (chosen.preset, chosen.revises, chosen.budget) == ("corrected", True, 1)


class TestWarnings:
    def test_a_stop_that_was_asked_for_is(self) -> None:
        costs = GateCosts(retrieval=1.0, failure=2.0, stop=1.99)
        with pytest.warns(SufficeWarning, match="STOP can never be chosen"):
            GateSettings.corrected(FITTED, costs)
