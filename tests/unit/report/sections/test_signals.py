"""Signals: what the section shows is what the diagnostics found, and nothing recorded is markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.html_reader import Page

from suffice.report.draw.marks import marked
from suffice.report.sections.signals import SECTION, signals_section
from suffice.results.formats import decimal, estimated, percent, points

HOSTILE = "<img src=x onerror=alert(1)>"


def test_every_figure_is_the_diagnostics(gathered: Any) -> None:
    parts = gathered.parts
    policies = marked(gathered.comparison.result)
    section = signals_section(parts["diagnostics"], parts["types"], policies)
    tables = Page.of(section.html()).tables
    rows = {
        row[0].split(" low ")[0]: row
        for row in tables["Separation of right from wrong answers by each signal"]
    }
    assert len(rows) == len(parts["diagnostics"].signals) + 1
    for each in parts["diagnostics"].signals:
        pooled = [each.parts[name].pooled for name in ("tune", "eval")]
        assert rows[each.name][1:] == [
            *(estimated(one.auroc) for one in pooled),
            estimated(each.drift_auroc, sign=True),
            *(estimated(one.d_signed, sign=True) for one in pooled),
            estimated(each.drift_d, sign=True),
        ]
    by_round = tables["AUROC of every signal, pooled and by round"]
    margin = next(row for row in by_round if row[:2] == ["answer_token_margin", "eval"])
    found = next(
        each for each in parts["diagnostics"].signals if each.name == "answer_token_margin"
    )
    assert margin[2] == percent(found.parts["eval"].defined)
    assert margin[4:] == [
        decimal(each.separation.auroc.estimate) for each in found.parts["eval"].rounds
    ]


def test_the_finding_names_the_highest_auroc_of_eval(gathered: Any) -> None:
    found = gathered.parts["diagnostics"]
    best = max(found.signals, key=lambda each: each.parts["eval"].pooled.auroc.estimate or 0.0)
    section = signals_section(found, (), ())
    assert str(section.finding).startswith(
        f"highest AUROC on eval: {best.name}, {estimated(best.parts['eval'].pooled.auroc)}"
    )
    assert not SECTION.opened


def test_correlations_are_the_lower_triangle(gathered: Any) -> None:
    found = gathered.parts["diagnostics"]
    html = signals_section(found, (), ()).html()
    matrix = Page.of(html).tables["Spearman's rank correlation in hundredths, on eval"]
    correlations = found.parts[-1].correlations
    for row, (cells, rho) in enumerate(zip(matrix[1:], correlations.rho, strict=True)):
        assert cells[0] == f"{row + 1} {correlations.signals[row]}"
        shown = ["-" if each is None else f"{100 * each:z.0f}" for each in rho[:row]]
        assert cells[1 : 1 + row] == shown
        assert not any(cells[1 + row :])


def test_types_and_policies(gathered: Any) -> None:
    parts = gathered.parts
    html = signals_section(
        parts["diagnostics"], parts["types"], marked(gathered.comparison.result)
    ).html()
    rows = Page.of(html).tables["Policies by question type"][1:]
    assert len(rows) == sum(len(kind.policies) for kind in parts["types"])
    kind, each = parts["types"][0], parts["types"][0].policies[1]
    assert rows[1] == [
        "bridge",
        f"{kind.labelled} questions",
        "1fixed-1",
        percent(each.em),
        percent(each.f1),
        decimal(each.mean_rounds),
        points(each.delta_f1),
    ]
    assert rows[0][-1] == "baseline"


def test_hostile_names_stay_text(gathered: Any) -> None:
    found, types = gathered.parts["diagnostics"], gathered.parts["types"]
    first = replace(
        found.signals[0],
        name=HOSTILE,
        flags=(replace(_flag(found), message=HOSTILE),),
        parts={
            name: replace(on, types={HOSTILE: on.pooled, "b": on.pooled})
            for name, on in found.signals[0].parts.items()
        },
    )
    other = [replace(each, parts=first.parts) for each in found.signals[1:]]
    correlations = replace(
        found.parts[-1].correlations, signals=(HOSTILE, *found.parts[-1].correlations.signals[1:])
    )
    evil = replace(
        found,
        signals=(first, *other),
        skipped={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        parts=(found.parts[0], replace(found.parts[-1], correlations=correlations)),
    )
    html = signals_section(evil, [replace(types[0], type=HOSTILE)], ()).html()
    assert "img" not in Page.of(html).names
    assert html.count("&lt;img src=x") >= 7


def _flag(found: Any) -> Any:
    return next(flag for each in found.signals for flag in each.flags)


def test_one_part_without_gold_has_no_drift_and_no_numbers(gathered: Any) -> None:
    found = gathered.parts["diagnostics"]
    part = found.parts[-1].name
    blank = replace(found.signals[0].parts[part].pooled.auroc, estimate=None, low=None, high=None)
    signals = tuple(
        replace(
            each,
            parts={
                part: replace(
                    each.parts[part], pooled=replace(each.parts[part].pooled, auroc=blank)
                )
            },
        )
        for each in found.signals
    )
    alone = replace(found, parts=found.parts[-1:], signals=signals)
    section = signals_section(alone, (), ())
    assert "none with an AUROC" in str(section.finding)
    head = Page.of(section.html()).tables["Separation of right from wrong answers by each signal"][
        0
    ]
    assert head == ["signal", "AUROC eval", "d eval"]
