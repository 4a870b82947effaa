"""The sweep in the report: its curve, its choice, its gaps."""

from __future__ import annotations

import re
from typing import Any

from suffice.report.searches import thresholds_section


def test_the_band_encloses_tune_f1(gathered: Any) -> None:
    html = thresholds_section(gathered.parts["sweep"]).html()
    band, curve = (
        [tuple(map(float, pair.split(","))) for pair in found.split()]
        for found in (
            re.findall(r'<polygon points="([^"]+)" class="band fixed"', html)[0],
            re.findall(r'<polyline points="([^"]+)" class="curve fixed"', html)[0],
        )
    )
    top, bottom = band[: len(curve)], band[: len(curve) - 1 : -1]
    for (x, y), (x_top, high), (x_low, low) in zip(curve, top, bottom, strict=True):
        assert x == x_top == x_low
        assert high < y < low
