"""Calibrators in the report: the study's numbers."""

from __future__ import annotations

from typing import Any

from tests.html_reader import Page

from suffice.report.worth import calibration_section
from suffice.results.formats import decimal, fraction, percent, points
from suffice.stats.intervals import Interval


def test_every_figure_is_the_studys(gathered: Any) -> None:
    study = gathered.parts["calibrators"]
    scores, rules = Page.of(calibration_section(study).html()).tables.values()
    for number, (each, row, rule) in enumerate(
        zip(study.results, scores[1:], rules[1:], strict=True)
    ):
        assert row == [
            each["kind"],
            fraction(each["tune_out_of_fold"]["brier"].estimate),
            _scored(each["eval"]["brier"]),
            _scored(each["eval"]["delta_brier"], "+") if number else "the first",
            *(
                fraction(value, 3)
                for on in ("log_loss", "ece")
                for value in (each["tune_out_of_fold"][on], each["eval"][on])
            ),
            str(each["eval"]["rows"]),
        ]
        read = each["rule"]
        f1 = read["f1"]
        assert rule == [
            each["kind"],
            f"{read['floor']:g}",
            f"{percent(f1.estimate)} [{percent(f1.low)}, {percent(f1.high)}]",
            points(read["delta_f1"]) if number else "the first",
            percent(read["em"]),
            decimal(read["mean_rounds"]),
        ]


def _scored(interval: Interval, sign: str = "") -> str:
    return f"{interval.estimate:{sign}.4f} [{interval.low:.4f}, {interval.high:.4f}]"
