"""Runs a study as ``python -m studies.NAME``: options, traces and models, what it prints and writes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from suffice.cli.main import main
from suffice.cli.options import add_model, add_traces, open_more, out_path, server_settings
from suffice.cli.output import INTERRUPTED, add_format, print_result, say, waiting
from suffice.cli.parser import Parser
from suffice.cli.settings_options import add_settings, read_settings
from suffice.protocols import ChatModel
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.trace.durable import replace_file
from suffice.trace.rounds.table import TraceSet

T = TypeVar("T")


class StudyResult(Protocol):
    """What a study finds."""

    @property
    def notes(self) -> Sequence[str]: ...
    def tables(self) -> Sequence[Table]: ...
    def to_json(self) -> dict[str, Any]: ...


R = TypeVar("R", bound=StudyResult)


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

    arguments: argparse.Namespace

    def read(self, settings: type[T], **stated: Any) -> T:
        """Settings as the options have them; ``stated`` are fields that are no options."""
        return read_settings(self.arguments, settings, **stated)

    def open(self, path: str) -> TraceSet:
        return open_more(path, self.arguments, say)

    @property
    def traces(self) -> list[TraceSet]:
        return [self.open(path) for path in self.arguments.traces]

    @property
    def folder(self) -> Path | None:
        out = getattr(self.arguments, "out", None)
        return None if out is None else Path(out)

    def connect(self, llm: str, model: str | None) -> ChatModel:
        from suffice.llm.connect import connect

        arguments = self.arguments
        return connect(llm, model, server=server_settings(arguments), cache=arguments.cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Generic[R]):
    """A published experiment; ``run`` gives ``None`` when it was interrupted.

    ``failure`` says why the work failed for all that was found; ``out`` is the help of ``--out``,
    ``wrote`` what is said after the file written in ``{folder}``.
    """

    name: str
    description: str
    options: tuple[Options, ...]
    run: Callable[[Request], R | None]
    traces: Literal["", "several"] = ""
    asks_model: bool = False
    out: str | None = None
    wrote: str = ""
    failure: Callable[[R, Path | None], str | None] = lambda *_: None

    def parser(self) -> Parser:
        parser = Parser(prog=f"python -m studies.{self.name}", description=self.description)
        if self.traces:
            add_traces(parser, several="each evaluated by itself")
        places: dict[str, Any] = {"": parser}
        for one in self.options:
            if one.title not in places:
                places[one.title] = parser.add_argument_group(one.title)
            add_settings(
                places[one.title], one.settings, only=one.only, without=one.without, nested=False
            )
        if self.asks_model:
            add_model(parser)
        if self.out is not None:
            parser.add_argument("--out", type=out_path(folder=True), metavar="DIR", help=self.out)
        add_format(parser)
        parser.set_defaults(run=self._run)
        return parser

    def main(self, argv: Sequence[str] | None = None) -> int:
        return main(argv, parser=self.parser())

    def _run(self, arguments: argparse.Namespace) -> int:
        request = Request(arguments)
        folder = None if self.out is None else request.folder
        with waiting(self.name):
            result = self.run(request)
        if result is None:
            kept = "nothing was kept" if folder is None else "run the same command again to go on"
            say(f"interrupted; {kept}")
            return INTERRUPTED
        wrote = "" if folder is None else self.write(result, folder)
        print_result(arguments, result.tables(), result.to_json, result.notes)
        failure = self.failure(result, folder)
        for text in filter(None, (wrote, failure)):
            say(text)
        return 0 if failure is None else 1

    def write(self, result: R, folder: Path) -> str:
        """Write the document, and say so."""
        document = as_json(result.to_json())
        text = json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}.json"
        replace_file(file, f"{text}\n".encode())
        return f"wrote {file}{self.wrote.format(folder=folder)}"
