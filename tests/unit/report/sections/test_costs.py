"""Every cost that is known, for every policy."""

from __future__ import annotations

from typing import Any

from tests.html_reader import Page

from suffice.report.comparison import costs_section
from suffice.report.section import marked
from suffice.results.formats import amount


def test_known_costs_are_columns_and_unknown_ones_are_named(gathered: Any) -> None:
    result, costs = gathered.comparison.result, gathered.parts["costs"]
    section = costs_section(costs, marked(result))
    rows = Page.of(section.html()).tables["Every cost known here, mean per question"]
    known = [
        each
        for each in costs
        if each.name == "rounds"
        or any(one.costs.get(each.name) is not None for one in result.policies)
    ]
    assert len(costs) == 14
    assert 3 <= len(known) < 14
    assert rows[0][1:] == [f"{each.label} {each.unit}".strip() for each in known]
    assert section.finding == f"{len(known)} of 14 costs are known here"
    for policy, row in zip(result.policies, rows[1:], strict=True):
        paid = [
            policy.mean_rounds if each.name == "rounds" else policy.costs.get(each.name)
            for each in known
        ]
        assert row[1:] == [amount(value) for value in paid]
    assert "Unknown here: " in section.html()
    assert "price" in section.html()
