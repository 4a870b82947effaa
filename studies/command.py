"""Runs a study as ``python -m studies.NAME``: options, traces and models, what it prints and writes."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from cyclopts import App

from suffice.cli.main import main
from suffice.cli.options import ModelOptions, Reading, SeveralTraces, out_path
from suffice.cli.output import INTERRUPTED, Form, print_result, say, waiting
from suffice.cli.parser import (
    FieldOption,
    Given,
    annotated_option,
    command,
    field_options,
    make_app,
)
from suffice.contracts import ChatModel
from suffice.options import Option
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.trace.durable import replace_file
from suffice.trace.rounds.table import TraceSet

T = TypeVar("T")


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
        return {name: as_json(value) for name, value in self.document.items()}


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Fields of a settings dataclass that are options, under a heading of the help if it has a title."""

    settings: type
    title: str = ""
    only: Collection[str] | None = None
    without: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """What a study is asked for on the command line."""

    given: Given

    def read(self, settings: type[T], **stated: Any) -> T:
        """Settings as the options have them; ``stated`` are fields that are no options."""
        return self.given.settings(settings, **stated)

    def open(self, path: str) -> TraceSet:
        return self.read(Reading).open(path)

    @property
    def traces(self) -> list[TraceSet]:
        return [self.open(path) for path in self.given["traces"]]

    @property
    def folder(self) -> Path | None:
        out = self.given.get("out")
        return None if out is None else Path(out)

    @property
    def model(self) -> ModelOptions:
        return self.read(ModelOptions)

    def connect(self, llm: str, model: str | None) -> ChatModel:
        from suffice.llm.connect import connect

        return connect(llm, model, server=self.model.server, cache=self.model.cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A published experiment; ``run`` gives ``None`` when it was interrupted.

    ``failure`` says why the work failed for all that was found; ``out`` is the help of ``--out``,
    ``wrote`` what is said after the file written in ``{folder}``.
    """

    name: str
    description: str
    options: tuple[Options, ...]
    run: Callable[[Request], Found | None]
    traces: Literal["", "several"] = ""
    asks_model: bool = False
    out: str | None = None
    wrote: str = ""
    failure: Callable[[Found, Path | None], str | None] = lambda *_: None

    def offered(self) -> Iterator[FieldOption]:
        """All its options but the form of what it prints."""
        if self.traces:
            yield from filter(None, [annotated_option("traces", SeveralTraces)])
            yield from field_options(Reading)
        for one in self.options:
            yield from field_options(
                one.settings,
                nested=False,
                only=one.only,
                without=one.without,
                group=one.title.capitalize(),
            )
        if self.asks_model:
            yield from field_options(ModelOptions)
        if self.out is not None:
            option = Option(metavar="DIR", parse=out_path(folder=True), help=self.out)
            yield FieldOption(field="out", type=str, default=None, option=option)

    def app(self) -> App:
        app = make_app(f"python -m studies.{self.name}", self.description)

        @command(*self.offered())
        def run(given: Given, form: Form) -> int:
            return self._run(Request(given), form)

        app.default(run)
        return app

    def main(self, argv: Sequence[str] | None = None) -> int:
        return main(argv, app=self.app())

    def _run(self, request: Request, form: Form) -> int:
        folder = None if self.out is None else request.folder
        with waiting(self.name):
            result = self.run(request)
        if result is None:
            kept = "nothing was kept" if folder is None else "run the same command again to go on"
            say(f"interrupted; {kept}")
            return INTERRUPTED
        wrote = "" if folder is None else self.write(result, folder)
        print_result(form, result.tables(), result.to_json, result.notes)
        failure = self.failure(result, folder)
        for text in filter(None, (wrote, failure)):
            say(text)
        return 0 if failure is None else 1

    def write(self, result: Found, folder: Path) -> str:
        """Write the document, and say so."""
        text = json.dumps(result.to_json(), allow_nan=False, ensure_ascii=False, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}.json"
        replace_file(file, f"{text}\n".encode())
        return f"wrote {file}{self.wrote.format(folder=folder)}"
