"""Axes hold what they are asked to."""

from __future__ import annotations

from suffice.report.draw.svg import FRAME, enclosing


def test_every_value_lies_inside_the_frame_and_up_is_more() -> None:
    axes = enclosing([1.05, 4.6], [0.231, 0.557])
    assert FRAME.left < axes.x(1.05) < axes.x(4.6) < FRAME.right
    assert FRAME.top < axes.y(0.557) < axes.y(0.231) < FRAME.bottom


def test_one_value_still_has_axes() -> None:
    axes = enclosing([2.0], [0.5])
    drawn = "".join(axes.drawn("rounds", "F1, %"))
    assert FRAME.top < axes.y(0.5) < FRAME.bottom
    assert ">40</text>" in drawn
    assert ">rounds</text>" in drawn


def test_shares_are_in_percent_and_others_are_not() -> None:
    axes = enclosing([0.0, 1.0], [2.5, 3.5])
    assert ">3.5</text>" in "".join(axes.drawn("x", "y", shares=False))
    assert ">350</text>" in "".join(axes.drawn("x", "y"))
