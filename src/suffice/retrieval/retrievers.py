"""Retrievers by name, over each question's own paragraphs or over an indexed corpus."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from suffice.contracts import Encoder, Reranker, Retriever
from suffice.errors import DataError, InternalError, UsageError, unknown_name
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.retrieval.dense import DenseIndex
from suffice.retrieval.ranking import (
    check_k,
    corpus_changes,
    corpus_fingerprint,
    has_index,
    prepare_folder,
)
from suffice.trace.rounds.records import Passage
from suffice.trace.store import free_id

IndexKind = Literal["bm25", "dense"]


KeptIndex = BM25Index | DenseIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMaker:
    """Make indexes of every kind.

    ``encoder`` serves dense ones; ``on_progress`` gets the number of encoded passages and of all.
    """

    encoder: Encoder | None = None
    on_progress: Callable[[int, int], None] = lambda *_: None

    def build(self, kind: IndexKind, passages: tuple[Passage, ...]) -> KeptIndex:
        if kind == "bm25":
            return BM25Index.build(passages)
        return DenseIndex.build(passages, self._needed_encoder(), on_progress=self.on_progress)

    def load(self, kind: IndexKind, folder: Path) -> KeptIndex:
        if kind == "bm25":
            return BM25Index.load(folder)
        return DenseIndex.load(folder, self._needed_encoder())

    def cached(self, kind: IndexKind, passages: tuple[Passage, ...], folder: Path) -> KeptIndex:
        """Return the index in ``folder`` if it matches passages and encoder, else build it there."""
        stored = None
        with suppress(DataError, OSError):  # none, half-written or of another encoder: only a cache
            stored = self.load(kind, folder)
        if stored is not None and _same(stored.passages, passages):
            return stored
        return self._renewed(kind, passages, folder)

    def kept(
        self, kind: IndexKind, passages: tuple[Passage, ...], folder: Path, *, renew: bool = False
    ) -> KeptIndex:
        """Return the user's index in ``folder``, built there if there is none."""
        try:
            anew = renew or not has_index(folder)
            if anew:
                prepare_folder(folder)
        except UsageError as error:
            raise UsageError(f"--index: {error}") from error
        if anew:
            return self._renewed(kind, passages, folder)
        try:
            stored = self.load(kind, folder)
        except DataError as error:
            raise DataError(f"{error}; --reindex builds it anew") from error
        if not _same(stored.passages, passages):
            raise DataError(
                f"is for another corpus: {corpus_changes(stored.passages, passages)}; --reindex builds it "
                "anew, or name another --index",
                file=str(folder),
            )
        return stored

    def _renewed(self, kind: IndexKind, passages: tuple[Passage, ...], folder: Path) -> KeptIndex:
        prepare_folder(folder)  # what is wrong with it is told before anything is encoded
        index = self.build(kind, passages)
        index.save(folder)
        return index

    def _needed_encoder(self) -> Encoder:
        if self.encoder is None:
            raise InternalError("a dense index without an encoder")
        return self.encoder


def _same(stored: Sequence[Passage], passages: Sequence[Passage]) -> bool:
    return corpus_fingerprint(stored) == corpus_fingerprint(passages)


def reciprocal_rank_fusion(
    rankings: Sequence[Sequence[str]], *, k: float = 60
) -> list[tuple[str, float]]:
    """Return ids with the sum of ``1 / (k + rank)`` over the rankings that name them, best first.

    Cormack, Clarke and Buettcher, "Reciprocal rank fusion outperforms Condorcet and individual rank
    learning methods", SIGIR 2009.

    >>> [(name, round(score, 3)) for name, score in
    ...  reciprocal_rank_fusion([["a", "b"], ["b", "c"]], k=0)]
    [('b', 1.5), ('a', 1.0), ('c', 0.5)]
    """
    _check_constant(k)
    scores: dict[str, float] = {}
    for ranking in rankings:
        if len(set(ranking)) < len(ranking):
            raise DataError(f"a ranking must name every id once, found {list(ranking)!r:.200}")
        for rank, name in enumerate(ranking, start=1):
            scores[name] = scores.get(name, 0.0) + 1.0 / (k + rank)
    return sorted(scores.items(), key=lambda item: -item[1])


def _check_constant(k: float) -> None:
    if not 0 <= k < float("inf"):
        raise UsageError(f"k of reciprocal rank fusion must be at least 0, found {k!r}")


