"""The user's own retrievers: a search server's index, or a Python function that finds documents."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from suffice._optional import require
from suffice.contracts import Retriever
from suffice.errors import (
    BackendError,
    DataError,
    SufficeError,
    UsageError,
    first_line,
    unknown_name,
    without_credentials,
)
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.live.reported import reported_passages
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

_SERVERS: Mapping[str, tuple[str, str, str]] = {
    "elasticsearch": ("elasticsearch", "Elasticsearch", "elasticsearch"),
    "opensearch": ("opensearchpy", "OpenSearch", "opensearch-py"),
}
"""Module, class and distribution of the client."""
_PYTHON = "python"
FORMS: tuple[str, ...] = (*(f"{kind}:URL/INDEX" for kind in _SERVERS), f"{_PYTHON}:MODULE:FUNCTION")
"""What may be typed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnRetriever:
    """Hold a retriever and its name in a recording: as typed, without credentials."""

    name: str
    retriever: Retriever


def is_own(text: str) -> bool:
    """Say whether a text names a retriever of the user's own."""
    return text.partition(":")[0] in (*_SERVERS, _PYTHON) and ":" in text


def connect_own(text: str) -> OwnRetriever:
    """Connect the retriever that a text in one of :data:`FORMS` names."""
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
        chosen: dict[str, Any] = {name: value or None for name, value in stated.items()}
        return ElasticsearchSettings(**chosen)
    except UsageError as error:
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
            f"--retriever {text!r} cannot be loaded: {type(error).__name__}: {first_line(error)}; type "
            "python:MODULE:FUNCTION, as in python:my_search:search for the function search of my_search.py, "
            f"in {here} or elsewhere on Python's path"
        ) from error


class PythonRetriever:
    """Use a Python search function as a :class:`suffice.contracts.Retriever`.

    Parameters
    ----------
    search
        A function of a query and the most documents wanted, or an object with such a function ``retrieve``.
        It returns documents, best first: :class:`suffice.Passage` objects, texts, or documents of LangChain,
        LlamaIndex and Haystack. A mapping has ``text`` and perhaps ``id``, ``title`` and ``score``. The
        default id is a hash of the text; default scores are 1, 1/2, 1/3, ... An exception fails one search,
        as a :class:`suffice.errors.BackendError`.
    source
        Its name in messages.

    Examples
    --------
    >>> found = PythonRetriever(lambda query, k: ["Oslo is a city.", "Skien is a town."])
    >>> [(passage.text, passage.score) for passage in found.retrieve("Where?", 2)]
    [('Oslo is a city.', 1.0), ('Skien is a town.', 0.5)]
    """

    def __init__(self, search: Any, source: str = "the search") -> None:
        self._source = source
        self._find = _callable(search, source)

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return at most ``k`` passages, best first."""
        check_k(k)
        try:
            found = self._find(query, k)
            items = list(found) if isinstance(found, Iterator) else found
        except SufficeError:
            raise
        except Exception as error:
            told = f"{type(error).__name__}: {first_line(error)}"
            raise BackendError(f"{self._source} failed: {told}") from error
        try:
            passages = reported_passages(items)[:k]
        except DataError as error:
            raise UsageError(
                f"{self._source} returned {type(items).__name__} {items!r:.80}; it must return a list, best "
                'first, of suffice.Passage, of {"text": ..., "id": ..., "title": ..., "score": ...} with at '
                f"least the text, or of texts ({error})"
            ) from error
        ready = all(isinstance(item, Passage) for item in items)
        return passages if ready else self._scored(passages)

    def _scored(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        scores = [passage.score for passage in passages if passage.score is not None]
        if not scores:
            ranked = enumerate(passages, start=1)
            return tuple(replace(passage, score=1 / rank) for rank, passage in ranked)
        if len(scores) < len(passages):
            raise DataError(
                f"{self._source} gave a document without a score, or one that is no number, beside others "
                "with one; leave all scores out, or give all"
            )
        for before, after in pairwise(scores):
            if after > before:
                raise UsageError(
                    f"{self._source} ranks a document with score {before:g} before one with {after:g}; "
                    "scores must fall along the ranking. For distances, or an order made otherwise, leave "
                    "the scores out"
                )
        return tuple(passages)


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
            f"{source}: {problem}; name a function of a query and the most passages wanted, "
            "def search(query, k), or an object with such a function retrieve"
        )
    return find  # type: ignore[no-any-return]
