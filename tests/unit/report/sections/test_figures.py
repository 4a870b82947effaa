"""What the parts of a report found stands in the tables of its sections, and nothing is markup."""

from __future__ import annotations

from tests.html_reader import Page
from tests.reports import build_report, gathered, oslo_records

from suffice.evaluation.choose.bounds import allowed_in_words
from suffice.evaluation.diagnose.report_data import ReportData, report_data
from suffice.report.comparison import costs_section
from suffice.report.page import first_screen, render_report
from suffice.report.promises import guarantees_section
from suffice.report.searches import search_section
from suffice.report.section import Marked, Material, Shown, marked
from suffice.report.worth import calibration_section, selective_section, signals_section
from suffice.results.formats import amount, decimal, estimated, p_value, percent, points
from suffice.results.markup import Html


def policies() -> tuple[Marked, ...]:
    return marked(gathered().comparison.result)


def rows(section: Shown, caption: str) -> list[list[str]]:
    """The rows below the head of the first table whose caption begins so."""
    tables = Page.of(section.html()).tables
    return next(tables[name][1:] for name in tables if name.startswith(caption))


def test_signals() -> None:
    found = gathered().parts["diagnostics"]
    data = report_data(
        gathered().comparison.measures, gathered().comparison.result, gathered().parts
    )
    section = signals_section(Material(data=data, policies=policies()))
    shown = {
        row[0]: row[1:] for row in rows(section, "Which signals tell right from wrong answers?")
    }
    assert len(shown) == len(found.signals)
    for signal in found.signals:
        areas = {estimated(on["auroc"]) for on in signal["parts"].values()}
        assert areas <= {*shown[signal["name"]]}


def test_rules() -> None:
    found = gathered().parts["search"]
    shown = rows(search_section(found), "Rules found, best on tune first")
    for number, (each, row) in enumerate(zip(found.listed[:15], shown, strict=True), 1):
        assert row[0] == str(number)
        assert each.rule in row
        figures = (percent(each.tune_score), percent(each.em), decimal(each.cost))
        assert {*figures, p_value(each.p_holm)} <= {*row}


def test_calibrators_and_selective_prediction() -> None:
    study = gathered().parts["calibrators"]
    (kinds,) = Page.of(calibration_section(study).html()).tables.values()
    assert [row[0] for row in kinds[1:]] == [each["kind"] for each in study.results]
    shown = rows(
        selective_section(gathered().parts["selective"], policies()), "Selective prediction"
    )
    for found, row in zip(gathered().parts["selective"], shown, strict=True):
        assert row[0].endswith(found["policy"])
        assert {estimated(found[name]) for name in ("auroc", "aurc", "excess_aurc")} <= {*row}


def test_costs() -> None:
    shown = rows(costs_section(gathered().parts["costs"], policies()), "Every cost known here")
    for policy, row in zip(gathered().comparison.result.policies, shown, strict=True):
        known = {amount(value) for value in policy.costs.values() if value is not None}
        assert known <= {*row}


def test_falling_back_promises_nothing() -> None:
    fell = {**gathered().parts["guarantees"][0], "fell_back": True, "questions_needed": 900}
    section = guarantees_section([fell], ())
    assert "nothing certified" in str(section.finding)
    html = section.html()
    assert "<dd>900</dd>" in html
    assert "% confidence)" not in html
    assert "It holds" not in html


def test_several_bounds_are_all_said() -> None:
    terms = {"measured": 0.02}
    bounds = (
        {"of": "signed", "at_most": 0.02, **terms},
        {"of": "wrong-stop", "at_most": 0.05, **terms},
    )
    several = dict(
        gathered().parts["guarantees"][0],
        bounds=bounds, max_loss=0.02, cost_label="calls", cost_counted_to=9.0, cost_above=2.0,
        min_rounds=2.0,
    )  # fmt: skip
    several["allowed"] = allowed_in_words(several)
    section = guarantees_section([several], ())
    html = section.html()
    for said in (
        "It loses at most 2 F1 points on average and turns right into wrong on at most 5% of the",
        "<dt>Measured mean change</dt><dd>-2.0 points",
        "<dt>Measured share of wrong stops</dt><dd>2.0%",
        "round</dt><dd>2</dd>",
    ):
        assert said in html
    assert "of the questions, at confidence 50%" in str(section.finding)
    evil = {**several, "bounds": ({**bounds[0], "of": "<img src=x>", "at_most": None},)}
    evil["allowed"] = allowed_in_words(evil)
    assert "img" not in Page.of(guarantees_section([evil], ()).html()).names


RECORDS = oslo_records()


def screen(data: ReportData) -> Html:
    return first_screen(Material(data=data, policies=marked(data.result)))


def test_it_stands_before_every_figure_and_says_what_the_result_says() -> None:
    result = gathered().comparison.result
    data = report_data(gathered().comparison.measures, result, gathered().parts)
    html = render_report(data)
    assert html.index(screen(data)) < html.index('class="facts"') < html.index("<main>")
    assert result.verdict() in screen(data)
    assert "fixed-2/4" in html
    tasr = next(policy for policy in result.policies if policy.name == "tasr")
    own, full = tasr.costs[result.cost.name], result.full_costs[result.cost.name]
    assert own is not None
    assert full is not None
    saved = f"{percent(1 - own / full)}% saved" if own <= full else f"{own / full:.2f} times it"
    assert f"{saved}; F1 {points(tasr.delta_full)} points against the full budget" in screen(data)
    assert "(proven, 50% confidence)" in screen(data)
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
