"""Elasticsearch and OpenSearch, over HTTP. Needs the extra ``search-server``."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import quote, urlsplit

from suffice._optional import require
from suffice.errors import BackendError, UsageError
from suffice.integrations.search_reply import passages_of, refusal
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

MatchType = Literal["best_fields", "most_fields", "cross_fields", "phrase"]
_INDEX = re.compile(r"(?!\.{1,2}\Z)[^-_+\s\\/*?\"<>|,#:%][^\s\\/*?\"<>|,#:%]*")
_MOST_INDEX_BYTES = 255
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 10.0
_JSON = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchSettings:
    """How an index is searched.

    Parameters
    ----------
    text_field
        The field with the passage's text; dots lead into objects. Several values are joined by spaces.
    title_field
        The field with its title, searched as well; ``None``: there is none.
    title_boost
        How much more a match in the title counts, above 0.
    id_field
        The field with the passage's id; ``None``: the document's ``_id``.
    match
        The ``type`` of the ``multi_match`` query.
    api_key
        An encoded API key; it is sent as ``Authorization: ApiKey ...``.
    username, password
        For basic authentication, instead of a key.
    ca_file
        Certificates to trust, as a PEM file; ``None``: those of the ``httpx2`` package's default.
    timeout_s
        Seconds one attempt may take; the server is asked to give up after the same time.
    max_retries
        Further attempts after 429, 5xx, lost connections and timeouts, with growing pauses or the pause
        the server asks for, at most 10 s each.
    max_bytes
        Replies longer than this are refused.
    """

    text_field: str = "text"
    title_field: str | None = "title"
    title_boost: float = 1.0
    id_field: str | None = None
    match: MatchType = "best_fields"
    api_key: str | None = field(default=None, repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    timeout_s: float = 10.0
    max_retries: int = 3
    max_bytes: int = 32 * 1024 * 1024

    def __post_init__(self) -> None:
        if self.match not in get_args(MatchType):
            raise UsageError(
                f"no match type {self.match!r}; allowed: {', '.join(get_args(MatchType))}"
            )
        for name in ("title_boost", "timeout_s"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"{name} must be a number above 0, found {getattr(self, name)}")
        for name, low in (("max_retries", 0), ("max_bytes", 1)):
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}, found {getattr(self, name)}")
        for name in ("text_field", "title_field", "id_field"):
            named = getattr(self, name)
            if named is not None and (not named or re.search(r"[\s*^,]", named)):
                raise UsageError(f"{name} must be the name of one field, found {named!r}")
        _check_credentials(self)

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of the fields that are read."""
        named = (self.text_field, self.title_field, self.id_field)
        return tuple(each for each in named if each is not None)


