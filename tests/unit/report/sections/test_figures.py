"""What the parts of a report found stands in the tables of its sections, and nothing is markup."""

from __future__ import annotations

from tests.html_reader import Page
from tests.reports import gathered

from suffice.report.comparison import costs_section
from suffice.report.searches import search_section
from suffice.report.section import Marked, Shown, marked
from suffice.report.worth import calibration_section, selective_section, signals_section
from suffice.results.formats import amount, decimal, estimated, p_value, percent


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
