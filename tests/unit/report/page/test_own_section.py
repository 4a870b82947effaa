"""A section of somebody else: a function and a line in the registry."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.reports import build_report, oslo_records

from suffice.errors import UsageError
from suffice.report import page as report
from suffice.report.page import SECTIONS, render_report
from suffice.report.section import Chart, Material, Section, Shown
from suffice.results.markup import data_table

RECORDS = oslo_records()


def show(material: Material) -> Shown | None:
    if material.data.result.baseline == "fixed-1":
        return None
    if material.data.result.baseline == "fixed-2":
        raise UsageError("the baseline <b>\nis too short")
    rows = [(each.full_name, each.result.mean_rounds) for each in material.policies]
    table = data_table("Toys", ["policy", "rounds"], rows)
    chart = Chart(heading="Toys", pictures=[], caption="None.", table=table)
    return Shown(finding=f"{len(rows)} toys", blocks=[chart])


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "SECTIONS", (*SECTIONS, Section("toy", "Toys & more", show)))


def test_it_stands_in_the_report() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-3"])
    html = render_report(replace(data, result=replace(data.result, baseline="fixed-3")))
    assert '<a href="#toy">Toys &amp; more</a>' in html
    assert '<span class="finding">2 toys</span>' in html
    assert "<summary>Numbers: Toys</summary>" in html
    assert "left out" not in html


def test_what_cannot_be_shown_is_left_out_with_the_reason() -> None:
    data = build_report(RECORDS, ["fixed-1", "fixed-2", "fixed-3"])
    without = render_report(replace(data, result=replace(data.result, baseline="fixed-2")))
    assert 'id="toy"' not in without
    assert "<li><b>Toys &amp; more</b>: the baseline &lt;b&gt; is too short</li>" in without
    silent = render_report(replace(data, result=replace(data.result, baseline="fixed-1")))
    assert "Toys" not in silent
