"""What the parts of a report found stands in the tables of its sections, and nothing is markup."""

from __future__ import annotations

from dataclasses import replace

from tests.html_reader import Page
from tests.reports import gathered

from suffice.report.comparison import costs_section
from suffice.report.searches import search_section
from suffice.report.section import Marked, Shown, marked
from suffice.report.worth import calibration_section, selective_section, signals_section
from suffice.results.formats import amount, decimal, estimated, p_value, percent
from suffice.stats.intervals import Interval

HOSTILE = "<img src=x onerror=alert(1)>"


def policies() -> tuple[Marked, ...]:
    return marked(gathered().comparison.result)


def rows(section: Shown, caption: str) -> list[list[str]]:
    """The rows below the head of the first table whose caption begins so."""
    tables = Page.of(section.html()).tables
    return next(tables[name][1:] for name in tables if name.startswith(caption))


def test_signals() -> None:
    found = gathered().parts["diagnostics"]
    section = signals_section(found, gathered().parts["types"], policies())
    shown = {row[0]: row[1:] for row in rows(section, "What are the signals worth here?")}
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


def test_thousands_of_rules_of_one_place_are_one_dot() -> None:
    found = gathered().parts["search"]
    rule = replace(found.rules[0], pareto=False, f1=0.5, cost=2.0)
    ends = Interval(estimate=0.5, low=0.4, high=0.6)
    front = [
        replace(rule, pareto=True, cost=1 + number / 20, tune_cost=number, interval=ends)
        for number in range(30)
    ]
    html = search_section(replace(found, rules=(*([rule] * 3000), *front))).html()
    assert html.count('class="speck"') == 1
    assert html.count('class="dot adaptive"') == 30
    assert "The first 2,000 are drawn." in html


def test_hostile_names_stay_text() -> None:
    found, types = gathered().parts["diagnostics"], gathered().parts["types"]
    flag = next(flag for each in found.signals for flag in each["flags"])
    first = {
        **found.signals[0],
        "name": HOSTILE,
        "flags": (replace(flag, message=HOSTILE),),
        "parts": {
            name: {**on, "types": {HOSTILE: on, "b": on}}
            for name, on in found.signals[0]["parts"].items()
        },
    }
    other = [{**each, "parts": first["parts"]} for each in found.signals[1:]]
    evil = replace(found, signals=(first, *other), skipped={HOSTILE: HOSTILE}, notes=(HOSTILE,))
    html = signals_section(evil, [{**types[0], "type": HOSTILE}], ()).html()
    assert "img" not in Page.of(html).names
    assert html.count("&lt;img src=x") >= 7
