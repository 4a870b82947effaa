"""What every result of the Python API can do: show itself and become a data frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from suffice.errors import UsageError
from suffice.results.as_json import fields_as_json
from suffice.results.markup import Html, join
from suffice.results.table import WIDTH, Table

_MOST_ROWS = 100  # that a notebook shows


class Tabular:
    """A result that stands in tables, the first of them the most important one."""

    __slots__ = ()

    def tables(self) -> Sequence[Table]:
        """The result in tables."""
        raise NotImplementedError

    def table(self, name: str | None = None) -> Table:
        """The table of this name, or the first."""
        tables = [table for table in self.tables() if table.columns]
        for table in tables:
            if name in (None, table.name):
                return table
        names = ", ".join(repr(table.name) for table in tables)
        raise UsageError(f"there is no table {name!r}; there are {names or 'none'}")

    def text(self, width: int | None = WIDTH) -> str:
        """Every table as text, in lines of at most ``width``; without a final line feed."""
        return "\n\n".join(text for table in self.tables() if (text := table.text(width)))

    def to_json(self) -> dict[str, Any]:
        """The result as strict JSON, null where undefined."""
        return fields_as_json(self)

    def to_pandas(self, table: str | None = None) -> Any:
        """One table, the first if not named, as a pandas ``DataFrame`` of unrounded values."""
        return self.table(table).to_pandas()

    def __repr__(self) -> str:
        held = (f"{table.name} ({len(table.rows)})" for table in self.tables() if table.columns)
        return f"<{type(self).__name__}: {', '.join(held)}>"

    def _repr_html_(self) -> Html:
        """What a notebook shows."""
        return join(_first_rows(table).html() for table in self.tables())


def _first_rows(table: Table) -> Table:
    if len(table.rows) <= _MOST_ROWS:
        return table
    note = f"The first {_MOST_ROWS} of {len(table.rows):,} rows."
    return replace(table, rows=table.rows[:_MOST_ROWS], notes=(note, *table.notes))
