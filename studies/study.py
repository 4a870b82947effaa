"""What a published experiment is to the command that runs it, and what it is given to run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from suffice.errors import UsageError

if TYPE_CHECKING:  # a list of studies loads none of what they run on
    from suffice.llm.endpoint import OpenAISettings
    from suffice.protocols import ChatModel
    from suffice.results.table import Table
    from suffice.trace.rounds.table import TraceSet

T = TypeVar("T")

STUDIES = MappingProxyType(
    {
        "retrieval": "recall of every retriever on the pooled corpus of a data set",
        "ab-rag": "AB-RAG on a record: static against adaptive, its confidence, thresholds, signals",
        "micp": "MiCP on records: coverage, rounds, answer sets and retention against target",
        "stop-rag": "Stop-RAG on a record: every target and seed against fixed rounds and LLM-Stop",
        "hidden-constraints": "planning agents and retrievers on tasks with a constraint that only "
        "documents tell",
    }
)
"""Every study with its line of help: ``STUDY`` of ``studies.NAME.run``, imported when chosen."""


def find_study(name: str) -> Study[Any]:
    """The study of this name, ``-`` in it being ``_`` in its folder's."""
    if name not in STUDIES:
        raise UsageError(f"no study {name!r}; known: {', '.join(STUDIES)}")
    study: Study[Any] = import_module(f"studies.{name.replace('-', '_')}.run").STUDY
    return study


class StudyResult(Protocol):
    """What a study finds."""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader must know."""

    def tables(self) -> Sequence[Table]:
        """The figures, notes among them."""

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""


R = TypeVar("R", bound=StudyResult)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Fields of a settings dataclass that are options, its own and not those of settings in it.

    Parameters
    ----------
    title, about
        A heading in the help, which may stand over several; none: among the first.
    only, without
        Fields to take, or to leave out.
    """

    settings: type
    title: str = ""
    about: str | None = None
    only: Collection[str] | None = None
    without: Collection[str] = ()


class Progress(Protocol):
    """Says how far something is."""

    def show(self, finished: int, planned: int, *, failed: int = 0) -> None:
        """State how many of ``planned`` are finished or failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAccess:
    """Which language model was asked for, and how any is reached."""

    llm: str
    model: str | None
    server: OpenAISettings
    cache: str | None

    def connect(self, llm: str, model: str | None) -> ChatModel:
        """A model by its server's URL or ``embedded``, and its name."""
        from suffice.llm.connect import connect

        return connect(llm, model, server=self.server, cache=self.cache)

    def cached(self, model: ChatModel) -> ChatModel:
        """A model of one's own, with its replies kept where that was asked for."""
        from suffice.llm.cache import CachedModel

        return model if self.cache is None else CachedModel(model, self.cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a study is asked for.

    Parameters
    ----------
    read
        ``read(Settings, **stated)``: settings as the options have them; ``stated`` are fields that are no
        options.
    paths, open_traces
        The traces named, and what reads them.
    model
        How models are reached; ``None`` for a study that asks none.
    folder
        Where to keep what can be gone on with; ``None``: nowhere.
    say, progress
        A line for people, and one that counts things of this name.
    """

    read: Callable[..., Any]
    paths: Sequence[str]
    open_traces: Callable[[str], TraceSet]
    model: ModelAccess | None
    folder: Path | None
    say: Callable[[str], None]
    progress: Callable[[str], Progress]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study(Generic[R]):
    """A published experiment.

    Parameters
    ----------
    description
        What it does.
    options
        What it is asked.
    run
        Does it; ``None``: interrupted.
    traces
        Whether it reads one trace set, several, or none.
    asks_model
        Whether it takes the options of a language model.
    out
        What ``--out`` keeps, if it is taken.
    page
        The result as one HTML document, written to ``--out``.
    wrote
        Said after what was written, ``{folder}`` being where.
    failure
        Why the work failed for all that was found; told result and folder.
    """

    description: str
    options: tuple[Options, ...]
    run: Callable[[Request], R | None]
    traces: Literal["one", "several"] | None = None
    asks_model: bool = False
    out: str | None = None
    page: Callable[[R], str] | None = None
    wrote: str = ""
    failure: Callable[[R, Path | None], str | None] = lambda *_: None

    def write(self, result: R, folder: Path, stem: str) -> str:
        """Write the document and the page, and say so."""
        from suffice.results.as_json import as_json
        from suffice.trace.durable import replaced_together

        document = json.dumps(
            as_json(result.to_json()), allow_nan=False, ensure_ascii=False, indent=1
        )
        files = {f"{stem}.json": f"{document}\n"}
        if self.page is not None:
            files[f"{stem}.html"] = self.page(result)
        with replaced_together(folder, tuple(files)) as aside:
            for name, text in files.items():
                (aside / name).write_bytes(text.encode())
        written = [str(folder / name) for name in files]
        return f"wrote {' and '.join(written)}{self.wrote.format(folder=folder)}"
