"""Signals: what the section shows is what the diagnostics found, and nothing recorded is markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.html_reader import Page
from tests.reports import gathered

from suffice.report.section import marked
from suffice.report.worth import signals_section
from suffice.results.formats import decimal, estimated

TITLES = ("What are the signals worth here?", "Cohen's d")
HOSTILE = "<img src=x onerror=alert(1)>"


def test_every_figure_is_the_diagnostics() -> None:
    parts = gathered().parts
    policies = marked(gathered().comparison.result)
    section = signals_section(parts["diagnostics"], parts["types"], policies)
    tables = Page.of(section.html()).tables
    areas, distances = (
        {row[0]: row for caption in tables if caption.startswith(title) for row in tables[caption]}
        for title in TITLES
    )
    assert len(areas) == len(distances) == len(parts["diagnostics"].signals) + 1
    low = any(signal["direction"] == "low" for signal in parts["diagnostics"].signals)
    for signal in parts["diagnostics"].signals:
        on_parts = [signal["parts"][name] for name in ("tune", "eval")]
        assert areas[signal["name"]][1 + low :] == [
            "" if signal["use"] == "unknown" else signal["use"],
            *(estimated(on["auroc"]) for on in on_parts),
            estimated(signal["drift_auroc"], sign=True),
            *(f"{100 * on['defined']:.0f}" for on in on_parts),
        ]
        assert areas[signal["name"]][1 : 1 + low] == ["low" * (signal["direction"] == "low")][:low]
        assert distances[signal["name"]][1:] == [
            *(estimated(on["d_signed"], sign=True) for on in on_parts),
            estimated(signal["drift_d"], sign=True),
        ]
    for part in ("tune", "eval"):
        by_round = {row[0]: row[1:] for row in tables[f"AUROC by round on {part}."]}
        for signal in parts["diagnostics"].signals:
            assert by_round[signal["name"]] == [
                decimal(on["auroc"].estimate) for on in signal["parts"][part]["rounds"]
            ]


def test_hostile_names_stay_text() -> None:
    found, types = gathered().parts["diagnostics"], gathered().parts["types"]
    first = {
        **found.signals[0],
        "name": HOSTILE,
        "flags": (replace(_flag(found), message=HOSTILE),),
        "parts": {
            name: {**on, "types": {HOSTILE: on, "b": on}}
            for name, on in found.signals[0]["parts"].items()
        },
    }
    other = [{**each, "parts": first["parts"]} for each in found.signals[1:]]
    correlations = dict(found.parts["eval"]["correlations"])
    correlations["signals"] = [HOSTILE, *correlations["signals"][1:]]
    evil = replace(
        found,
        signals=(first, *other),
        skipped={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        parts={**found.parts, "eval": {**found.parts["eval"], "correlations": correlations}},
    )
    html = signals_section(evil, [{**types[0], "type": HOSTILE}], ()).html()
    assert "img" not in Page.of(html).names
    assert html.count("&lt;img src=x") >= 7


def _flag(found: Any) -> Any:
    return next(flag for each in found.signals for flag in each["flags"])
