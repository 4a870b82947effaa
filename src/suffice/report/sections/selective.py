"""Selective prediction: what each policy's confidence is worth."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suffice.replay.diagnose.selective import selective_tables
from suffice.report.draw.marks import Marked, label_of, labelled, short_name_of
from suffice.report.draw.unit_square import UnitSquare, unit_square
from suffice.report.page.section import Chart, Shown, plain
from suffice.results.formats import UNKNOWN, amount, counted, estimated, percent
from suffice.results.markup import Html, data_table, element, visible
from suffice.stats.auroc import auroc_use

Worth = Mapping[str, Any]
_MOST_PANELS = 12
_STEP = 10  # every tenth drawn point is in the table


def selective_section(results: Sequence[Worth], policies: Sequence[Marked]) -> Shown:
    """Risk-coverage curves, their areas, and the answers above and below a threshold."""
    confidence = results[0]["confidence"]
    whose = "its own confidence" if confidence == "policy" else f"signal {visible(confidence)}"
    return Shown(
        finding=_finding(results, policies),
        blocks=[
            plain(
                f"Answer only where the confidence at the stop is high ({whose}) and decline the rest. "
                "AUROC: how often a right answer has the higher confidence than a wrong one. AURC: mean risk "
                "(1 - EM) over all coverages, low is good; excess: above the best possible order."
            ),
            _curves(results, policies),
            *_tables(results, policies),
        ],
    )


def _finding(results: Sequence[Worth], policies: Sequence[Marked]) -> str:
    known = [result for result in results if result["auroc"].estimate is not None]
    if not known:
        return f"{counted(len(results), 'confidence')}, none with an AUROC"
    best = max(known, key=lambda result: result["auroc"].estimate or 0.0)
    if auroc_use(best["auroc"]) == "uninformative":
        return (
            f"uninformative: the interval of the highest AUROC holds 0.5 "
            f"({short_name_of(best['policy'], policies)}, {estimated(best['auroc'])})"
        )
    above, below = (percent(best[group]["em"].estimate) for group in ("above", "below"))
    return (
        f"highest AUROC: {short_name_of(best['policy'], policies)}, {estimated(best['auroc'])}; EM {above}% "
        f"where it is confident, {below}% elsewhere"
    )


# --- risk against coverage -----------------------------------------------------------------------
def _curves(results: Sequence[Worth], policies: Sequence[Marked]) -> Chart:
    drawn = results[:_MOST_PANELS]
    more = len(results) - len(drawn)
    cut = f" {more} more in the table only." if more else ""
    panels = [
        element(
            "div",
            element("p", label_of(result["policy"], policies), class_="panel-name"),
            _panel(result, short_name_of(result["policy"], policies)),
        )
        for result in drawn
    ]
    return Chart(
        heading="Risk against coverage",
        pictures=panels,
        caption="Line: share of wrong answers (1 - EM) among the most confident ones; dashed: among all. A "
        "useful confidence rises from left to right. Declining below the least confidence in the table "
        f"answers that share.{cut}",
        table=_curves_table(results, policies),
        panels=True,
    )


def _panel(result: Worth, name: str) -> Html:
    curve = result["curve"].thinned()
    path = list(zip(curve.coverage.tolist(), curve.risk["em"].tolist(), strict=True))
    last = path[-1][1]
    return unit_square(
        UnitSquare(
            title=f"Risk against coverage of {visible(name)}",
            description=f"Risk {percent(last)}% when all are answered; the numbers are in the table below.",
            x_name="answered %",
            y_name="risk % ↑",
            path=path,
            level=last,
        )
    )


def _curves_table(results: Sequence[Worth], policies: Sequence[Marked]) -> Html:
    rows = []
    for result in results:
        curve = result["curve"].thinned()
        columns = (curve.coverage, curve.confidence, curve.risk["em"], curve.risk["f1"])
        points = list(zip(*(column.tolist() for column in columns), strict=True))
        who = label_of(result["policy"], policies)
        # counted from the end, so that full coverage is among them
        for coverage, least, em, f1 in points[(len(points) - 1) % _STEP :: _STEP]:
            shown = UNKNOWN if math.isnan(least) else amount(least)
            rows.append((who, percent(coverage), shown, percent(em), percent(f1)))
    head = ("policy", "answered %", "least confidence", "risk by EM, %", "risk by F1, %")
    return data_table("Risk against coverage, every tenth point", head, rows)


# --- the tables ----------------------------------------------------------------------------------
def _tables(results: Sequence[Worth], policies: Sequence[Marked]) -> Iterator[Html]:
    tables = {table.name: table for table in selective_tables(results)}
    yield labelled(tables["confidences"].headed("What each confidence is worth"), policies)
    groups = tables["above and below"].headed("Answers above and below a confidence")
    yield labelled(groups, policies)
    median = " (the median)" if results[0]["threshold_is_median"] else ""
    yield plain(
        f"Above: confidence of at least the threshold{median}; below: the others.", small=True
    )
    if "abstentions" not in tables:
        yield plain("No answer at a stop says that it is none.", small=True)
        return
    yield element("h3", "Answers that say they are none")
    abstentions = tables["abstentions"].headed("Abstentions at the stop")
    yield labelled(abstentions, policies)
