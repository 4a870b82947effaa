"""Retrievers by name, over each question's own paragraphs or over a corpus, and their models.

A corpus' index is kept. Contradiction detectors have their names here too.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.llm.embedded_reranker import EmbeddedReranker
from suffice.llm.embedding_endpoint import EndpointEncoder
from suffice.pipelines.loops.indexes import IndexKind, IndexMaker
from suffice.protocols import ContradictionDetector, Encoder, Reranker, Retriever
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.dense.sentence_encoder import SentenceEncoder
from suffice.retrieval.fusion import HybridRetriever
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.retrieval.pairs.contradiction_head import ContradictionHead
from suffice.retrieval.pairs.cross_encoder import CrossEncoderReranker
from suffice.retrieval.pairs.nli import NliContradiction
from suffice.retrieval.reranked import RerankedRetriever
from suffice.signals.candidates import MarkerDetector
from suffice.trace.rounds.records import Passage

RetrieverName = Literal["bm25", "tfidf", "dense", "hybrid", "hybrid+rerank"]
RETRIEVERS: tuple[RetrieverName, ...] = get_args(RetrieverName)
_PARTS: Mapping[RetrieverName, tuple[IndexKind, ...]] = MappingProxyType(
    {
        "bm25": ("bm25",),
        "tfidf": ("tfidf",),
        "dense": ("dense",),
        "hybrid": ("bm25", "dense"),
        "hybrid+rerank": ("bm25", "dense"),
    }
)
NO_RERANKER = (
    "retriever 'hybrid+rerank' needs --reranker PATH; train one with python -m "
    "suffice.bench.training.reranker --dataset NAME --data PATH --out DIR"
)


_RERANKER_FILES = (".bin", ".gguf", ".json", ".safetensors", ".txt")


# --- models ---------------------------------------------------------------------------------------
def connect_encoder(name: str, model: str | None = None) -> Encoder:
    """The encoder a name stands for.

    Parameters
    ----------
    name
        ``minilm`` (MiniLM in 8 bit, on the processor), the base URL of a server that gives embeddings,
        or a model that sentence-transformers loads, by folder or name.
    model
        The server's name of its model.

    Raises
    ------
    UsageError
        For a server without a model's name, and as the chosen kind raises it.
    """
    if name == "minilm":
        return OnnxEncoder.load()
    if name.startswith(("http://", "https://")):
        if model is None:
            raise UsageError(f"which model of {name} embeds? Name it: --encoder-model M")
        return EndpointEncoder(name, model)
    return SentenceEncoder.load(name)


def connect_reranker(path: str) -> Reranker:
    """The reranker at a path: a GGUF file, or else a cross-encoder's folder or name.

    Safe to call from several threads: one question is reranked at a time.
    """
    if path.lower().endswith(".gguf"):
        return _OneAtATime(EmbeddedReranker(path))
    place = Path(path)
    if not place.exists() and (place.is_absolute() or len(place.parts) != 2):
        # a model of the Hub is OWNER/NAME; anything else would be looked for there at length
        raise UsageError(
            f"no cross-encoder at {path!r}; name a folder, a .gguf file, or a model of the Hub as "
            "OWNER/NAME"
        )
    return _OneAtATime(CrossEncoderReranker.load(path))


def reranker_name(path: str) -> str:
    """What a recording calls a reranker: its name, and for files a hash of what it is made of.

    A folder may move; another reranker in its place is another name.
    """
    place = Path(path)
    if not place.exists():
        return path
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    digest = hashlib.sha256()
    for each in files:
        if each.is_file() and each.suffix in _RERANKER_FILES:
            with each.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").digest()
            digest.update(f"{each.relative_to(place).as_posix()}:".encode() + found)
    return f"{place.resolve().name}:{digest.hexdigest()[:16]}"


class _OneAtATime:
    """A reranker that several threads may call."""

    def __init__(self, reranker: Reranker) -> None:
        self._reranker = reranker
        self._lock = threading.Lock()

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        with self._lock:
            return self._reranker.rerank(query, passages)


def connect_detector(name_or_path: str) -> ContradictionDetector:
    """The contradiction detector a name stands for; safe to call from several threads.

    Parameters
    ----------
    name_or_path
        ``markers`` (negations and conflict markers, published), ``learned`` (the packaged head on
        MiniLM), a head's own ``.safetensors`` file, or an entailment cross-encoder: a folder, or a model
        of the Hub as OWNER/NAME.

    Raises
    ------
    MissingExtra
        When the extra ``dense`` (a head) or ``rerank`` (a cross-encoder) is not installed.
    UsageError
        When there is no such detector.
    DataError
        When a head's file is damaged.
    """
    if name_or_path == "markers":
        return MarkerDetector()
    if name_or_path == "learned":
        return ContradictionHead.load()
    place = Path(name_or_path)
    if place.is_file() and place.suffix == ".safetensors":
        return ContradictionHead.load(place)
    named_file = place.suffix == ".safetensors"
    if not place.exists() and (named_file or place.is_absolute() or len(place.parts) != 2):
        # a model of the Hub is OWNER/NAME; anything else would be looked for there at length
        raise UsageError(
            f"no contradiction detector {name_or_path!r}; name markers, learned, a head's .safetensors "
            "file, or an entailment cross-encoder by folder or as OWNER/NAME of the Hub"
        )
    return _OneDetectionAtATime(NliContradiction.load(place if place.exists() else name_or_path))


class _OneDetectionAtATime:
    """A detector that several threads may call."""

    def __init__(self, detector: ContradictionDetector) -> None:
        self._detector = detector
        self._lock = threading.Lock()

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        with self._lock:
            return self._detector.contradictions(pairs)


# --- which retriever ------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Retrieval:
    """Which retriever, and the models it needs.

    Parameters
    ----------
    name
        ``hybrid``: the first of BM25 and the first of dense, fused by reciprocal rank.
        ``hybrid+rerank``: the fused pool, reranked.
    encoder
        For every one with dense vectors.
    reranker, reranker_name
        For ``hybrid+rerank``, and what a recording calls it.
    candidates
        How many of each are fused (paper 2: 20); the pool has at most twice as many.

    Raises
    ------
    UsageError
        For an unknown name, or one whose models are missing.
    """

    name: RetrieverName = "bm25"
    encoder: Encoder | None = None
    reranker: Reranker | None = None
    reranker_name: str | None = None
    candidates: int = 20

    def __post_init__(self) -> None:
        if self.name not in RETRIEVERS:
            raise UsageError(f"unknown retriever {self.name!r}; known: {', '.join(RETRIEVERS)}")
        if self.candidates < 1:
            raise UsageError(f"candidates must be at least 1, found {self.candidates}")
        if "dense" in self.kinds and self.encoder is None:
            raise UsageError(f"retriever {self.name!r} needs an encoder; type --encoder minilm")
        if self.reranks and self.reranker is None:
            raise UsageError(NO_RERANKER)

    @property
    def kinds(self) -> tuple[IndexKind, ...]:
        """The indexes it searches."""
        return _PARTS[self.name]

    @property
    def reranks(self) -> bool:
        """Whether its passages carry a ``rerank_score``."""
        return self.name == "hybrid+rerank"

    def reaching(self, passages: int) -> Retrieval:
        """The same with a pool of at least that many passages, where the corpus has them."""
        return replace(self, candidates=max(self.candidates, passages))

    def over(self, indexes: Sequence[Retriever]) -> Retriever:
        """The retriever over its indexes, in the order of :attr:`kinds`."""
        if len(indexes) == 1:
            return indexes[0]
        # not deeper, however many passages are asked for: the pool is a matter of the method
        fused = HybridRetriever(indexes, candidates=self.candidates, deepen=False)
        if self.reranker is None or not self.reranks:
            return fused
        return RerankedRetriever(fused, self.reranker, candidates=self.candidates * len(indexes))


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
    given = [each for group in groups for each in group]
    taken = {each.id for each in given}
    texts: dict[str, set[str | None]] = {}
    pooled: list[Passage] = []
    for passage in given:
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

    Raises
    ------
    DataError
        When the folder holds an index of another corpus, encoder or kind, unless ``renew``.
    """
    longest = retrieval.kinds[-1]
    indexes = [
        make.build(kind, passages)
        if folder is None or kind != longest
        else make.kept(kind, passages, folder, renew=renew)
        for kind in retrieval.kinds
    ]
    return retrieval.over(indexes)
