"""What answering costs, counted against limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from suffice.contracts import Completion, Generation, GenerationRequest
from suffice.costs.prices import Prices, PriceTier
from suffice.errors import UsageError
from suffice.live.budgets import Budgets, Meter
from suffice.trace.rounds.records import Usage

ASK = GenerationRequest(prompt="Q?")


@dataclass(frozen=True)
class Counting:
    """A model whose replies report these counts."""

    prompt: int | None = 100
    cached: int | None = 0
    completion: int | None = 10
    name: str = "counting"
    api: Any = "completion"

    def generate(self, request: GenerationRequest) -> Generation:
        return Generation(
            completions=(Completion(text="x"),) * request.n,
            model=self.name,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            completion_tokens=self.completion,
        )


def usd(model: Counting, prices: Prices, calls: int = 1, n: int = 1) -> float | None:
    meter = Meter(model, Budgets(prices=prices))
    for _ in range(calls):
        meter.generate(GenerationRequest(prompt="Q?", n=n))
    return meter.usd


def test_dollars_by_hand() -> None:
    prices = Prices(input=2.0, cached=0.5, output=10.0)
    assert usd(Counting(), prices) == pytest.approx((100 * 2 + 10 * 10) / 1e6)
    assert usd(Counting(cached=80), prices) == pytest.approx((20 * 2 + 80 * 0.5 + 100) / 1e6)
    # a server that does not tell what it reused is paid in full: never less than the bill
    assert usd(Counting(cached=None), prices) == usd(Counting(), prices)
    assert usd(Counting(), Prices(input=0, cached=0, output=0, call=0.01), n=3) == 0.03


def test_long_requests_pay_their_tier_whole() -> None:
    tier = PriceTier(above=100, input=4.0, cached=4.0, output=20.0)
    prices = Prices(input=2.0, cached=2.0, output=10.0, tiers=(tier,))
    assert usd(Counting(prompt=100), prices) == pytest.approx((100 * 2 + 10 * 10) / 1e6)
    assert usd(Counting(prompt=101), prices) == pytest.approx((101 * 4 + 10 * 20) / 1e6)


def test_retrievals_and_rerankers_are_paid_too() -> None:
    prices = Prices(input=0, cached=0, output=0, retrieval=0.1, rerank=0.25)
    meter = Meter(Counting(), Budgets(usd=0.35, prices=prices))
    meter.generate(ASK)
    assert meter.spent() is None
    meter.add_lookups(Usage(retrievals=1, rerank_calls=1))
    assert meter.usd == pytest.approx(0.35)
    assert meter.spent() == "the budget of 0.35 USD is spent"


def test_each_limit_is_reached_when_it_is_met() -> None:
    meter = Meter(Counting(), Budgets(tokens=220))
    meter.generate(ASK)
    assert (meter.tokens, meter.spent(), meter.usd) == (110, None, None)
    meter.generate(ASK)
    assert meter.spent() == "the budget of 220 tokens is spent"


@pytest.mark.parametrize("model", [Counting(prompt=None), Counting(completion=None)])
def test_a_server_that_counts_nothing_cannot_be_held_to_a_budget(model: Counting) -> None:
    """It ends the loop, since nothing else would: no budget is passed over in silence."""
    prices = Prices(input=1, cached=1, output=1)
    for budgets in (Budgets(tokens=10**9), Budgets(usd=1e9, prices=prices)):
        meter = Meter(model, budgets)
        meter.generate(ASK)
        assert "the server counts no tokens" in (meter.uncounted or "")
        assert meter.usd is None
    free = Meter(model, Budgets())
    free.generate(ASK)
    assert free.spent() is None


@pytest.mark.parametrize(
    ("limits", "part"),
    [
        ({"usd": 1.0}, r"needs prices: --price-model MODEL, or --prices input="),
        ({"tokens": 0}, "above 0, found 0 tokens"),
        ({"seconds": -1.0}, "above 0, found -1.0 seconds"),
        ({"usd": 0.0, "prices": Prices(input=1, cached=1, output=1)}, "above 0, found 0.0 usd"),
        ({"seconds": float("nan")}, "above 0"),
    ],
)
def test_limits_that_are_none_are_refused(limits: dict[str, Any], part: str) -> None:
    with pytest.raises(UsageError, match=part):
        Budgets(**limits)
