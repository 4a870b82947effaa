"""A section that cannot be shown is left out, with the reason."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from suffice.errors import UsageError
from suffice.replay.diagnose.report_data import ReportData
from suffice.report import page as report
from suffice.report.page import SECTIONS, render_report
from suffice.report.section import Material, Section, Shown
from suffice.trace.rounds.records import QuestionRecord

Build = Callable[..., ReportData]


def show(material: Material) -> Shown | None:
    baseline = material.data.result.baseline
    if baseline == "fixed-1":
        return None
    if baseline == "fixed-2":
        raise UsageError("the baseline <b>\nis too short")
    return Shown(finding="3 toys", blocks=[])


def test_what_cannot_be_shown_is_left_out_with_the_reason(
    records: list[QuestionRecord], build_report: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "SECTIONS", (*SECTIONS, Section("toy", "Toys & more", show)))
    data = build_report(records, ["fixed-1", "fixed-2", "fixed-3"])

    def rendered(baseline: str) -> str:
        return render_report(replace(data, result=replace(data.result, baseline=baseline)))

    assert '<a href="#toy">Toys &amp; more</a>' in rendered("fixed-3")
    assert '<span class="finding">3 toys</span>' in rendered("fixed-3")
    without = rendered("fixed-2")
    assert 'id="toy"' not in without
    assert "<li><b>Toys &amp; more</b>: the baseline &lt;b&gt; is too short</li>" in without
    assert "Toys" not in rendered("fixed-1")
