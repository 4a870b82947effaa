"""What all guarantees share."""

from __future__ import annotations

import pytest

from suffice.evaluation.choose import candidates


@pytest.fixture(autouse=True)
def few_orders(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bets in 10 to 40 orders where thousands of records are drawn: any number of orders is valid."""
    if request.node.get_closest_marker("slow"):
        monkeypatch.setattr(candidates, "_ORDERS", (10, 40))
