"""Means over several trace sets as an aligned plain-text table."""

from __future__ import annotations

from textwrap import wrap

from suffice.replay.run.macro import MacroResult
from suffice.results.formats import bracket, counted, decimal, percent, points
from suffice.results.markup import shorten, visible

_WIDTH = 100
_NAME_WIDTH = 40


def macro_table(result: MacroResult) -> str:
    """Policies over all sets, their F1 in each, and what the intervals are."""
    heads = ["policy", "EM", "F1 [95%]", "rounds", "delta F1 [95%]", "F1 in each set"]
    table = [heads]
    table += [
        [
            shorten(visible(each.name), _NAME_WIDTH, "..."),
            percent(each.em),
            f"{percent(each.f1.estimate)} {bracket(each.f1)}",
            decimal(each.mean_rounds),
            "(baseline)" if each.name == result.baseline else points(each.delta_f1),
            " ".join(percent(f1) for f1 in each.set_f1),
        ]
        for each in result.policies
    ]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
    shared = (
        f"{counted(result.shared, 'question')} stand in several sets and are resampled together."
        if result.shared
        else "No question stands in two sets, so each is resampled on its own."
    )
    explained = (
        f"Means over {len(result.sources)} sets, each counting the same, of "
        f"{' and '.join(str(each) for each in result.labelled)} labelled questions. {shared}"
    )
    return "\n".join(
        [lines[0], "-" * max(map(len, lines)), *lines[1:], "", *wrap(explained, _WIDTH)]
    )
