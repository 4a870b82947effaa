"""A search in the report: rules, front, correction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.html_reader import Page

from suffice.report.searches import search_section
from suffice.results.formats import bracket, percent
from suffice.stats.intervals import Interval

TABLE = "Rules found, best on tune first"


def test_naive_intervals_only_when_asked(gathered: Any) -> None:
    found = gathered.parts["search"]
    assert "alone" not in search_section(found).html()
    html = search_section(found, naive=True).html()
    rows = Page.of(html).tables[TABLE]
    alone = rows[0].index("F1 % [95%, alone]")
    assert [row[alone] for row in rows[1:]] == [
        f"{percent(each.f1)} {bracket(each.naive)}" for each in found.listed[:15]
    ]
    assert html.count('class="alone"') == sum(each.pareto for each in found.rules)


def test_thousands_of_rules_of_one_place_are_one_dot_and_letters_run_out(gathered: Any) -> None:
    found = gathered.parts["search"]
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
