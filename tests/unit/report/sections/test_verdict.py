"""The first screen: the verdict, what is saved, what is promised, and banners."""

from __future__ import annotations

from tests.reports import build_report, gathered, oslo_records

from suffice.evaluation.diagnose.report_data import ReportData, report_data
from suffice.report.page import first_screen, render_report
from suffice.report.section import Material, marked
from suffice.results.formats import percent, points
from suffice.results.markup import Html

RECORDS = oslo_records()


def screen(data: ReportData) -> Html:
    return first_screen(Material(data=data, policies=marked(data.result)))


def test_it_stands_before_every_figure_and_says_what_the_result_says() -> None:
    result = gathered().comparison.result
    data = report_data(gathered().comparison.measures, result, gathered().parts)
    html = render_report(data)
    assert html.index(screen(data)) < html.index('class="facts"') < html.index("<main>")
    assert result.verdict in screen(data)
    assert "fixed-2/4" in html
    tasr = next(policy for policy in result.policies if policy.name == "tasr")
    own, full = tasr.costs[result.cost.name], result.full_costs[result.cost.name]
    assert own is not None
    assert full is not None
    saved = f"{percent(1 - own / full)}% saved" if own <= full else f"{own / full:.2f} times it"
    assert f"{saved}; F1 {points(tasr.delta_full)} points against the full budget" in screen(data)
    assert "With probability at least" in screen(data)
    assert "certified" in screen(data)


def test_the_difference_to_the_full_budget_is_paired() -> None:
    result = build_report(RECORDS, ["fixed-3", "fixed-1"], ["answer_stable"]).result
    full, first, rule = result.policies
    assert full.delta_full is not None
    assert (full.delta_full.low, full.delta_full.high) == (0.0, 0.0)
    assert first.delta_full == first.delta
    assert result.full_costs["rounds"] == 3.0
    assert rule.adaptive
    assert not first.adaptive
