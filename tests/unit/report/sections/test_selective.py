"""Selective prediction in the report."""

from __future__ import annotations

from tests.html_reader import Page
from tests.reports import gathered

from suffice.report.section import marked
from suffice.report.worth import selective_section
from suffice.results.formats import amount, estimated, percent
from suffice.stats.auroc import auroc_use


def test_every_figure_is_the_results() -> None:
    found = gathered().parts["selective"]
    assert [each["policy"] for each in found] == ["tasr", "tasr-corrected"]
    html = selective_section(found, marked(gathered().comparison.result)).html()
    tables = Page.of(html).tables
    (worth,) = (tables[name] for name in tables if name.startswith("Selective prediction"))
    for each, row in zip(found, worth[1:], strict=True):
        assert row[0][1:] == each["policy"]
        assert row[1] == estimated(each["auroc"])
        assert row[2] == auroc_use(each["auroc"])
        assert row[3:] == [estimated(one) for one in (each["aurc"], each["excess_aurc"])]
    for each, row in zip(found, tables["above and below"][1:], strict=True):
        expected = [amount(each["threshold"])]
        for group in (each["above"], each["below"]):
            em = group["em"]
            interval = f"{percent(em.estimate)} [{percent(em.low)}, {percent(em.high)}]"
            expected += [str(group["questions"]), interval, percent(group["f1"].estimate)]
        assert row[1:] == expected
