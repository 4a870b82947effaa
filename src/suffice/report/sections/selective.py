"""Selective prediction: what each policy's confidence is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence

from suffice.replay.diagnose.selective import AnswerGroup, SelectiveResult
from suffice.report.draw.marks import Marked, label_of, short_name_of
from suffice.report.draw.unit_square import UnitSquare, unit_square
from suffice.report.page.section import Chart, Section, Shown, columns, plain
from suffice.results.formats import UNKNOWN, amount, counted, estimated, percent
from suffice.results.markup import Html, data_table, element, visible

_MOST_PANELS = 12
_STEP = 10  # every tenth drawn point is in the table


def selective_section(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> Shown:
    """Risk-coverage curves, their areas, and the answers above and below a threshold."""
    confidence = results[0].confidence
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
            _areas(results, policies),
            *_groups(results, policies),
            *_abstentions(results, policies),
        ],
    )


SECTION = Section(
    name="selective",
    heading="Selective prediction",
    part="selective",
    show=lambda material: selective_section(material.parts["selective"], material.policies),
)


def _finding(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> str:
    known = [result for result in results if result.auroc.estimate is not None]
    if not known:
        return f"{counted(len(results), 'confidence')}, none with an AUROC"
    best = max(known, key=lambda result: result.auroc.estimate or 0.0)
    above, below = (percent(group.em.estimate) for group in (best.above, best.below))
    return (
        f"highest AUROC: {short_name_of(best.policy, policies)}, {estimated(best.auroc)}; EM {above}% "
        f"where it is confident, {below}% elsewhere"
    )


# --- risk against coverage -----------------------------------------------------------------------
def _curves(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> Chart:
    drawn = results[:_MOST_PANELS]
    more = len(results) - len(drawn)
    cut = f" {more} more in the table only." if more else ""
    panels = [
        element(
            "div",
            element("p", label_of(result.policy, policies), class_="panel-name"),
            _panel(result),
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


def _panel(result: SelectiveResult) -> Html:
    curve = result.curve.thinned()
    path = list(zip(curve.coverage.tolist(), curve.risk["em"].tolist(), strict=True))
    last = path[-1][1]
    return unit_square(
        UnitSquare(
            title=f"Risk against coverage of {visible(result.policy)}",
            description=f"Risk {percent(last)}% when all are answered; the numbers are in the table below.",
            x_name="answered %",
            y_name="risk % ↑",
            path=path,
            level=last,
        )
    )


def _curves_table(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> Html:
    rows = []
    for result in results:
        curve = result.curve.thinned()
        columns = (curve.coverage, curve.confidence, curve.risk["em"], curve.risk["f1"])
        points = list(zip(*(column.tolist() for column in columns), strict=True))
        who = label_of(result.policy, policies)
        # counted from the end, so that full coverage is among them
        for coverage, least, em, f1 in points[(len(points) - 1) % _STEP :: _STEP]:
            shown = UNKNOWN if math.isnan(least) else amount(least)
            rows.append((who, percent(coverage), shown, percent(em), percent(f1)))
    head = ("policy", "answered %", "least confidence", "risk by EM, %", "risk by F1, %")
    return data_table("Risk against coverage, every tenth point", head, rows)


# --- the tables ----------------------------------------------------------------------------------
def _areas(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> Html:
    return columns(
        "What each confidence is worth",
        results,
        ("policy", lambda result: label_of(result.policy, policies)),
        ("AUROC [95%]", lambda result: estimated(result.auroc)),
        ("AURC [95%]", lambda result: estimated(result.aurc)),
        ("excess AURC [95%]", lambda result: estimated(result.excess_aurc)),
        ("without confidence", lambda result: result.undefined),
    )


def _groups(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> list[Html]:
    table = columns(
        "Answers above and below a confidence",
        results,
        ("policy", lambda result: label_of(result.policy, policies)),
        ("threshold", lambda result: amount(result.threshold)),
        ("above", lambda result: result.above.questions),
        ("EM above % [95%]", lambda result: _em(result.above)),
        ("F1 above %", lambda result: _f1(result.above)),
        ("below", lambda result: result.below.questions),
        ("EM below % [95%]", lambda result: _em(result.below)),
        ("F1 below %", lambda result: _f1(result.below)),
    )
    median = " (the median)" if results[0].threshold_is_median else ""
    note = f"Above: confidence of at least the threshold{median}; below: the others."
    return [table, plain(note, small=True)]


def _em(group: AnswerGroup) -> str:
    em = group.em
    if em.estimate is None or em.low is None or em.high is None:
        return UNKNOWN
    return f"{percent(em.estimate)} [{percent(em.low)}, {percent(em.high)}]"


def _f1(group: AnswerGroup) -> str:
    return UNKNOWN if _em(group) == UNKNOWN else percent(group.f1.estimate)


def _abstentions(results: Sequence[SelectiveResult], policies: Sequence[Marked]) -> list[Html]:
    abstaining = [result for result in results if result.abstentions.count]
    if not abstaining:
        return [plain("No answer at a stop says that it is none.", small=True)]
    table = columns(
        "Abstentions at the stop",
        abstaining,
        ("policy", lambda result: label_of(result.policy, policies)),
        ("abstain %", lambda result: percent(result.abstentions.share)),
        ("EM of all % [95%]", lambda result: _em(result.answers)),
        ("F1 of all %", lambda result: _f1(result.answers)),
        ("EM without them % [95%]", lambda result: _em(result.abstentions.others)),
        ("F1 without them %", lambda result: _f1(result.abstentions.others)),
    )
    return [element("h3", "Answers that say they are none"), table]
