"""What the adapters share: documents of any framework become ranked passages."""

from __future__ import annotations

import hashlib
import inspect
import math
import pkgutil
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlsplit, urlunsplit

import numpy as np

from suffice._optional import require
from suffice.contracts import Retriever
from suffice.errors import (
    BackendError,
    DataError,
    SufficeError,
    SufficeWarning,
    UsageError,
    first_line,
    unknown_name,
    without_credentials,
)
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.live.reported import reported_passages
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

ScoreSource = Literal["given", "rank", "none"]
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterSettings:
    """How a framework's documents become passages.

    Parameters
    ----------
    id_key
        Metadata key that holds the id; ``None``: the document's own id, or where it has none a hash of
        its text. Give one where the framework draws ids at random: recorded ids must mean the same
        passage tomorrow.
    title_key
        Metadata key of the title; documents without it have none.
    score_key
        Metadata key of the score; ``None``: the framework's own.
    scores
        ``given``: those scores; where the framework gives none at all, as ``rank``. ``rank``: 1, 1/2,
        1/3, ... along the ranking, which says an order and no strength, so the signals
        ``retrieval_z``, ``retrieval_z_robust`` and ``retrieval_gap`` say nothing. ``none``: no score,
        which leaves these signals undefined.
    failures
        Exceptions of the framework or its store that are a failure of one search. They are raised as
        :class:`suffice.errors.BackendError`, which a recording notes before it goes on with the next
        question; any other ends it.
    """

    id_key: str | None = None
    title_key: str = "title"
    score_key: str | None = None
    scores: ScoreSource = "given"
    failures: tuple[type[Exception], ...] = (OSError,)

    def __post_init__(self) -> None:
        if self.scores not in get_args(ScoreSource):
            allowed = ", ".join(get_args(ScoreSource))
            raise UsageError(f"no source of scores {self.scores!r}; allowed: {allowed}")
        if self.score_key is not None and self.scores != "given":
            raise UsageError(
                f"score_key={self.score_key!r} is not read with scores={self.scores!r}; drop one of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A document as its framework gives it."""

    text: str
    id: str | None = None
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)


def ranked(
    documents: Iterable[Found], k: int, settings: AdapterSettings, *, source: str
) -> tuple[Passage, ...]:
    """The first ``k`` different documents as passages, in the framework's order."""
    unique: dict[str, Found] = {}
    for document in documents:
        unique.setdefault(_id(document, settings, source), document)
    kept = list(unique.items())[:k]
    scores = _scores([document for _, document in kept], settings, source)
    return tuple(
        Passage(
            id=name,
            text=document.text,
            title=str(document.metadata.get(settings.title_key) or ""),
            score=score,
        )
        for (name, document), score in zip(kept, scores, strict=True)
    )


def _id(document: Found, settings: AdapterSettings, source: str) -> str:
    if settings.id_key is not None:
        value = document.metadata.get(settings.id_key)
        if value is None or value == "":
            raise DataError(
                f"{source} gave a document without an id under id_key={settings.id_key!r}; its "
                f"metadata has {_keys(document)}"
            )
        return str(value)
    return document.id or hashlib.sha256(document.text.encode("utf-8", "surrogatepass")).hexdigest()


def _scores(
    documents: Sequence[Found], settings: AdapterSettings, source: str
) -> Sequence[float | None]:
    if settings.scores == "none":
        return [None] * len(documents)
    ranks = [1 / rank for rank in range(1, len(documents) + 1)]
    if settings.scores == "rank":
        return ranks
    key = settings.score_key
    given = [held.score if key is None else held.metadata.get(key) for held in documents]
    if key is None and all(score is None for score in given):
        return ranks
    known = []
    for document, score in zip(documents, given, strict=True):
        if score is None:
            where = (
                ""
                if key is None
                else f" under score_key={key!r}; its metadata has {_keys(document)}"
            )
            raise DataError(
                f"{source} gave a document without a score{where}; AdapterSettings(scores='rank') takes the "
                "order alone"
            )
        number = math.nan
        if not isinstance(score, bool | str | bytes | np.bool_):  # float() would take them
            with suppress(TypeError, ValueError, OverflowError):
                number = float(score)
        if not math.isfinite(number):
            raise DataError(
                f"{source} gave a document with the score {score!r:.60}; wanted a number"
            )
        known.append(number)
    for before, after in pairwise(known):
        if after > before:
            raise UsageError(
                f"{source} ranks a document with score {before:g} before one with {after:g}; scores must "
                "fall along the ranking. For distances, or an order made otherwise, take the order "
                "alone: no scores, or AdapterSettings(scores='rank')"
            )
    return known


