"""A search as an aligned plain-text table."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap

from suffice.replay.choose.search_results import SearchedRule, SearchResult
from suffice.results.formats import amount, decimal, percent, points
from suffice.results.markup import visible

_WIDTH = 100


def search_table(result: SearchResult, *, top: int = 15, naive: bool = False) -> str:
    """The first rules in order, the Pareto front, the thresholds, and what the figures are."""
    lines = [
        f"{result.evaluated} rule{'s' if result.evaluated != 1 else ''} of form "
        f"{result.settings.form!r}, {result.thresholds_tried} thresholds tried; ordered by "
        f"{result.settings.objective} on split {result.settings.tune_split}, scored on split "
        f"{result.settings.eval_split}.",
        "",
        *_rows(result.rules[:top], result, naive=naive),
    ]
    front = [each for each in result.rules if each.pareto]
    lines += [
        "",
        "Pareto front: on tune, no other rule is at once cheaper and better.",
        *_rows(sorted(front, key=lambda each: each.tune_cost), result, naive=naive),
        "",
        *(line for text in search_notes(result, naive=naive) for line in wrap(text, _WIDTH)),
    ]
    lines += [f"Note: {visible(note)}" for note in result.notes]
    return "\n".join(line.rstrip() for line in lines)


def _rows(rules: Sequence[SearchedRule], result: SearchResult, *, naive: bool) -> list[str]:
    heads = [
        "tune F1",
        "F1",
        "F1 [95%, all]",
        "EM",
        "rounds",
        result.cost.label,
        "delta F1 [95%, all]",
    ]
    if naive:
        heads.append("F1 [95%, alone]")
    table = [heads]
    for each in rules:
        cells = [
            percent(each.tune_f1),
            percent(each.f1),
            f"[{percent(each.interval.low)}, {percent(each.interval.high)}]",
            percent(each.em),
            decimal(each.mean_rounds),
            amount(each.cost),
            points(each.delta_f1),
        ]
        if naive:
            cells.append(f"[{percent(each.naive.low)}, {percent(each.naive.high)}]")
        table.append(cells)
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    shown = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    rule = "-" * len(shown[0])
    return [
        f"{shown[0]}  rule",
        rule,
        *(f"{line}  {visible(each.rule)}" for line, each in zip(shown[1:], rules, strict=True)),
    ]


def search_notes(result: SearchResult, *, naive: bool) -> list[str]:
    """What the figures are and what the correction covers, sentence by sentence."""
    texts = [
        f"F1 ({result.settings.f1_kind}), EM and differences in percent, means over "
        f"{result.labelled[1]} labelled questions of split {result.settings.eval_split}; delta F1 is "
        f"against {visible(result.baseline)} (F1 {percent(result.baseline_f1)}).",
        f"Intervals hold together for all {result.family} rules and thresholds looked at: "
        f"{result.critical_f1:.2f} (F1) and {result.critical_delta:.2f} (delta F1) bootstrap standard "
        f"errors to each side, instead of 1.96 for one rule ({result.settings.resamples} paired "
        f"resamples, seed {result.settings.seed}).",
        f"{search_verdict(result)} in F1 at 5% (paired t, Holm).",
    ]
    if naive and result.naive_share is not None:
        texts.append(
            f"Intervals that look at one rule alone have {result.naive_share:.0%} of that width: they "
            "hide that the rule was picked from many."
        )
    return texts


def search_verdict(result: SearchResult) -> str:
    """How many rules differ from the baseline after correction, without a full stop."""
    found = sum(each.p_holm <= 0.05 for each in result.rules)
    which = (
        "1 rule differs" if found == 1 else f"{found} rules differ" if found else "No rule differs"
    )
    return f"{which} from {visible(result.baseline)}"
