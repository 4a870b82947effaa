"""What a study run as ``python -m studies.NAME`` found, and how that is printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from suffice.cli import main as command_line
from suffice.cli.output import Form, print_result, say
from suffice.cli.parser import Charged, FieldOption, annotations_of, field_options, make_app
from suffice.cli.shared_options import out_path
from suffice.costs.usage import CostModel
from suffice.errors import UsageError
from suffice.options import Option, read_names
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.trace.durable import replace_file

FirstSeed = Annotated[
    int,
    Option(
        at_least=0, help="of the first repetition (each next one's is 1 more) and of resampling"
    ),
]


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


def mean_intervals(
    values: NDArray[np.float64], *, resamples: int = 1000, seed: int = 42
) -> list[Interval]:
    """The mean of every column (n, n_columns), with the 95% interval of resampled rows."""
    drawn = resampled_means(values, resamples=resamples, seed=seed)
    means = values.mean(axis=0).tolist()
    return [percentile_interval(mean, draws) for mean, draws in zip(means, drawn.T, strict=True)]


def check_names(option: str, chosen: Sequence[str], known: Sequence[str]) -> None:
    """Refuse none, an unknown one, and one that is named twice."""
    if not chosen or len(set(chosen)) < len(chosen) or not set(known).issuperset(chosen):
        found = ", ".join(chosen) or "none"
        raise UsageError(f"{option} must be of {', '.join(known)}, each once; found {found}")


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


def names_option(known: Iterable[str], more: str = " (default: all)") -> Option:
    """Some of these names."""
    return Option(metavar="A,B,...", parse=read_names, help=f"of {', '.join(known)}{more}")


def out_option(help_text: str) -> Option:
    """A folder that a study writes into."""
    return Option(metavar="DIR", parse=out_path(folder=True), help=help_text)


def study_main(
    name: str, run: Callable[..., int | None], **more: Callable[..., int | None]
) -> Callable[..., int]:
    """``python -m studies.NAME``, which does what ``run`` says, or a command of ``more`` by its name."""
    app = make_app(f"python -m studies.{name}", run.__doc__ or "")
    app.default(run)
    for word, other in more.items():
        app.command(other, name=word)
    return partial(command_line.main, app=app)


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