def _keys(document: Found) -> str:
    return ", ".join(repr(key) for key in document.metadata) or "no keys"


class AdaptedRetriever(ABC):
    """A framework's retriever as a :class:`suffice.contracts.Retriever`.

    ``advice`` is given once where it finds too few and cannot be asked for more.
    """

    def __init__(self, source: str, settings: AdapterSettings | None, *, advice: str) -> None:
        self._source, self._settings = source, settings or AdapterSettings()
        self._advice: str | None = advice

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, in the framework's order."""
        check_k(k)
        try:
            documents, sized = self._search(query, k)
        except self._settings.failures as error:
            raise BackendError(f"{self._source} failed: {type(error).__name__}: {error}") from error
        passages = ranked(map(self._found, documents), k, self._settings, source=self._source)
        if not sized and len(passages) < k and self._advice is not None:
            warnings.warn(
                f"{self._source} gave {len(passages)} documents where {k} were asked for; a loop that "
                f"wants more rounds ends there. {self._advice} Nothing is wrong if it has no more that "
                "match.",
                SufficeWarning,
                stacklevel=2,
            )
            self._advice = None
        return passages

    @abstractmethod
    def _search(self, query: str, k: int) -> tuple[Iterable[Any], bool]:
        """The framework's documents, and whether it was asked for ``k``."""

    @abstractmethod
    def _found(self, document: Any) -> Found:
        """The parts of one of its documents."""


