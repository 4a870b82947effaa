"""The sweep in the report: its curve, its choice, its gaps."""

from __future__ import annotations

import re
from typing import Any

from tests.html_reader import Page

from suffice.report.searches import thresholds_section
from suffice.results.formats import decimal, percent, signed


def test_every_threshold_stands_in_the_table(gathered: Any) -> None:
    sweep = gathered.parts["sweep"]
    rows = Page.of(thresholds_section(sweep).html()).tables[sweep.settings.rule]
    for each, row in zip(sweep.points, rows[1:], strict=True):
        assert row[0] == f"{each['threshold']:g}"
        assert ("chosen" in row[-1]) == (each["threshold"] == sweep.chosen)
        assert row[1:-1] == [
            percent(each["tune_f1"]),
            percent(each["tune_standard_error"]),
            decimal(each["tune_rounds"]),
            decimal(each["tune_cost"]),
            signed(each["gain_per_round"]),
            percent(each["eval_f1"]),
            percent(each["eval_em"]),
            decimal(each["eval_rounds"]),
            decimal(each["eval_cost"]),
        ]


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
