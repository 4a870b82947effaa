"""What the adapters share: documents of any framework become ranked passages."""

from __future__ import annotations

import hashlib
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Literal, get_args

import numpy as np

from suffice.errors import BackendError, DataError, SufficeWarning, UsageError
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
    """The first ``k`` different documents as passages, in the framework's order.

    Of documents that share an id the first stays. ``source`` names the retriever in messages.
    """
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
