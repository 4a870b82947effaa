"""A search in the report: rules, front, correction."""

from __future__ import annotations

from dataclasses import replace

from tests.reports import gathered

from suffice.report.searches import search_section
from suffice.stats.intervals import Interval


def test_thousands_of_rules_of_one_place_are_one_dot_and_letters_run_out() -> None:
    found = gathered().parts["search"]
    rule = replace(found.rules[0], pareto=False, f1=0.5, cost=2.0)
    ends = Interval(estimate=0.5, low=0.4, high=0.6)
    front = [
        replace(rule, pareto=True, cost=1 + number / 20, tune_cost=number, interval=ends)
        for number in range(30)
    ]
    html = search_section(replace(found, rules=(*([rule] * 3000), *front))).html()
    assert html.count('class="speck"') == 1
    assert html.count('class="badge adaptive"') == 26
    assert "The first 2,000 are drawn." in html