# --- --retriever KIND:REST ------------------------------------------------------------------------
_SERVERS: Mapping[str, tuple[str, str, str]] = {
    "elasticsearch": ("elasticsearch", "Elasticsearch", "elasticsearch"),
    "opensearch": ("opensearchpy", "OpenSearch", "opensearch-py"),
}
"""Module, class and distribution of the client."""
_PYTHON = "python"
FORMS: tuple[str, ...] = (*(f"{kind}:URL/INDEX" for kind in _SERVERS), f"{_PYTHON}:MODULE:FUNCTION")
"""What may be typed."""
_NUMBERS = ("title_boost", "timeout_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRetriever:
    """A retriever, and what a recording calls it: as it was typed, without credentials."""

    name: str
    retriever: Retriever


def is_own(text: str) -> bool:
    """Whether a text means a retriever of the user's own."""
    return text.partition(":")[0] in (*_SERVERS, _PYTHON) and ":" in text


def connect_own(text: str) -> OwnRetriever:
    """The retriever that one of :data:`FORMS` means."""
    kind, _, rest = text.partition(":")
    if kind == _PYTHON:
        return OwnRetriever(name=text, retriever=PythonRetriever(_target(text, rest), text))
    return _connect_server(kind, rest)


# --- servers --------------------------------------------------------------------------------------
def _connect_server(kind: str, address: str) -> OwnRetriever:
    shown = without_credentials(f"{kind}:{address}")
    try:
        url = urlsplit(address)
        host, port = url.hostname, url.port
    except ValueError as error:
        raise _unreadable(kind, shown, f" ({error})") from error
    path, _, index = url.path.rstrip("/").rpartition("/")
    if url.scheme not in ("http", "https") or not host or not index:
        raise _unreadable(kind, shown)
    credentials, at, _ = url.netloc.rpartition("@")
    place = f"[{host}]" if ":" in host else host
    netloc = f"{credentials}{at}{place}:{port or (443 if url.scheme == 'https' else 9200)}"
    settings = _server_settings(url.query, shown)
    module, name, package = _SERVERS[kind]
    client = getattr(require(module, package=package, purpose=f"--retriever {kind}:"), name)
    try:
        connected = client(urlunsplit((url.scheme, netloc, path, "", "")))
    except (ValueError, TypeError) as error:
        raise UsageError(f"--retriever {shown!r}: {first_line(error)}") from error
    return OwnRetriever(
        name=shown, retriever=ElasticsearchRetriever(connected, index, settings=settings)
    )


def _unreadable(kind: str, shown: str, why: str = "") -> UsageError:
    return UsageError(
        f"--retriever {shown!r} names no index of a server{why}; type {kind}:URL/INDEX, as in "
        f"{kind}:http://localhost:9200/notes"
    )


def _server_settings(query: str, shown: str) -> ElasticsearchSettings:
    allowed = [own.name for own in fields(ElasticsearchSettings)]
    stated: Mapping[str, Any] = dict(parse_qsl(query, keep_blank_values=True))
    for name in stated.keys() - set(allowed):
        said = unknown_name("setting", name, allowed)
        raise UsageError(f"--retriever {shown!r}: behind the ?: {said}")
    try:
        chosen: dict[str, Any] = {
            name: float(value) if name in _NUMBERS else value or None
            for name, value in stated.items()
        }
        return ElasticsearchSettings(**chosen)
    except (UsageError, ValueError) as error:
        raise UsageError(f"--retriever {shown!r}: {error}") from error


# --- Python ---------------------------------------------------------------------------------------
def _target(text: str, rest: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:  # as 'python -m' has it
        sys.path.insert(0, here)
    try:
        target = pkgutil.resolve_name(rest)
        return target() if isinstance(target, type) else target
    except SufficeError:
        raise
    except Exception as error:
        raise UsageError(
            f"--retriever {text!r} cannot be loaded: {_told(error)}; type python:MODULE:FUNCTION, as in "
            f"python:my_search:search for the function search of my_search.py, in {here} or elsewhere on "
            "Python's path"
        ) from error


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


class PythonRetriever:
    """Python of the user's own as a :class:`suffice.contracts.Retriever`.

    It returns, best first, :class:`suffice.Passage` objects, ``{"text": ..., "id": ..., "title": ...,
    "score": ...}`` of which only the text is needed, or texts. An id left out is a hash of the text; scores
    left out are 1/rank. An exception it raises is the failure of one search. ``source`` is its name in
    messages.
    """

    def __init__(self, target: Any, source: str) -> None:
        self._source = source
        self._find = _callable(target, source)

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first."""
        check_k(k)
        try:
            found = self._find(query, k)
            items = list(found) if isinstance(found, Iterator) else found
        except SufficeError:
            raise
        except Exception as error:
            raise BackendError(f"{self._source} failed: {_told(error)}") from error
        try:
            passages = reported_passages(items)
        except DataError as error:
            raise UsageError(
                f"{self._source} returned {type(items).__name__} {items!r:.80}; it must return a list, best "
                'first, of suffice.Passage, of {"text": ..., "id": ..., "title": ..., "score": ...} with at '
                f"least the text, or of texts ({error})"
            ) from error
        if all(isinstance(item, Passage) for item in items):
            return passages[:k]
        documents = (
            Found(text=own.text or "", id=own.id, score=own.score, metadata={"title": own.title})
            for own in passages
        )
        return ranked(documents, k, AdapterSettings(), source=self._source)


def _callable(target: Any, source: str) -> Callable[[str, int], Any]:
    find = getattr(target, "retrieve", target)
    problem = "it is async and would not be awaited" if inspect.iscoroutinefunction(find) else None
    try:
        inspect.signature(find).bind("query", 5)
    except TypeError as error:
        problem = str(error)
    except ValueError:  # a builtin that does not tell
        pass
    if problem is not None:
        raise UsageError(
            f"--retriever {source!r}: {problem}; name a function of a query and the most passages wanted, "
            "def search(query, k), or an object with such a function retrieve"
        )
    return find  # type: ignore[no-any-return]
