"""The evaluation of AB-RAG as plain-text tables."""

from __future__ import annotations

from suffice.bench.ab_rag.run import ABRagStudy
from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.tables import selective_tables
from suffice.report.tables.text import text_table, titled
from suffice.results.formats import UNKNOWN, decimal, percent, points
from suffice.results.markup import visible


def ab_rag_tables(study: ABRagStudy) -> str:
    """Every table under its title; without colour codes or a final line feed."""
    blocks = [
        study.comparison.text().split("\n"),
        *(table.text().split("\n") for table in selective_tables(study.selective)),
        _swept(study),
        _signals(study),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _swept(study: ABRagStudy) -> list[str]:
    axis = study.comparison.result.cost
    rows = [
        [
            f"{each.tau:g}",
            percent(each.result.em),
            percent(each.result.f1),
            decimal(each.result.mean_rounds),
            decimal(each.result.costs.get(axis.name)) if axis.name != "rounds" else "",
            UNKNOWN if each.result.auroc is None else f"{each.result.auroc:.3f}",
            points(each.result.frontier_gain),
            str(each.result.beyond_record) if each.result.beyond_record else "",
        ]
        for each in study.swept
    ]
    head = ["tau", "EM", "F1", "rounds", axis.name, "AUROC", "gain over fixed-k [95%]", "beyond"]
    caption = (
        "The published confidence stopped at other thresholds; EM, F1 and gains in percent. Chosen "
        "here, a threshold is chosen on the questions it is scored on. Beyond: questions whose record "
        "ends before the round it wanted."
    )
    return [*titled(caption), *text_table(head, rows)] if rows else []


def _signals(study: ABRagStudy) -> list[str]:
    rows = [
        [each.form.part, each.form.name, each.form.signal, str(each.defined), _area(each.auroc)]
        for each in study.signals
    ]
    lines = [
        *titled("Single signals in round 1 against exact match in round 1; n: defined there."),
        *text_table(["", "form", "signal", "n", "AUROC [95%]"], rows, left=3),
    ]
    if study.not_in_record:
        lines += titled(f"Not in the record: {', '.join(map(visible, study.not_in_record))}.")
    return lines


def _area(found: Estimate) -> str:
    """Three decimals: single signals lie close together."""
    if found.estimate is None:
        return UNKNOWN
    interval = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.estimate:.3f}{interval}"
