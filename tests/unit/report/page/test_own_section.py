"""A section of somebody else: a function and a line in the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from suffice.errors import UsageError
from suffice.replay.diagnose.report_data import ReportData
from suffice.report import report
from suffice.report.charts import Bar, BarRow, Bars, Segment, bars
from suffice.report.report import SECTIONS, render_report
from suffice.report.section import Chart, Material, Section, Shown
from suffice.results.markup import data_table
from suffice.trace.rounds.records import QuestionRecord

Build = Callable[..., ReportData]


def show(material: Material) -> Shown | None:
    result = material.data.result
    if result.baseline == "fixed-1":
        return None
    if result.baseline == "fixed-2":
        raise UsageError("the baseline <b>\nis too short")
    paid = [(policy, policy.result.mean_rounds) for policy in material.policies]
    rows = [
        BarRow(
            mark=policy.mark,
            family=policy.family,
            name=policy.result.name,
            hint=policy.full_name,
            bars=[Bar(label=f"{mean:.2f}", segments=[Segment(size=mean, class_="fixed", hint="")])],
        )
        for policy, mean in paid
    ]
    picture = bars(Bars(title="Toys", description="", rows=rows, heads=["rounds"], widths=[300]))
    table = data_table("Toys", ["policy", "rounds"], [(p.full_name, m) for p, m in paid])
    chart = Chart(heading="Toys", pictures=[picture], caption="None.", table=table)
    return Shown(finding=f"{len(paid)} toys", blocks=[chart])


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SECTIONS", (*SECTIONS, Section("toy", "Toys & more", show)))


@pytest.mark.usefixtures("registered")
def test_it_stands_in_the_report(records: list[QuestionRecord], build_report: Build) -> None:
    data = build_report(records, ["fixed-1", "fixed-3"])
    html = render_report(replace(data, result=replace(data.result, baseline="fixed-3")))
    assert '<a href="#toy">Toys &amp; more</a>' in html
    assert '<span class="finding">2 toys</span>' in html
    assert "<summary>Numbers: Toys</summary>" in html
    assert 'aria-label="Toys. "' in html
    assert "left out" not in html


@pytest.mark.usefixtures("registered")
def test_what_cannot_be_shown_is_left_out_with_the_reason(
    records: list[QuestionRecord], build_report: Build
) -> None:
    data = build_report(records, ["fixed-1", "fixed-2", "fixed-3"])
    without = render_report(replace(data, result=replace(data.result, baseline="fixed-2")))
    assert 'id="toy"' not in without
    assert "<li><b>Toys &amp; more</b>: the baseline &lt;b&gt; is too short</li>" in without
    silent = render_report(replace(data, result=replace(data.result, baseline="fixed-1")))
    assert "Toys" not in silent
