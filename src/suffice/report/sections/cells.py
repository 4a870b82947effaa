"""Several records side by side: scores at equal cost, and signals of right answers and of wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from suffice.replay.run.macro import CONFIDENCE, ByCorrectness, Cells
from suffice.report.draw.bars import Bar, BarRow, Bars, Segment, bars
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import Marked, legend, marked
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.page.section import Block, Chart, Material, Shown, plain
from suffice.report.sections.charts import score_charts
from suffice.results.formats import bracket, decimal, percent, points
from suffice.results.markup import data_table, join

_ROWS = (("right", "evaluated"), ("wrong", "output"))


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
            for chart in score_charts(result, marked(result))[:1]
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


def _by_correctness(cells: Sequence[tuple[int, ByCorrectness]]) -> Chart:
    """How often each value is given with right answers and with wrong ones, two rows a cell."""
    first = cells[0][1]
    rating = first.signal == CONFIDENCE
    name = "Confidence" if rating else "Margin of the answer's first token"
    counts = [
        (number, cell, side, family, getattr(cell, side))
        for number, cell in cells
        for side, family in _ROWS
    ]
    rows = [
        BarRow(
            mark=str(number),
            family="fixed",
            name=f"{side} ({sum(of)})",
            hint=f"cell {number}, {side} answers: {sum(of)} rounds",
            bars=[_bar(count, sum(of), family) for count in of],
        )
        for number, _, side, family, of in counts
    ]
    heads = [f"{start:g}" if rating else f"≥ {start:g}" for start in first.starts]
    unit = "rating" if rating else "margin in nats, from"
    picture = bars(
        Bars(
            title=f"{name} by correctness",
            description="Two rows a record, right and wrong answers: the share of rounds in each column.",
            rows=rows,
            heads=heads,
            x_name=unit,
        )
    )
    table_rows = [
        (
            *(f"{number}: {side}", sum(of), *of),
            decimal(cell.mean_right if side == "right" else cell.mean_wrong),
            *([decimal(cell.entropy_nats)] if rating else []),
        )
        for number, cell, side, _, of in counts
    ]
    more = ("entropy of all, nats",) if rating else ()
    head = ("record", "rounds", *(f"{unit} {each}" for each in heads), "mean", *more)
    keys = legend((family, f"{side} answers") for side, family in _ROWS)
    entropies = "; ".join(f"{number}: {decimal(cell.entropy_nats)}" for number, cell in cells)
    told = f" Entropy in nats (at most 1.61): {entropies}." if rating else ""
    return Chart(
        heading=f"{name} by correctness",
        pictures=[picture],
        caption=join([keys, f"Share of the rounds, all rounds of labelled questions.{told}"]),
        table=data_table(f"{name} by correctness, rounds", head, table_rows),
    )


def _bar(count: int, of: int, family: str) -> Bar:
    share = count / of if count else 0.0
    parts = [Segment(size=share, class_=family, hint=f"{count} of {of} rounds")] if count else []
    return Bar(label=f"{100 * share:.0f}%" if count else "", segments=parts)


def _right_by_margin(number: int, cell: ByCorrectness) -> Chart:
    """The share of right answers in groups of as many rounds each."""
    heading = f"{number}: right answers by margin"
    curve = Line(
        colour="adaptive",
        at=[each.predicted for each in cell.buckets],
        values=[each.right for each in cell.buckets],
        intervals=[(each.low, each.high) for each in cell.buckets],
    )
    chart = Lines(
        title=heading,
        description=f"{len(cell.buckets)} groups of rounds; the numbers are in the table below.",
        x_name="mean margin, nats",
        y_name="right, %",
        lines=[curve],
        held=(0.0,),
    )
    rows = [
        (
            *(decimal(each.predicted), percent(each.right)),
            *(f"[{percent(each.low)}, {percent(each.high)}]", each.count),
        )
        for each in cell.buckets
    ]
    return Chart(
        heading=heading,
        pictures=[lines(chart)],
        caption="Groups of equally many rounds; whiskers: 95% Wilson intervals.",
        table=data_table(heading, ("mean margin, nats", "right %", "95% interval", "rounds"), rows),
    )
