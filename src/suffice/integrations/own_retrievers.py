"""Retrievers of the user's own by what they type: a search server's index, or Python."""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from suffice._optional import require
from suffice.errors import (
    BackendError,
    SufficeError,
    UsageError,
    did_you_mean,
    first_line,
    without_credentials,
)
from suffice.integrations.documents import AdapterSettings, Found, ranked
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.protocols import Retriever
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

_SERVERS: Mapping[str, tuple[str, str, str]] = {
    "elasticsearch": ("elasticsearch", "Elasticsearch", "elasticsearch"),
    "opensearch": ("opensearchpy", "OpenSearch", "opensearch-py"),
}
"""Module, class and distribution of the client."""
_PYTHON = "python"
FORMS: tuple[str, ...] = (
    *(f"{kind}:URL/INDEX" for kind in _SERVERS),
    f"{_PYTHON}:MODULE:FUNCTION",
)
"""What may be typed."""
_NUMBERS = ("title_boost", "timeout_s")
_SHOWN = 8


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
    chosen: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in allowed:
            raise UsageError(
                f"--retriever {shown!r}: no setting {name!r}; allowed behind the ?: {', '.join(allowed)}"
                f"{did_you_mean(name, allowed)}"
            )
        chosen[name] = _number(name, value, shown) if name in _NUMBERS else value or None
    try:
        return ElasticsearchSettings(**chosen)
    except UsageError as error:
        raise UsageError(f"--retriever {shown!r}: {error}") from error


def _number(name: str, value: str, shown: str) -> float:
    try:
        return float(value)
    except ValueError as error:
        raise UsageError(
            f"--retriever {shown!r}: {name} must be a number, found {value!r}"
        ) from error


# --- Python ---------------------------------------------------------------------------------------
def _target(text: str, rest: str) -> Any:
    module_name, _, name = rest.partition(":")
    if not re.fullmatch(r"\w+(\.\w+)*:\w+(\.\w+)*", rest) or module_name.endswith(".py"):
        raise UsageError(
            f"--retriever {text!r} names no function of a module; type python:MODULE:FUNCTION, as in "
            "python:my_search:search for the function search of my_search.py"
        )
    target = _module(text, module_name)
    for part in name.split("."):
        if not hasattr(target, part):
            public = [known for known in vars(target) if not known.startswith("_")]
            more = ", ..." if len(public) > _SHOWN else ""
            raise UsageError(
                f"--retriever {text!r}: {module_name} has no {part!r}; it has: "
                f"{', '.join(public[:_SHOWN]) or 'nothing'}{more}{did_you_mean(part, public)}"
            )
        target = getattr(target, part)
    return target


def _module(text: str, name: str) -> Any:
    here = os.getcwd()  # noqa: PTH109 - as Python's own path holds it
    if here not in sys.path:  # as 'python -m' has it
        sys.path.insert(0, here)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise UsageError(
                f"--retriever {text!r}: there is no module {error.name!r} in {here} or elsewhere on "
                "Python's path; run where it lies, or add its folder to PYTHONPATH"
            ) from error
        raise UsageError(f"--retriever {text!r}: importing {name} failed: {error}") from error
    except Exception as error:
        if not isinstance(error, SufficeError):
            raise UsageError(
                f"--retriever {text!r}: importing {name} failed: {_told(error)}"
            ) from error
        raise


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {first_line(error)}"


class PythonRetriever:
    """Python of the user's own as a :class:`suffice.protocols.Retriever`.

    Called from several threads where several questions are under way. An exception it raises is the failure
    of one search.

    Parameters
    ----------
    target
        A function of a query and the most passages wanted, an object with such a function ``retrieve``, or
        the class of one, made without arguments. It returns, best first, :class:`suffice.Passage` objects,
        ``{"text": ..., "id": ..., "title": ..., "score": ...}`` of which only the text is needed, or texts.
        An id left out is a hash of the text; scores left out are 1/rank.
    source
        What it is called in messages.
    """

    def __init__(self, target: Any, source: str) -> None:
        self._source = source
        self._find = _callable(target, source)

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, best first."""
        check_k(k)
        try:
            found = self._find(query, k)
            items = None if not _listable(found) else list(found)
        except Exception as error:
            if not isinstance(error, SufficeError):
                raise BackendError(f"{self._source} failed: {_told(error)}") from error
            raise
        if items is None:
            raise self._wrong(found)
        if all(isinstance(item, Passage) for item in items):
            unique: dict[str, Passage] = {}
            for passage in items:
                unique.setdefault(passage.id, passage)
            return tuple(unique.values())[:k]
        documents = [self._found(item) for item in items]
        return ranked(documents, k, AdapterSettings(), source=self._source)

    def _found(self, item: Any) -> Found:
        if isinstance(item, str):
            return Found(text=item)
        if isinstance(item, Passage):
            item = {"id": item.id, "title": item.title, "text": item.text, "score": item.score}
        if not isinstance(item, Mapping) or not isinstance(item.get("text"), str):
            raise self._wrong(item)
        name = item.get("id")
        if name is not None and (isinstance(name, bool) or not isinstance(name, str | int)):
            raise self._wrong(item)
        return Found(
            text=item["text"],
            id=None if name is None else str(name),
            score=item.get("score"),
            metadata=item,
        )

    def _wrong(self, value: Any) -> UsageError:
        return UsageError(
            f"{self._source} returned {type(value).__name__} {value!r:.80}; it must return a list, best "
            'first, of suffice.Passage, of {"text": ..., "id": ..., "title": ..., "score": ...} with at '
            "least the text, or of texts"
        )


def _listable(found: Any) -> bool:
    return isinstance(found, Iterable) and not isinstance(found, str | bytes | Mapping)


_WANTED = (
    "name a function of a query and the most passages wanted, def search(query, k), or an object with such "
    "a function retrieve"
)


def _callable(target: Any, source: str) -> Callable[[str, int], Any]:
    if isinstance(target, type):
        try:
            target = target()
        except Exception as error:
            if not isinstance(error, SufficeError):
                raise UsageError(
                    f"--retriever {source!r}: {type(error).__name__} when it was made without arguments: "
                    f"{first_line(error)}; name an object made in the module"
                ) from error
            raise
    find = getattr(target, "retrieve", target)
    if not callable(find):
        raise UsageError(
            f"--retriever {source!r} is {type(target).__name__} {target!r:.60}; {_WANTED}"
        )
    if inspect.iscoroutinefunction(find):
        raise UsageError(f"--retriever {source!r} is async and would not be awaited; {_WANTED}")
    try:
        inspect.signature(find).bind("query", 5)
    except TypeError as error:
        raise UsageError(
            f"--retriever {source!r} cannot be called so: {error}; {_WANTED}"
        ) from error
    except ValueError:  # a builtin that does not tell
        pass
    return find  # type: ignore[no-any-return]