class HybridRetriever:
    """Fuse the rankings of several retrievers; a :class:`suffice.contracts.Retriever`.

    Passages with equal ids are one passage, as the first retriever returned it; ``score`` is the fused
    score. Every retriever gives ``candidates`` passages, whatever the request.
    """

    def __init__(
        self, retrievers: Sequence[Retriever], *, candidates: int = 20, k: float = 60
    ) -> None:
        self._retrievers = tuple(retrievers)
        if not self._retrievers:
            raise UsageError("no retriever to fuse: give at least one")
        if candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {candidates}")
        _check_constant(k)
        self.candidates = candidates
        self._k = k

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return the ``k`` best of the fused pool, best first, with their fused scores."""
        check_k(k)
        rankings = [retriever.retrieve(query, self.candidates) for retriever in self._retrievers]
        found: dict[str, Passage] = {}
        for passage in chain.from_iterable(rankings):
            found.setdefault(passage.id, passage)
        names = [[passage.id for passage in ranking] for ranking in rankings]
        fused = reciprocal_rank_fusion(names, k=self._k)[:k]
        return tuple(replace(found[name], score=score) for name, score in fused)


class RerankedRetriever:
    """Rerank a retriever's pool of passages; a :class:`suffice.contracts.Retriever`.

    Passages come in the reranker's order with both scores: ``score`` is the retriever's, so it need not
    fall, and ``rerank_score`` the reranker's raw one. At most ``candidates`` are reranked.
    """

    def __init__(self, retriever: Retriever, reranker: Reranker, *, candidates: int = 40) -> None:
        if candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {candidates}")
        self._retriever = retriever
        self._reranker = reranker
        self.candidates = candidates

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return the ``k`` best of the pool by the reranker, best first; NaN scores last."""
        check_k(k)
        pool = self._retriever.retrieve(query, self.candidates)
        return tuple(self._reranker.rerank(query, pool)[:k]) if pool else ()


RetrieverName = Literal["bm25", "dense", "hybrid", "bm25+rerank", "dense+rerank", "hybrid+rerank"]
RETRIEVERS: tuple[RetrieverName, ...] = get_args(RetrieverName)
_RERANKED = "+rerank"
_PARTS: Mapping[str, tuple[IndexKind, ...]] = MappingProxyType(
    {"bm25": ("bm25",), "dense": ("dense",), "hybrid": ("bm25", "dense")}
)


def check_reranking(name: str, *, reranker: bool, pool: int | None) -> None:
    """Refuse a reranking retriever without a reranker, and a reranker or pool without such a retriever."""
    if reranks(name):
        if not reranker:
            raise UsageError(
                f"retriever {name!r} needs --reranker PATH: a cross-encoder's folder or its name on the Hub "
                "(pip install 'suffice[rerank]'), or a reranker's .gguf file"
            )
        return
    for option, asked in (("--reranker", reranker), ("--pool", pool is not None)):
        if asked:
            raise UsageError(
                f"{option} is for a retriever that reranks, not for {name!r}; type --retriever "
                f"{name}{_RERANKED}"
            )


def reranks(name: str) -> bool:
    """Say whether a retriever's passages carry a ``rerank_score``."""
    return name.endswith(_RERANKED)


def first_stage(name: str) -> str:
    return name.removesuffix(_RERANKED)


