"""Several records side by side: scores at equal cost, and signals of right answers and of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from suffice.replay.run.macro import CONFIDENCE, ByCorrectness, Cells
from suffice.report.draw.marks import Marked, marked
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.page.section import Block, Chart, Material, Shown, plain
from suffice.report.sections.charts import score_charts
from suffice.results.formats import bracket, decimal, percent, points
from suffice.results.markup import Html, data_table


def cells_section(material: Material) -> Shown | None:
    """Charts of several records, and means over them; ``None``: there is one record."""
    cells: Cells | None = material.parts["cells"]
    if cells is None:
        return None
    names = [PurePath(source).stem for source in cells.macro.sources]
    numbered = "; ".join(f"{number}: {name}" for number, name in enumerate(names, start=1))
    blocks: list[Block] = [
        plain(f"Every record counts the same in the means. Cells: {numbered}."),
        _macro(cells, material.policies),
    ]
    for number, (name, result) in enumerate(zip(names, cells.results, strict=True), start=1):
        blocks += [
            replace(
                chart,
                heading=f"{number}: {name}, {chart.heading}",
                caption=chart.caption if number == 1 else "As for the first record.",
            )
            for chart in score_charts(result, marked(result))
        ]
    of_signals: dict[str, list[tuple[int, ByCorrectness]]] = {}
    for number, signals in enumerate(cells.signals, start=1):
        for signal in signals:
            of_signals.setdefault(signal.signal, []).append((number, signal))
    for rows in of_signals.values():
        blocks.append(_by_correctness(rows))
        blocks += [_right_by_margin(number, cell) for number, cell in rows if cell.buckets]
    return Shown(finding=f"the same policies on {len(names)} records", blocks=blocks)


def _macro(cells: Cells, policies: Sequence[Marked]) -> Chart:
    """Mean score against mean rounds, with the line through the fixed budgets."""
    macro, label = cells.macro, cells.macro.metric.label
    placed = list(zip(macro.policies, policies, strict=True))
    title = f"Mean {label} over {len(macro.sources)} records against mean rounds"
    chart = Scatter(
        title=title,
        description=f"{len(placed)} policies; the key names the marks, the table has the numbers.",
        x_name="mean rounds",
        y_name=f"mean {label}, %",
        points=[
            Point(
                mark=shown.mark,
                family=shown.family,
                name=shown.full_name,
                said=f"{label} {percent(policy.score.estimate)}%, {decimal(policy.mean_rounds)} rounds",
                x=policy.mean_rounds,
                y=policy.score.estimate,
            )
            for policy, shown in placed
        ],
        frontier=cells.frontier,
    )
    head = ("policy", "mean rounds", f"{label} %", "95%", "over fixed budgets, 95%")
    rows = [
        (
            *(shown.full_name, decimal(policy.mean_rounds), percent(policy.score.estimate)),
            *(
                bracket(policy.score),
                "" if policy.over_fixed is None else points(policy.over_fixed),
            ),
        )
        for policy, shown in placed
    ]
    return Chart(
        heading=f"{label} at equal cost, over all records",
        pictures=[scatter(chart)],
        caption="Line: through the fixed budgets. Over these: by record, at equal rounds, then averaged.",
        table=data_table(title, head, rows),
    )


def _by_correctness(cells: Sequence[tuple[int, ByCorrectness]]) -> Html:
    """How often each value is given with right answers and with wrong ones, two rows a cell."""
    first = cells[0][1]
    rating = first.signal == CONFIDENCE
    name = "Confidence" if rating else "Margin of the answer's first token"
    unit = "rating" if rating else "margin in nats, from"
    rows = [
        (
            *(f"{number}: {side}", sum(counts), *counts),
            decimal(cell.mean_right if side == "right" else cell.mean_wrong),
            *([decimal(cell.entropy_nats)] if rating else []),
        )
        for number, cell in cells
        for side, counts in (("right", cell.right), ("wrong", cell.wrong))
    ]
    more = ("entropy of all, nats (at most 1.61)",) if rating else ()
    head = ("record", "rounds", *(f"{unit} {start:g}" for start in first.starts), "mean", *more)
    return data_table(f"{name} by correctness, rounds of labelled questions", head, rows)


def _right_by_margin(number: int, cell: ByCorrectness) -> Html:
    """The share of right answers in groups of as many rounds each."""
    rows = [
        (
            *(decimal(each.predicted), percent(each.right)),
            *(f"[{percent(each.low)}, {percent(each.high)}]", each.count),
        )
        for each in cell.buckets
    ]
    head = ("mean margin, nats", "right %", "95% interval", "rounds")
    return data_table(f"{number}: right answers by margin", head, rows)
