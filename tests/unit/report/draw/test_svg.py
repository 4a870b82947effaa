"""Pictures hold what they are asked to: axes, boxes and text."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.report.charts import Scatter, scatter
from suffice.report.svg import FRAME, enclosing, ticks


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0.27, 0.63),
        (1, 5),
        (0, 1),
        (0.3, 0.3),
        (-0.02, 0.31),
        (1, 100),
        (0.4149, 0.4151),
        (0, 12345),
    ],
)
def test_ticks_enclose_the_values_at_even_round_steps(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low
    assert found[-1] >= high
    assert 2 <= len(found) <= 7
    steps = np.diff(found)
    np.testing.assert_allclose(steps, steps[0], rtol=1e-6)
    mantissa = steps[0] / 10 ** math.floor(math.log10(steps[0]) + 1e-9)
    assert min(abs(mantissa - round_step) for round_step in (1, 2, 5)) < 1e-6


def test_every_value_lies_inside_the_frame_and_up_is_more() -> None:
    axes = enclosing([1.05, 4.6], [0.231, 0.557])
    assert FRAME.left < axes.x(1.05) < axes.x(4.6) < FRAME.right
    assert FRAME.top < axes.y(0.557) < axes.y(0.231) < FRAME.bottom


def test_a_chart_without_scores_says_so() -> None:
    chart = Scatter(
        title="F1 against rounds", description="", x_name="rounds", y_name="F1 %", points=()
    )
    assert "F1 %: not known" in scatter(chart)
