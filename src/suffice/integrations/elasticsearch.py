"""Elasticsearch and OpenSearch, through the client of either: ``elasticsearch`` or ``opensearch-py``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffice.errors import BackendError, SufficeError, UsageError, struck
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Passage

_CLIENTS = ("elastic_transport", "elasticsearch", "opensearchpy")
# refusals of one query, not of the way the index is searched
_ABOUT_THE_QUERY = ("maxclausecount", "max_clause_count", "too_many_clauses", "too_many_nested")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElasticsearchSettings:
    """Name the fields of a document; dots lead into objects; the default id is ``_id``."""

    text_field: str = "text"
    title_field: str | None = "title"
    id_field: str | None = None

    def __post_init__(self) -> None:
        for name in ("text_field", "title_field", "id_field"):
            named = getattr(self, name)
            if named is not None and (not named or re.search(r"[\s*^,]", named)):
                raise UsageError(f"{name} must be the name of one field, found {named!r}")

    def body(self, query: str, k: int) -> dict[str, Any]:
        """Return the search request for the first ``k``."""
        searched = [name for name in (self.text_field, self.title_field) if name is not None]
        return {
            "size": k,
            "track_total_hits": False,
            "_source": [*searched, *([] if self.id_field is None else [self.id_field])],
            "query": {"multi_match": {"query": query, "fields": searched}},
        }


class ElasticsearchRetriever:
    """Search an Elasticsearch or OpenSearch index; a :class:`suffice.contracts.Retriever`.

    Each search is one ``_search`` with a ``multi_match`` over title and text; scores are the server's,
    by default BM25. Searches go to the same copies of the shards, so equal queries give equal rankings.
    A ranking that misses a shard or ran out of time counts as failed. Of documents that share an id the
    best stays. Give ``id_field`` if an alias joins indexes with equal ids. Several threads may share it.
    """

    def __init__(
        self, client: Any, index: str, *, settings: ElasticsearchSettings | None = None
    ) -> None:
        if not callable(getattr(client, "search", None)):
            raise UsageError(
                "wanted a client of elasticsearch or opensearch-py, found "
                f"{type(client).__name__}; write Elasticsearch(url) or OpenSearch(url)"
            )
        if not index or re.search(r"[*,\s]", index):
            raise UsageError(
                f"{index[:80]!r} is not the name of one index; for several give an alias"
            )
        self._client = client
        self._index = index
        self._settings = settings or ElasticsearchSettings()
        self._place = f"index {index!r}"

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return at most ``k`` passages that match any word of the query, best first."""
        check_k(k)
        if not query.strip():
            return ()
        try:
            reply = self._client.search(
                index=self._index,
                body=self._settings.body(query, k),
                preference="suffice",
                allow_partial_search_results="false",
            )
        except Exception as error:
            if type(error).__module__.partition(".")[0] in _CLIENTS:
                raise _refusal(error, self._place) from error
            raise
        reply = getattr(reply, "body", reply)
        try:
            part, shards = reply["timed_out"], reply["_shards"]
            passages = [self._passage(hit) for hit in reply["hits"]["hits"]]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise BackendError(
                f"{self._place} sent a reply that is no ranking ({error!r:.100}): {reply!r:.100}. Is the "
                "client's URL that of Elasticsearch or OpenSearch?"
            ) from error
        if part or shards["failed"]:
            why = "its time ran out"
            if shards["failed"]:
                reason = _told((shards.get("failures") or [{}])[0].get("reason"))
                why = f"{shards['failed']} of its shards failed ({reason or 'no reason given'})"
            raise BackendError(f"{self._place} ranked only part: {why}")
        if passages and all(passage.text is None for passage in passages):
            raise UsageError(
                f"no document of {self._place} has text under {self._settings.text_field!r}; name the "
                "field: ElasticsearchSettings(text_field=...). It must be kept in _source"
            )
        unique: dict[str, Passage] = {}
        for passage in passages:
            unique.setdefault(passage.id, passage)
        return tuple(unique.values())

    def _passage(self, hit: Mapping[str, Any]) -> Passage:
        source, settings = hit.get("_source", {}), self._settings
        title, field = settings.title_field, settings.id_field
        name = hit["_id"] if field is None else _value(source, field)
        if not isinstance(name, str | int) or name == "":
            raise UsageError(
                f"document {hit['_id']!r} of {self._place} has no id under {field!r}; name another field "
                "or leave id_field out"
            )
        return Passage(
            id=str(name),
            text=_text(_value(source, settings.text_field)),
            title=(None if title is None else _text(_value(source, title))) or "",
            score=float(hit["_score"]),
        )


_NEVER = frozenset({400, 401, 403, 404, 405, 406, *range(300, 400)})  # however often it is asked


def _refusal(error: Exception, place: str) -> SufficeError:
    """Return the error to raise for a client's exception, after all its retries."""
    status, info = getattr(error, "status_code", None), getattr(error, "info", None)
    answered = f"answered {status}" if isinstance(status, int) else "gave no reply"
    reason = _told(info.get("error")) if isinstance(info, dict) else ""
    why = " ".join(struck(reason or f"{type(error).__name__} ({error})").split())[:300]
    said = f"{place} {answered}: {why}"
    if status == 400 and any(word in said.lower() for word in _ABOUT_THE_QUERY):
        return BackendError(f"{said}. The query has too many words; shorten it")
    if status in _NEVER or "CERTIFICATE_VERIFY_FAILED" in why:
        return UsageError(
            f"{said}. Check the index and its fields, the server's URL, and the client's credentials and "
            "certificates"
        )
    silent = "; check that it runs there, or raise the client's timeout"
    raised = "" if isinstance(status, int) else silent
    return BackendError(f"{said} (after the client's retries){raised}")


def _told(error: object) -> str:
    if not isinstance(error, dict):
        return error if isinstance(error, str) else ""
    causes = [*(error.get("root_cause") or ())[:1], error]
    return "; ".join(dict.fromkeys(f"{held.get('type')}: {held.get('reason')}" for held in causes))


def _value(source: Mapping[str, Any], name: str) -> object:
    if name in source:
        return source[name]
    head, dot, rest = name.partition(".")
    inner = source.get(head)
    return _value(inner, rest) if dot and isinstance(inner, dict) else None


def _text(value: object) -> str | None:
    if isinstance(value, list):
        parts = [part for part in value if isinstance(part, str)]
        return " ".join(parts) if parts else None
    return value if isinstance(value, str) else None
