"""The base of every result of the Python API: show itself, become a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from suffice.errors import UsageError
from suffice.results.as_json import fields_as_json
from suffice.results.markup import Html, join
from suffice.results.plots import Plot, draw, first_figure
from suffice.results.table import WIDTH, Table

_MOST_ROWS = 100  # that a notebook shows


class Tabular:
    """A result that stands in tables."""

    __slots__ = ()
    MAIN: ClassVar[str | None] = None  # the main table's name; None: the first

    def tables(self) -> Sequence[Table]:
        """Return the result's tables."""
        raise NotImplementedError

    @property
    def table(self) -> Table:
        return self.named()

    def named(self, name: str | None = None) -> Table:
        """Return the table of this name, or the main one."""
        tables = [table for table in self.tables() if table.columns]
        for table in tables:
            if (name or self.MAIN) in (None, table.name):
                return table
        names = ", ".join(repr(table.name) for table in tables)
        raise UsageError(f"no table {name or self.MAIN!r}; allowed: {names or 'none'}")

    def text(self, width: int | None = WIDTH) -> str:
        """Return every table as text, in lines of at most ``width``; without a final line feed."""
        return "\n\n".join(text for table in self.tables() if (text := table.text(width)))

    def __str__(self) -> str:
        return self.text()

    def to_json(self) -> dict[str, Any]:
        """Return the result as strict JSON, null where undefined."""
        return fields_as_json(self)

    def to_pandas(self, table: str | None = None) -> Any:
        """Return one table, by default the main one, as a pandas ``DataFrame`` of unrounded values."""
        return self.named(table).to_pandas()

    def to_polars(self, table: str | None = None) -> Any:
        """Return one table, by default the main one, as a polars ``DataFrame`` of unrounded values."""
        return self.named(table).to_polars()

    def plotted(self) -> Plot:
        return Plot(table=self.table, y=first_figure(self.table))

    def plot(self, axes: Any = None) -> Any:
        """Draw the main figures on matplotlib axes, by default new ones, and return the axes."""
        return draw(self.plotted(), axes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(t.name for t in self.tables() if t.columns)}>"

    def _repr_html_(self) -> Html:
        return join(_first_rows(table).html() for table in self.tables())


def _first_rows(table: Table) -> Table:
    if len(table.rows) <= _MOST_ROWS:
        return table
    note = f"The first {_MOST_ROWS} of {len(table.rows):,} rows."
    return replace(table, rows=table.rows[:_MOST_ROWS], notes=(note, *table.notes))
