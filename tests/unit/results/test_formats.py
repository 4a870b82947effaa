from __future__ import annotations

from suffice.results.formats import bracket, count, decimal, percent, points, signed
from suffice.stats.intervals import Interval


def test_shares_become_percent_and_unknown_a_dash() -> None:
    assert percent(0.41498) == "41.5"
    assert percent(1.31874) == "131.9"
    assert [percent(None), signed(None), decimal(None), count(None), points(None)] == ["-"] * 5


def test_zero_has_no_minus() -> None:
    assert percent(-0.00001) == "0.0"
    assert signed(-0.00001) == "+0.0"
    assert decimal(-0.001) == "0.00"


def test_differences_carry_their_sign_and_interval() -> None:
    interval = Interval(estimate=0.1968, low=-0.1131, high=0.2828)
    assert points(interval) == "+19.7 [-11.3, 28.3]"
    assert bracket(None) == ""


def test_counts_are_grouped() -> None:
    assert count(3428.28) == "3,428"
    assert decimal(1234.5) == "1,234.50"
