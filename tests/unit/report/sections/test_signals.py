"""Signals: what the section shows is what the diagnostics found, and nothing recorded is markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.html_reader import Page

from suffice.report.worth import signals_section

HOSTILE = "<img src=x onerror=alert(1)>"


def test_correlations_are_the_lower_triangle(gathered: Any) -> None:
    found = gathered.parts["diagnostics"]
    html = signals_section(found, (), ()).html()
    matrix = Page.of(html).tables["Spearman's rank correlation in hundredths, on eval."]
    correlations = found.parts["eval"]["correlations"]
    for row, (cells, rho) in enumerate(zip(matrix[1:], correlations["rho"], strict=True)):
        assert cells[:2] == [str(row + 1), correlations["signals"][row]]
        shown = ["-" if each is None else f"{100 * each:z.0f}" for each in rho[:row]]
        assert cells[2 : 2 + row] == shown
        assert not any(cells[2 + row :])


def test_hostile_names_stay_text(gathered: Any) -> None:
    found, types = gathered.parts["diagnostics"], gathered.parts["types"]
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