class ElasticsearchRetriever:
    """An index of Elasticsearch or OpenSearch; fulfils :class:`suffice.protocols.Retriever`.

    Each search is one ``_search`` with a ``multi_match`` over title and text; scores are the server's,
    by default BM25. Searches go to the same copies of the shards each time, so that equal queries
    give equal rankings. A ranking that misses a shard or ran out of time counts as failed. Of
    documents that share an id the best stays: where an alias joins indexes that number their
    documents alike, give ``id_field``. Safe to use from several threads.

    Parameters
    ----------
    url
        The server's base URL, without credentials.
    index
        Name of one index or alias.
    settings
        See :class:`ElasticsearchSettings`.

    Raises
    ------
    MissingExtra
        When the extra ``search-server`` is not installed.
    UsageError
        When the URL or the index name is none.
    """

    def __init__(
        self, url: str, index: str, *, settings: ElasticsearchSettings | None = None
    ) -> None:
        self._settings = settings or ElasticsearchSettings()
        self._url = _base_url(url)
        self._path = f"{self._url}/{quote(_index_name(index), safe='')}/_search"
        self._place = f"index {index!r} at {self._url}"
        self._http = require("httpx2", extra="search-server", purpose="A search server")
        try:
            self._http.URL(self._path)
        except self._http.InvalidURL as error:
            raise UsageError(f"{url!r} is no URL of a server: {error}") from error
        self._client = self._http.Client(
            timeout=self._settings.timeout_s,
            headers=_headers(self._settings),
            auth=_basic(self._settings),
            verify=_trusted(self._settings.ca_file),
        )

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages that match any word of the query, best first.

        Raises
        ------
        UsageError
            When the server refuses the credentials, the index, the fields or ``k``.
        BackendError
            When it cannot be reached, keeps failing, refuses this query, or sends what is no complete
            ranking.
        """
        check_k(k)
        if not query.strip():
            return ()
        status, content = self._ask(self._body(query, k))
        if status != 200:
            raise refusal(status, content, place=self._place)
        return passages_of(content, k, self._fields, place=self._place)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _fields(self) -> tuple[str, str | None, str | None]:
        settings = self._settings
        return settings.text_field, settings.title_field, settings.id_field

    def _body(self, query: str, k: int) -> dict[str, Any]:
        settings = self._settings
        searched = [settings.text_field]
        if settings.title_field is not None:
            searched.append(f"{settings.title_field}^{settings.title_boost:g}")
        return {
            "size": k,
            "timeout": f"{max(1, round(settings.timeout_s * 1000))}ms",
            "track_total_hits": False,
            "_source": list(settings.fields),
            "query": {"multi_match": {"query": query, "fields": searched, "type": settings.match}},
        }

    def _ask(self, body: dict[str, Any]) -> tuple[int, bytes]:
        """The last attempt's status and content."""
        attempt = 0
        while True:
            last = attempt == self._settings.max_retries
            pause: float | None = None
            try:
                status, content, pause = self._attempt(body)
            except self._http.TransportError as error:
                if last:
                    raise self._lost(error) from error
            except self._http.HTTPError as error:
                raise BackendError(
                    f"{self._place}: the reply cannot be read ({type(error).__name__}: {error})"
                ) from error
            else:
                if last or not (status == 429 or status >= 500):
                    return status, content
            grown = min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S)
            time.sleep(grown if pause is None else pause)
            attempt += 1

    def _attempt(self, body: dict[str, Any]) -> tuple[int, bytes, float | None]:
        settings, started = self._settings, time.monotonic()
        chosen = {"preference": "suffice", "allow_partial_search_results": "false"}
        with self._client.stream("POST", self._path, params=chosen, json=body) as reply:
            parts: list[bytes] = []
            size = 0
            for part in reply.iter_bytes():
                parts.append(part)
                size += len(part)
                if size > settings.max_bytes:
                    raise BackendError(
                        f"{self._place} sent more than {settings.max_bytes:,} bytes; ask for fewer "
                        "passages or raise ElasticsearchSettings(max_bytes=...)"
                    )
                if time.monotonic() - started > settings.timeout_s:
                    raise self._http.ReadTimeout("the whole reply took too long")
            return reply.status_code, b"".join(parts), _retry_after(reply.headers)

    def _lost(self, error: Exception) -> BackendError:
        if isinstance(error, self._http.TimeoutException):
            return BackendError(
                f"{self._place} did not answer within {self._settings.timeout_s:g} s; is it overloaded? "
                "Raise ElasticsearchSettings(timeout_s=...)"
            )
        return BackendError(
            f"{self._place} cannot be reached ({error}); check that the server runs there"
        )


def _check_credentials(settings: ElasticsearchSettings) -> None:
    key, username = settings.api_key, settings.username
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        raise UsageError("api_key must be visible ASCII letters without blanks, as it was issued")
    if username is not None and ":" in username:
        raise UsageError("a username for basic authentication holds no colon")
    if key is not None and username is not None:
        raise UsageError("give an api_key or a username and password, not both")
    if (username is None) != (settings.password is None):
        raise UsageError("username and password go together; one of them is missing")


def _base_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        named = named and not re.search(r"\s", url)
    except ValueError:
        named = False
    if not named:
        raise UsageError(
            "a search server's URL is like https://search.example:9200, found "
            f"{re.sub(r'//[^/]*@', '//...@', url)!r}"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            "a search server's URL holds no credentials, query or fragment; give credentials as "
            "ElasticsearchSettings(api_key=...) or (username=..., password=...)"
        )
    return url.rstrip("/")


def _index_name(index: str) -> str:
    if not _INDEX.fullmatch(index) or len(index.encode()) > _MOST_INDEX_BYTES:
        raise UsageError(
            f"{index[:80]!r} is no name of an index: at most {_MOST_INDEX_BYTES} bytes, none of "
            r"""\ / * ? " < > | , # : %, no blank, and no -, _ or + at its start. Several indexes are """
            "searched through an alias"
        )
    return index


def _headers(settings: ElasticsearchSettings) -> dict[str, str]:
    headers = {"Accept": _JSON, "Content-Type": _JSON}
    if settings.api_key is not None:
        headers["Authorization"] = f"ApiKey {settings.api_key}"
    return headers


def _basic(settings: ElasticsearchSettings) -> tuple[str, str] | None:
    if settings.username is None or settings.password is None:
        return None
    return settings.username, settings.password


def _trusted(ca_file: Path | None) -> Any:
    """What ``verify`` of the HTTP client wants."""
    if ca_file is None:
        return True
    import ssl

    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{ca_file} holds no certificates in PEM form ({error})") from error


def _retry_after(headers: Any) -> float | None:
    """The pause the server asks for in seconds, within bounds; ``None``: none, a date or nonsense."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return min(seconds, _LONGEST_PAUSE_S) if seconds >= 0 else None  # NaN is not
