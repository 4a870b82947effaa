"""The sweep in the report: its curve, its choice, its gaps."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from tests.html_reader import Page

from suffice.report.sections.thresholds import thresholds_section
from suffice.results.formats import decimal, percent, points, signed


def test_every_threshold_stands_in_the_table(gathered: Any) -> None:
    sweep = gathered.parts["sweep"]
    rows = Page.of(thresholds_section(sweep).html()).tables["Every threshold on both splits"]
    for each, row in zip(sweep.points, rows[1:], strict=True):
        assert row[0] == f"{each.threshold:g}"
        assert ("chosen" in row[-1]) == (each.threshold == sweep.chosen)
        assert row[1:-1] == [
            percent(each.tune_score),
            percent(each.tune_error),
            decimal(each.tune_rounds),
            decimal(each.tune_cost),
            signed(each.gain),
            percent(each.eval_score),
            percent(each.eval_other),
            decimal(each.eval_rounds),
            decimal(each.eval_cost),
        ]


def test_gaps_and_choice_are_stated(gathered: Any) -> None:
    sweep = gathered.parts["sweep"]
    section = thresholds_section(sweep)
    for gap in (sweep.selection_gap, sweep.split_gap):
        assert points(gap) in section.html()
    chosen = next(each for each in sweep.points if each.threshold == sweep.chosen)
    assert str(section.finding).startswith(
        f"{sweep.chosen:g} chosen on tune: F1 {percent(chosen.eval_score)}% at {decimal(chosen.eval_rounds)}"
    )


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


@pytest.mark.parametrize(
    ("knee", "warning", "said"),
    [
        (0.25, None, "knee at 0.25"),
        (0.25, "no single knee", "no clear knee"),
        (None, "flat", "no clear knee"),
    ],
)
def test_a_knee_that_is_not_clear_is_not_claimed(
    gathered: Any, knee: float | None, warning: str | None, said: str
) -> None:
    sweep = gathered.parts["sweep"]
    found = replace(sweep.knee, threshold=knee, warning=warning, share=0.9)
    assert str(thresholds_section(replace(sweep, knee=found)).finding).endswith(said)
