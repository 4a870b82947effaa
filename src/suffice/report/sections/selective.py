"""Selective prediction: what each policy's confidence is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suffice.replay.diagnose.selective import AnswerGroup, SelectiveResult
from suffice.report.draw.marks import Marked, label, short_name
from suffice.report.draw.svg import Box, Scale, canvas, line, polyline, text
from suffice.report.page.section import Section, folded, plain
from suffice.results.formats import UNKNOWN, amount, counted, estimated, percent
from suffice.results.markup import Html, data_table, element, join, visible

_SIZE = (220.0, 216.0)
_PANEL = Box(36, 26, 210, 178)
_MOST_PANELS = 12
_STEP = 10  # every tenth drawn point is in the table


def selective_section(found: Sequence[SelectiveResult], policies: Sequence[Marked]) -> Section:
    """Risk-coverage curves, their areas, and the answers above and below a threshold."""
    of_name = {each.result.name: each for each in policies}
    confidence = found[0].confidence
    whose = "its own confidence" if confidence == "policy" else f"signal {visible(confidence)}"
    content = join(
        [
            plain(
                f"Answer only where the confidence at the stop is high ({whose}) and decline the rest. "
                "AUROC: how often a right answer has the higher confidence than a wrong one. AURC: mean risk "
                "(1 - EM) over all coverages, low is good; excess: above the best possible order."
            ),
            _figure(found, of_name),
            _areas(found, of_name),
            _groups(found, of_name),
            _abstentions(found, of_name),
        ]
    )
    return Section(
        name="selective",
        heading="Selective prediction",
        finding=_finding(found, of_name),
        content=content,
    )


def _finding(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> str:
    known = [each for each in found if each.auroc.estimate is not None]
    if not known:
        return f"{counted(len(found), 'confidence')}, none with an AUROC"
    best = max(known, key=lambda each: each.auroc.estimate or 0.0)
    name = short_name(of_name[best.policy]) if best.policy in of_name else best.policy
    above, below = (percent(group.em.estimate) for group in (best.above, best.below))
    return (
        f"highest AUROC: {name}, {estimated(best.auroc)}; EM {above}% where it is confident, {below}% "
        "elsewhere"
    )


def _who(each: SelectiveResult, of_name: Mapping[str, Marked]) -> Html:
    return label(of_name[each.policy]) if each.policy in of_name else join([each.policy])


# --- risk against coverage -----------------------------------------------------------------------
def _figure(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> Html:
    shown = found[:_MOST_PANELS]
    cut = f" {len(found) - len(shown)} more in the table only." if len(shown) < len(found) else ""
    panels = (
        element("div", element("p", _who(each, of_name), class_="panel-name"), _panel(each))
        for each in shown
    )
    return element(
        "figure",
        element("h3", "Risk against coverage"),
        element("div", *panels, class_="panels"),
        element(
            "figcaption",
            "Line: share of wrong answers (1 - EM) among the most confident ones; dashed: among all. A "
            f"useful confidence rises from left to right. Declining below the least confidence in the table "
            f"answers that share.{cut}",
        ),
        folded("Numbers: risk against coverage", _curves_table(found, of_name)),
        class_="wide",
    )


def _panel(each: SelectiveResult) -> Html:
    curve = each.curve.to_json()
    x = Scale(0, 1, _PANEL.left, _PANEL.right)
    y = Scale(0, 1, _PANEL.bottom, _PANEL.top)
    drawn: list[Html] = [text((_PANEL.right, 16), "risk % ↑", "tick end")]
    for value in (0.0, 0.5, 1.0):
        drawn.append(line((x(0), y(value)), (x(1), y(value)), "grid"))
        drawn.append(text((_PANEL.left - 5, y(value) + 4), f"{100 * value:g}", "tick end"))
        drawn.append(text((x(value), _PANEL.bottom + 15), f"{100 * value:g}", "tick mid"))
    drawn.append(text(((x(0) + x(1)) / 2, _PANEL.bottom + 32), "answered %", "tick mid"))
    risks = curve["risk_em"]
    drawn.append(line((x(0), y(risks[-1])), (x(1), y(risks[-1])), "diagonal"))
    path = [(x(at), y(risk)) for at, risk in zip(curve["coverage"], risks, strict=True)]
    drawn.append(polyline(path, "curve adaptive"))
    return canvas(
        _SIZE,
        f"Risk against coverage of {visible(each.policy)}",
        f"Risk {percent(risks[-1])}% when all are answered; the numbers are in the table below.",
        drawn,
    )


def _curves_table(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> Html:
    rows = []
    for each in found:
        curve = each.curve.to_json()
        columns = ("coverage", "confidence", "risk_em", "risk_f1")
        points = list(zip(*(curve[name] for name in columns), strict=True))
        # counted from the end, so that full coverage is among them
        for coverage, least, em, f1 in points[(len(points) - 1) % _STEP :: _STEP]:
            rows.append(
                (_who(each, of_name), percent(coverage), amount(least), percent(em), percent(f1))
            )
    head = ("policy", "answered %", "least confidence", "risk by EM, %", "risk by F1, %")
    return data_table("Risk against coverage, every tenth point", head, rows)


# --- the tables ----------------------------------------------------------------------------------
def _areas(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> Html:
    rows = [
        (
            _who(each, of_name),
            estimated(each.auroc),
            estimated(each.aurc),
            estimated(each.excess_aurc),
            each.undefined,
        )
        for each in found
    ]
    head = ("policy", "AUROC [95%]", "AURC [95%]", "excess AURC [95%]", "without confidence")
    return data_table("What each confidence is worth", head, rows)


def _groups(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> Html:
    head = (
        *("policy", "threshold", "above", "EM above % [95%]", "F1 above %"),
        *("below", "EM below % [95%]", "F1 below %"),
    )
    rows = [
        (
            _who(each, of_name),
            UNKNOWN if each.threshold is None else amount(each.threshold),
            *_group(each.above),
            *_group(each.below),
        )
        for each in found
    ]
    median = " (the median)" if found[0].threshold_is_median else ""
    table = data_table("Answers above and below a confidence", head, rows)
    note = f"Above: confidence of at least the threshold{median}; below: the others."
    return join([table, element("p", note, class_="plain small")])


def _group(group: AnswerGroup) -> tuple[object, str, str]:
    em = group.em
    if em.estimate is None or em.low is None or em.high is None:
        return group.questions, UNKNOWN, UNKNOWN
    shown = f"{percent(em.estimate)} [{percent(em.low)}, {percent(em.high)}]"
    return group.questions, shown, percent(group.f1.estimate)


def _abstentions(found: Sequence[SelectiveResult], of_name: Mapping[str, Marked]) -> Html:
    rows = [
        (
            _who(each, of_name),
            percent(each.abstentions.share),
            *_group(each.answers)[1:],
            *_group(each.abstentions.others)[1:],
        )
        for each in found
        if each.abstentions.count
    ]
    if not rows:
        return element("p", "No answer at a stop says that it is none.", class_="plain small")
    head = (
        *("policy", "abstain %", "EM of all % [95%]", "F1 of all %"),
        *("EM without them % [95%]", "F1 without them %"),
    )
    return join(
        [
            element("h3", "Answers that say they are none"),
            data_table("Abstentions at the stop", head, rows),
        ]
    )
