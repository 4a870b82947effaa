"""What a study run as ``python -m studies.NAME`` found, and how that is printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from cyclopts import App

from suffice.cli.output import Form, print_result, say
from suffice.cli.parser import Charged, FieldOption, annotations_of, field_options, make_app
from suffice.cli.shared_options import out_path
from suffice.costs.usage import CostModel
from suffice.options import Option
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.trace.durable import replace_file


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Found(Tabular):
    """What a study found: its document, the tables read from it, and what a reader must know."""

    document: Mapping[str, Any]
    shown: Sequence[Table]
    notes: Sequence[str] = ()

    def tables(self) -> Sequence[Table]:
        """Those that have rows or say something, then the notes."""
        shown = (table for table in self.shown if table.rows or not table.columns)
        notes = [Table(name="notes", notes=[f"Note: {note}" for note in self.notes])]
        return (*shown, *(notes if self.notes else ()))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return dict(as_json(self.document))


@dataclass(frozen=True, slots=True)
class Band:
    """Mean, least and greatest over repetitions on the same questions; no confidence interval."""

    mean: float
    low: float
    high: float

    @property
    def estimate(self) -> float:
        """The mean, as a table names it."""
        return self.mean

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Band | None:
        """The band of values; ``None`` where one is undefined."""
        known = [value for value in values if value is not None]
        if not known or len(known) < len(values):
            return None
        return cls(float(np.mean(known)), min(known), max(known))


def seeds_named(first: int, count: int) -> str:
    """The seeds of repetitions, each 1 more than the one before.

    >>> seeds_named(42, 1), seeds_named(42, 3)
    ('seed 42', 'seeds 42 to 44')
    """
    return f"seed {first}" if count == 1 else f"seeds {first} to {first + count - 1}"


def own_options(
    settings: type[Any], *, only: Collection[str] = (), group: str = ""
) -> list[FieldOption]:
    """Return the options of a settings dataclass, without those of settings in its fields but costs."""
    costs = CostModel in annotations_of(settings).values()
    kinds = (settings, Charged) if costs else (settings,)
    own = {field.name for kind in kinds for field in fields(kind)}
    return [one for one in field_options(settings, group=group) if one.field in (only or own)]


def out_option(help_text: str) -> Option:
    """A folder that a study writes into."""
    return Option(metavar="DIR", parse=out_path(folder=True), help=help_text)


def study_app(name: str, run: Callable[..., int | None]) -> App:
    """``python -m studies.NAME``, which does what the command ``run`` says."""
    app = make_app(f"python -m studies.{name}", run.__doc__ or "")
    app.default(run)
    return app


def report(name: str, found: Found, form: Form, out: str | None = None, more: str = "") -> int:
    """Write ``NAME.json`` into the folder, print what was found, say where it is and ``more``."""
    wrote = ""
    if out is not None:
        file = Path(out) / f"{name}.json"
        text = json.dumps(found.to_json(), allow_nan=False, ensure_ascii=False, indent=1)
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, f"{text}\n".encode())
        wrote = f"wrote {file}{more}"
    print_result(form, found.tables(), found.to_json, found.notes)
    if wrote:
        say(wrote)
    return 0
