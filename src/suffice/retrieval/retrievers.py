"""Retrievers by name, over each question's own paragraphs or over a corpus whose index is kept."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, get_args

from suffice.contracts import Encoder, Reranker, Retriever
from suffice.errors import DataError, UsageError, unknown_name
from suffice.retrieval.combined import HybridRetriever, RerankedRetriever
from suffice.retrieval.index_file import load_index
from suffice.retrieval.indexes import IndexKind, IndexMaker
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.retrieval.ranking import corpus_changes, corpus_fingerprint
from suffice.trace.rounds.records import Passage

RetrieverName = Literal[
    "bm25",
    "dense",
    "hybrid",
    "bm25+rerank",
    "dense+rerank",
    "hybrid+rerank",
]
RETRIEVERS: tuple[RetrieverName, ...] = get_args(RetrieverName)
_RERANKED = "+rerank"
_PARTS: Mapping[str, tuple[IndexKind, ...]] = MappingProxyType(
    {"bm25": ("bm25",), "dense": ("dense",), "hybrid": ("bm25", "dense")}
)


def check_reranking(name: str, *, reranker: bool, pool: int | None) -> None:
    """Refuse a retriever that reranks without a reranker, and a reranker or a pool where none does."""
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


def retriever_name(text: str) -> RetrieverName:
    """A name that is known."""
    for name in RETRIEVERS:
        if name == text:
            return name
    raise UsageError(unknown_name("retriever", text, RETRIEVERS))


def reranks(name: str) -> bool:
    """Whether a retriever's passages carry a ``rerank_score``."""
    return name.endswith(_RERANKED)


def first_stage(name: str) -> str:
    """``X`` of ``X+rerank``, and of ``X``."""
    return name.removesuffix(_RERANKED)


def kinds_of(name: str) -> tuple[IndexKind, ...]:
    """The indexes that a retriever searches; none for a retriever of the user's own."""
    return _PARTS.get(first_stage(name), ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Which retriever, and the models it needs."""

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
            retriever_name(self.name)
        elif first_stage(self.name) in _PARTS:
            raise UsageError(
                f"a retriever of one's own must not be called {self.name!r}, as one over an index is; give "
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
        """The indexes it searches; none where it has a source."""
        return () if self.source is not None else kinds_of(self.name)

    @property
    def reranks(self) -> bool:
        """Whether its passages carry a ``rerank_score``."""
        return reranks(self.name)

    @property
    def most(self) -> int | None:
        """The most passages a query finds; ``None``: as many as are asked for."""
        if self.reranks and self.pool is not None:
            return self.pool
        return 2 * self.candidates if self.reranks or len(self.kinds) > 1 else None

    @property
    def stated(self) -> Mapping[str, Any]:
        """What a run document says of it."""
        stated: dict[str, Any] = {"retriever": self.name}
        if self.reranks:
            stated["reranker"] = self.reranker_name
        if self.pool is not None:
            stated["pool"] = self.pool
        if self.query_prefix is not None:
            stated["query_prefix"] = self.query_prefix
        return stated

    def reaching(self, passages: int) -> Retrieval:
        """The same with at least that many candidates, where the corpus has them; a stated pool stays."""
        return replace(self, candidates=max(self.candidates, passages))

    def over(self, indexes: Sequence[Retriever]) -> Retriever:
        """The retriever over its indexes, in the order of :attr:`kinds`."""
        first = indexes[0] if self.source is None else self.source
        if len(indexes) > 1:
            each = max(self.candidates, math.ceil((self.pool or 0) / len(indexes)))
            first = HybridRetriever(indexes, candidates=each)
        if self.reranker is None or not self.reranks or self.most is None:
            return first
        return RerankedRetriever(first, self.reranker, candidates=self.most)


@dataclass(frozen=True, slots=True)
class OwnParagraphs:
    """Ranks one question's paragraphs; what it needs is built when asked and not kept."""

    passages: tuple[Passage, ...]
    retrieval: Retrieval = field(default_factory=Retrieval)

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """All of them, best first: their scores are the round's candidate scores."""
        make = IndexMaker(encoder=self.retrieval.encoder)
        indexes: list[Retriever] = [
            BM25Index.build(self.passages, OKAPI)
            if kind == "bm25"
            else make.build(kind, self.passages)
            for kind in self.retrieval.kinds
        ]
        return self.retrieval.over(indexes).retrieve(query, max(k, len(self.passages)))


def pooled_passages(groups: Iterable[Sequence[Passage]]) -> tuple[Passage, ...]:
    """Every passage once, by id; one that comes again with another text gets ``id~2``.

    Data sets name paragraphs by title, and the same title may carry two texts. Where some passage is
    called ``id~2`` already, the next free number is taken.
    """
    passages = [passage for group in groups for passage in group]
    taken = {passage.id for passage in passages}
    texts: dict[str, set[str | None]] = {}
    pooled: list[Passage] = []
    for passage in passages:
        seen = texts.setdefault(passage.id, set())
        if passage.text in seen:
            continue
        name = passage.id if not seen else _free(passage.id, len(seen) + 1, taken)
        taken.add(name)
        seen.add(passage.text)
        pooled.append(Passage(id=name, title=passage.title, text=passage.text))
    return tuple(pooled)


def _free(name: str, number: int, taken: Set[str]) -> str:
    while f"{name}~{number}" in taken:
        number += 1
    return f"{name}~{number}"


def pooled_retriever(
    passages: tuple[Passage, ...], retrieval: Retrieval, folder: Path, make: IndexMaker
) -> Retriever:
    """Over the paragraphs of all questions; its indexes are kept in and beside ``folder``.

    An index found there is used again when it is of these passages, and of this encoder.
    """
    return retrieval.over([make.cached(k, passages, _beside(folder, k)) for k in retrieval.kinds])


def pool_changes(passages: tuple[Passage, ...], retrieval: Retrieval, folder: Path) -> str | None:
    """What differs, in words, from the passages indexed in ``folder``; ``None``: nothing, or none is kept."""
    for kind in retrieval.kinds:
        with suppress(DataError):
            kept = load_index(_beside(folder, kind), kind).passages
            same = corpus_fingerprint(kept) == corpus_fingerprint(passages)
            return None if same else corpus_changes(kept, passages)
    return None


def _beside(folder: Path, kind: IndexKind) -> Path:
    # the first version kept BM25 only, in the folder itself
    return folder if kind == "bm25" else folder.with_name(f"{folder.name}-{kind}")


def corpus_retriever(
    passages: tuple[Passage, ...],
    retrieval: Retrieval,
    make: IndexMaker,
    folder: Path | None = None,
    *,
    renew: bool = False,
) -> Retriever:
    """Over the user's own corpus; what takes long to build is kept in ``folder`` when one is given.

    That is the dense index where there is one, else the only one.
    """
    longest = retrieval.kinds[-1]
    indexes = [
        make.build(kind, passages)
        if folder is None or kind != longest
        else make.kept(kind, passages, folder, renew=renew)
        for kind in retrieval.kinds
    ]
    return retrieval.over(indexes)
