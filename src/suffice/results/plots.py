"""A result's main figures on matplotlib axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError
from suffice.results.markup import shorten
from suffice.results.table import Column, Table

_LONGEST = 28  # letters of a label


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """The columns to draw: points at (x, y), else intervals; ``line`` joins points whose label begins so."""

    table: Table
    y: str
    x: str | None = None
    label: str | None = None
    line: str | None = None


def draw(plot: Plot, axes: Any = None) -> Any:
    pyplot = require("matplotlib.pyplot", purpose="plots", package="matplotlib")
    table, data = plot.table, plot.table.data()
    labels = [str(name) for name in data[plot.label or table.columns[0].name]]
    if not labels:
        raise UsageError(f"the table {table.name!r} has no rows, so there is nothing to draw")
    axes = pyplot.subplots()[1] if axes is None else axes
    y, ends = _figures(data, plot.y)
    heads = {column.name: column for column in table.columns}
    if plot.x is None:
        places = [float(-place) for place in range(len(labels))]
        axes.errorbar(y, places, xerr=ends, fmt="o")
        axes.set_yticks(places, labels)
        _describe(axes.xaxis, heads[plot.y])
    else:
        x, _ = _figures(data, plot.x)
        axes.errorbar(x, y, yerr=ends, fmt="o")
        joined = [at for at, name in enumerate(labels) if plot.line and name.startswith(plot.line)]
        joined.sort(key=lambda at: x[at])
        axes.plot([x[at] for at in joined], [y[at] for at in joined], color="grey", zorder=0)
        beside = {"textcoords": "offset points", "xytext": (5, 4), "fontsize": "small"}
        for name, *point in zip(labels, x, y, strict=True):
            axes.annotate(shorten(name, _LONGEST, "..."), point, **beside)
        axes.margins(x=0.25)
        _describe(axes.xaxis, heads[plot.x])
        _describe(axes.yaxis, heads[plot.y])
    axes.set_title(table.title.split("\n")[0], fontsize="medium", wrap=True)
    return axes


def first_figure(table: Table) -> str:
    """Return the table's main column of figures: the first with an interval, else the first."""
    figures = [column for column in table.columns if column.kind != "text"]
    if not figures:
        raise UsageError(f"the table {table.name!r} holds no figures, so there is nothing to draw")
    return next((column for column in figures if column.interval), figures[0]).name


def _figures(data: Any, name: str) -> tuple[list[float], Any]:
    values = [float("nan") if value is None else float(value) for value in data[name]]
    if f"{name}_low" not in data:
        return values, None
    ends = []
    for side in ("low", "high"):
        pairs = zip(data[f"{name}_{side}"], values, strict=True)
        ends.append([0.0 if end is None else abs(float(end) - value) for end, value in pairs])
    return values, ends


def _describe(axis: Any, column: Column) -> None:
    axis.set_label_text(" ".join(column.heading.split()))
    if column.kind in ("percent", "points"):
        axis.set_major_formatter(lambda share, _: f"{100 * share:g}")
