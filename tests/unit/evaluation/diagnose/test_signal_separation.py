"""Cohen's d by hand and from resampled sums; what is undefined says why."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.evaluation.diagnose.signal_checks import Rows, figures_of, separations


def test_d_by_hand() -> None:
    """Right 4, 8: mean 6, SD 2 sqrt 2. Wrong 1, 3: mean 2, SD sqrt 2. d = 4 / (1.5 sqrt 2)."""
    values = np.array([1.0, 4.0, 3.0, 8.0])
    right = np.array([False, True, False, True])
    # a shift and a scale change nothing
    for of, sign in ((values, 1), (-values, -1), (7 * values - 3, 1)):
        found = figures_of(Rows(values=of, right=right, questions=np.arange(4)))[0]
        assert found == pytest.approx(sign * 4 / (1.5 * math.sqrt(2)))


@pytest.mark.parametrize(
    ("values", "right", "why_area", "why_d"),
    [
        ([], [], "defined in no labeled round", None),
        ([1.0, 2.0], [True, True], "no wrong answer among these rounds", None),
        ([1.0, 2.0], [False, False], "no right answer among these rounds", None),
        ([3.0, 3.0], [True, False], "the signal is 3 in all of these rounds", None),
        ([1.0, 2.0], [True, False], None, "fewer than two rounds"),
        ([1.0, 1.0, 2.0, 2.0], [True, True, False, False], None, "varies neither"),
        ([1.0, math.inf, 2.0, 3.0], [True, True, False, False], None, "infinite"),
    ],
)
def test_undefined_says_why(
    values: list[float], right: list[bool], why_area: str | None, why_d: str | None
) -> None:
    given = Rows(
        values=np.array(values), right=np.array(right, bool), questions=np.arange(len(values))
    )
    ((found, _),) = separations([given], max(1, len(values)), resamples=20, seed=0)
    if why_area is not None:
        assert found["auroc"].estimate is None
        assert found["auroc"].reason == found["d"].reason == found["d_signed"].reason == why_area
    else:
        assert found["auroc"].estimate is not None
    if why_d is not None:
        assert found["d"].estimate is None
        assert why_d in (found["d"].reason or "")
