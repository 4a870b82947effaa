"""Selective prediction as plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.replay.diagnose.selective import AnswerGroup, SelectiveResult
from suffice.report.tables.text import one_line_name, text_table, titled
from suffice.results.formats import UNKNOWN, estimated, percent
from suffice.results.markup import visible


def selective_table(found: Sequence[SelectiveResult]) -> list[str]:
    """AUROC and area under the risk-coverage curve, the answers above and below the threshold, abstentions.

    Empty for no result.
    """
    if not found:
        return []
    rows = [
        [
            one_line_name(each.policy),
            estimated(each.auroc),
            estimated(each.aurc),
            estimated(each.excess_aurc),
            str(each.undefined) if each.undefined else "",
        ]
        for each in found
    ]
    head = ["policy", "AUROC", "AURC", "excess AURC", "undefined"]
    cuts = [
        [
            one_line_name(each.policy),
            f"{each.threshold:.3g}",
            *_scores(each.above),
            *_scores(each.below),
        ]
        for each in found
    ]
    cut_head = ["policy", "threshold", "n above", "EM [95%]", "F1", "n below", "EM [95%]", "F1"]
    abstaining = [
        [
            one_line_name(each.policy),
            percent(each.abstentions.share),
            *_scores(each.answers)[1:],
            *_scores(each.abstentions.others)[1:],
        ]
        for each in found
        if each.abstentions.count
    ]
    abstain_head = ["policy", "abstain, %", "EM of all", "F1 of all", "EM without", "F1 without"]
    confidence = found[0].confidence
    whose = "its own" if confidence == "policy" else f"signal {visible(confidence)}"
    caption = (
        f"Selective prediction by the confidence at the stop ({whose}). AURC: mean risk (1 - EM) over "
        "all coverages; excess: above the best possible order. Above: confidence of at least the "
        f"threshold{' (its median)' if found[0].threshold_is_median else ''}."
    )
    return [
        *titled(caption),
        *text_table(head, rows),
        "",
        *text_table(cut_head, cuts, gap=1),
        *(["", *text_table(abstain_head, abstaining)] if abstaining else ()),
    ]


def _scores(group: AnswerGroup) -> tuple[str, str, str]:
    em = group.em
    if em.estimate is None or em.low is None or em.high is None:
        return str(group.questions), UNKNOWN, UNKNOWN
    shown = f"{percent(em.estimate)} [{percent(em.low)}, {percent(em.high)}]"
    return str(group.questions), shown, percent(group.f1.estimate)
