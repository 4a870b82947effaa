"""Selective prediction in the report."""

from __future__ import annotations

from typing import Any

from tests.html_reader import Page

from suffice.report.worth import selective_section
from suffice.results.formats import percent


def test_the_table_behind_the_curves_ends_at_full_coverage(gathered: Any) -> None:
    found = gathered.parts["selective"]
    rows = Page.of(selective_section(found, ()).html()).tables[
        "Risk against coverage, every tenth point"
    ]
    for each in found:
        own = [row for row in rows if row[0] == each["policy"]]
        assert [own[-1][1], own[-1][3]] == ["100.0", percent(1.0 - each["answers"]["em"].estimate)]
        curve = each["curve"].to_json()
        shown = {
            percent(share): percent(risk)
            for share, risk in zip(curve["coverage"], curve["risk_em"], strict=True)
        }
        assert all(shown[row[1]] == row[3] for row in own)