def kinds_of(name: str) -> tuple[IndexKind, ...]:
    """Return the indexes that a retriever searches; empty: the user's own retriever."""
    return _PARTS.get(first_stage(name), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Set up retrieval: the retriever and its models."""

    name: str = "bm25"
    source: Retriever | None = None
    encoder: Encoder | None = None
    query_prefix: str | None = None
    reranker: Reranker | None = None
    reranker_name: str | None = None
    candidates: int = 20
    pool: int | None = None

    def __post_init__(self) -> None:
        if self.source is None:
            if self.name not in RETRIEVERS:
                raise UsageError(unknown_name("retriever", self.name, RETRIEVERS))
        elif first_stage(self.name) in _PARTS:
            raise UsageError(
                f"your own retriever must not be called {self.name!r}, as one over an index is; give "
                "its own name beside source="
            )
        for field_name in ("candidates", "pool"):
            count = getattr(self, field_name)
            if count is not None and count < 1:
                raise UsageError(f"{field_name} must be at least 1, found {count}")
        if "dense" in self.kinds and self.encoder is None:
            raise UsageError(f"retriever {self.name!r} needs an encoder; type --encoder minilm")
        if self.reranks or self.pool is not None:
            check_reranking(self.name, reranker=self.reranker is not None, pool=self.pool)

    @property
    def kinds(self) -> tuple[IndexKind, ...]:
        """Return the kinds of index that it searches; empty if it has a source."""
        return () if self.source is not None else kinds_of(self.name)

    @property
    def reranks(self) -> bool:
        """Say whether its passages carry a ``rerank_score``."""
        return reranks(self.name)

    @property
    def most(self) -> int | None:
        """Return the most passages per query; ``None``: as many as requested."""
        if self.reranks and self.pool is not None:
            return self.pool
        return 2 * self.candidates if self.reranks or len(self.kinds) > 1 else None

    @property
    def stated(self) -> Mapping[str, Any]:
        stated: dict[str, Any] = {"retriever": self.name}
        if self.reranks:
            stated["reranker"] = self.reranker_name
        if self.pool is not None:
            stated["pool"] = self.pool
        if self.query_prefix is not None:
            stated["query_prefix"] = self.query_prefix
        return stated

    def reaching(self, passages: int) -> Retrieval:
        """Return the same with at least that many candidates, if the corpus has them; a stated pool stays."""
        return replace(self, candidates=max(self.candidates, passages))

    def over(self, indexes: Sequence[Retriever]) -> Retriever:
        """Return the retriever over its indexes, in the order of :attr:`kinds`."""
        first = indexes[0] if self.source is None else self.source
        if len(indexes) > 1:
            each = max(self.candidates, math.ceil((self.pool or 0) / len(indexes)))
            first = HybridRetriever(indexes, candidates=each)
        if self.reranker is None or not self.reranks or self.most is None:
            return first
        return RerankedRetriever(first, self.reranker, candidates=self.most)


@dataclass(frozen=True, slots=True)
class OwnParagraphs:
    """Rank one question's own paragraphs; indexes are built on demand and dropped."""

    passages: tuple[Passage, ...]
    retrieval: Retrieval = field(default_factory=Retrieval)

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """Return all of them, best first: their scores are the round's candidate scores."""
        make = IndexMaker(encoder=self.retrieval.encoder)
        indexes: list[Retriever] = [
            BM25Index.build(self.passages, OKAPI)
            if kind == "bm25"
            else make.build(kind, self.passages)
            for kind in self.retrieval.kinds
        ]
        return self.retrieval.over(indexes).retrieve(query, max(k, len(self.passages)))


def pooled_passages(groups: Iterable[Sequence[Passage]]) -> tuple[Passage, ...]:
    """Return every passage once, by id; a repeated id with another text gets ``id~2``."""
    passages = [passage for group in groups for passage in group]
    taken = {passage.id for passage in passages}
    texts: dict[str, set[str | None]] = {}
    pooled: list[Passage] = []
    for passage in passages:
        seen = texts.setdefault(passage.id, set())
        if passage.text in seen:
            continue
        name = passage.id if not seen else free_id(passage.id, taken.__contains__, mark="~")
        taken.add(name)
        seen.add(passage.text)
        pooled.append(Passage(id=name, title=passage.title, text=passage.text))
    return tuple(pooled)


def pooled_retriever(
    passages: tuple[Passage, ...], retrieval: Retrieval, folder: Path, make: IndexMaker
) -> Retriever:
    """Return a retriever over the paragraphs of all questions; ``folder`` keeps its indexes."""
    # the first version kept BM25 only, in the folder itself
    folders = {"bm25": folder, "dense": folder.with_name(f"{folder.name}-dense")}
    return retrieval.over([make.cached(k, passages, folders[k]) for k in retrieval.kinds])


def corpus_retriever(
    passages: tuple[Passage, ...],
    retrieval: Retrieval,
    make: IndexMaker,
    folder: Path | None = None,
    *,
    renew: bool = False,
) -> Retriever:
    """Return a retriever over the user's own corpus; ``folder``, if given, keeps slow builds."""
    longest = retrieval.kinds[-1]
    indexes = [
        make.build(kind, passages)
        if folder is None or kind != longest
        else make.kept(kind, passages, folder, renew=renew)
        for kind in retrieval.kinds
    ]
    return retrieval.over(indexes)
