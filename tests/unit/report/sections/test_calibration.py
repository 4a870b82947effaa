"""Calibrators in the report: the study's numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.html_reader import Page

from suffice.numbers.intervals.bootstrap import Interval
from suffice.report.sections.calibration import calibration_section
from suffice.results.formats import decimal, fraction, percent, points


def test_every_figure_is_the_studys(gathered: Any) -> None:
    study = gathered.parts["calibrators"]
    tables = Page.of(calibration_section(study).html()).tables
    scores, rules = (
        tables["Calibrators by their probabilities"],
        tables["Calibrators by the rule that reads them"],
    )
    for number, (each, row, rule) in enumerate(
        zip(study.results, scores[1:], rules[1:], strict=True)
    ):
        assert row == [
            each.kind,
            fraction(each.tune.brier.estimate),
            _scored(each.eval.brier),
            _scored(each.eval.delta_brier, "+") if number else "the first",
            *(
                fraction(value, 3)
                for on in ("log_loss", "ece")
                for value in (getattr(each.tune, on), getattr(each.eval, on))
            ),
            str(each.eval.rows),
        ]
        assert rule == [
            each.kind,
            f"{each.floor:g}",
            f"{percent(each.f1.estimate)} [{percent(each.f1.low)}, {percent(each.f1.high)}]",
            points(each.delta_f1) if number else "the first",
            percent(each.em),
            decimal(each.mean_rounds),
        ]


def test_the_finding_counts_kinds_that_differ(gathered: Any) -> None:
    study = gathered.parts["calibrators"]
    same = [
        replace(
            each,
            eval=replace(each.eval, delta_brier=replace(each.eval.delta_brier, low=-1.0, high=1.0)),
        )
        for each in study.results
    ]
    section = calibration_section(replace(study, results=tuple(same)))
    assert str(section.finding).endswith("none of 4 other kinds differs from isotonic")
    far = replace(
        same[1],
        eval=replace(same[1].eval, delta_brier=replace(same[1].eval.delta_brier, high=-0.5)),
    )
    section = calibration_section(replace(study, results=(same[0], far, *same[2:])))
    assert str(section.finding).endswith("1 of 4 other kinds differs from isotonic")


def test_notes_are_sentences_and_text(gathered: Any) -> None:
    study = replace(gathered.parts["calibrators"], notes=("a <b> note",), rule="x > ? <i>")
    html = calibration_section(study).html()
    assert "<li>A &lt;b&gt; note.</li>" in html
    assert "<code>x &gt; ? &lt;i&gt;</code>" in html


def _scored(interval: Interval, sign: str = "") -> str:
    return f"{interval.estimate:{sign}.4f} [{interval.low:.4f}, {interval.high:.4f}]"
