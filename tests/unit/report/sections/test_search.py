"""A search in the report: rules, front, correction."""

from __future__ import annotations

from dataclasses import replace

from tests.html_reader import Page
from tests.reports import gathered

from suffice.report.searches import search_section
from suffice.results.formats import bracket, decimal, p_value, percent, signed
from suffice.stats.intervals import Interval

TABLE = "Rules found, best on tune first"
FRONT = "Pareto front, cheapest first"


def test_every_rule_shown_has_the_searchs_numbers() -> None:
    found = gathered().parts["search"]
    tables = Page.of(search_section(found).html()).tables
    for number, (each, row) in enumerate(zip(found.listed[:15], tables[TABLE][1:], strict=True), 1):
        assert row[0] == f"{number}{each.rule}{' front' if each.pareto else ''}"
        assert row[1:] == [
            percent(each.tune_score),
            f"{percent(each.f1)} {bracket(each.interval)}",
            percent(each.em),
            decimal(each.mean_rounds),
            decimal(each.cost),
            f"{signed(each.delta.estimate)} {bracket(each.delta)}",
            p_value(each.p_holm),
            str(each.ways),
        ]
    front = sorted((each for each in found.rules if each.pareto), key=lambda each: each.tune_cost)
    assert [row[0][1:] for row in tables[FRONT][1:]] == [each.rule for each in front]
    costs = [each.tune_cost for each in front]
    assert costs == sorted(costs)


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
