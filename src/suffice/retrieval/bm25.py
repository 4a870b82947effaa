"""BM25 over a fixed set of passages.

There are two variants. ``okapi`` ranks a question's **own paragraphs** by the formula of the ``rank_bm25``
package, bit for bit; the published per-question rankings used it. ``lucene`` ranks a **pooled corpus** by
the ``bm25s`` package, which scores each word once, when it builds the index.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import UsageError, first_line
from suffice.retrieval.ranking import (
    UNREADABLE,
    best_first,
    check_ids,
    check_k,
    load_index,
    save_index,
    scored,
)
from suffice.trace.rounds.records import Passage, passage_tokens, tokenize

_ARRAYS = ("data", "indices", "indptr")
_EPSILON = 0.25
"""A word in more than half of the passages gets this share of the mean IDF."""


def _idf(document_frequency: dict[str, int], n_passages: int) -> dict[str, float]:
    """Return IDF ln((N - df + 0.5) / (df + 0.5)) with the floor for negative values.

    The mean that sets the floor includes the negative ones, and is summed in order of first
    occurrence: the last bit of a score depends on it. The floor itself can be negative.
    """
    idf = {
        word: math.log(n_passages - count + 0.5) - math.log(count + 0.5)
        for word, count in document_frequency.items()
    }
    total = 0.0
    for value in idf.values():  # sum() compensates rounding from Python 3.12 on
        total += value
    floor = _EPSILON * (total / len(idf)) if idf else 0.0
    return {word: floor if value < 0 else value for word, value in idf.items()}


@dataclass(frozen=True, slots=True)
class OkapiScorer:
    """Score by BM25 postings: term frequency, length, and the IDF of every word."""

    n_passages: int
    idf: dict[str, float]
    weights: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]]

    @classmethod
    def fit(
        cls, tokens: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
    ) -> OkapiScorer:
        """Count words; passages without words, and no passages at all, are allowed."""
        postings: dict[str, list[tuple[int, int]]] = {}
        for i, words in enumerate(tokens):
            for word, count in Counter(words).items():
                postings.setdefault(word, []).append((i, count))
        lengths = np.array([len(words) for words in tokens])  # (n_passages,)
        mean = sum(len(words) for words in tokens) / len(tokens) if len(tokens) else 0.0
        weights = {}
        for word, places in postings.items():
            where = np.array([i for i, _ in places], dtype=np.intp)
            tf = np.array([count for _, count in places])
            weights[word] = (where, tf * (k1 + 1) / (tf + k1 * (1 - b + b * lengths[where] / mean)))
        idf = _idf({word: len(places) for word, places in postings.items()}, len(tokens))
        return cls(n_passages=len(tokens), idf=idf, weights=weights)

    def scores(self, query_tokens: Sequence[str]) -> NDArray[np.float64]:
        """Return scores of all passages, (n_passages,); a word counts as often as in the query."""
        total = np.zeros(self.n_passages)
        for word in query_tokens:
            if word in self.weights:
                where, values = self.weights[word]
                total[where] += self.idf[word] * values
        return total


BM25Variant = Literal["okapi", "lucene"]
_VARIANTS: tuple[BM25Variant, ...] = get_args(BM25Variant)


@dataclass(frozen=True, slots=True, kw_only=True)
class BM25Settings:
    """Choose the variant of BM25 and its parameters."""

    k1: float = 1.5
    b: float = 0.75
    variant: BM25Variant = "lucene"

    def __post_init__(self) -> None:
        if not 0 <= self.k1 <= sys.float_info.max:
            raise UsageError(f"k1 must be a number of at least 0, found {self.k1!r:.60}")
        if not 0 <= self.b <= 1:
            raise UsageError(f"b must lie in [0, 1], found {self.b!r}")
        if self.variant not in _VARIANTS:
            raise UsageError(f"no BM25 variant {self.variant!r}; allowed: {', '.join(_VARIANTS)}")


OKAPI = BM25Settings(variant="okapi")
"""What ranks a question's own paragraphs."""


@dataclass(frozen=True, slots=True)
class _EagerScorer:
    """Score by a ``bm25s`` index; ``None`` if the passages hold no word."""

    engine: Any
    n_passages: int

    def scores(self, query_tokens: Sequence[str]) -> NDArray[np.floating[Any]]:
        ids = [] if self.engine is None else self.engine.get_tokens_ids(query_tokens)
        if not ids:
            return np.zeros(self.n_passages, dtype=np.float32)
        scores: NDArray[np.floating[Any]] = self.engine.get_scores_from_ids(ids)
        return scores


def load_bm25s() -> Any:
    """Import ``bm25s`` and put back the level of its logger, which its import sets to DEBUG."""
    logger = logging.getLogger("bm25s")
    level = logger.level
    module = require("bm25s", extra="bm25", purpose="BM25 over a pooled corpus")
    logger.setLevel(level)
    return module


def _engine(settings: BM25Settings) -> Any:
    return load_bm25s().BM25(k1=settings.k1, b=settings.b, method=settings.variant, backend="numpy")


def _eager_scorer(passages: Sequence[Passage], settings: BM25Settings) -> _EagerScorer:
    load_bm25s()  # what is missing is told before anything is counted
    vocabulary: dict[str, int] = {}
    # numbered one passage at a time: the words of a large corpus are never held all at once
    ids = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in passage_tokens(passage)]
        for passage in passages
    ]
    if not vocabulary:
        return _EagerScorer(engine=None, n_passages=len(passages))
    engine = _engine(settings)
    engine.index((ids, vocabulary), create_empty_token=False, show_progress=False)
    return _EagerScorer(engine=engine, n_passages=len(passages))


class BM25Index:
    """Rank passages by BM25; a :class:`suffice.contracts.Retriever`.

    Build one with :meth:`build` or :meth:`load`.

    >>> index = BM25Index.build(
    ...     [Passage(id="a", text="a red boat"), Passage(id="b", text="a green boat"),
    ...      Passage(id="c", text="an old tree")], OKAPI)
    >>> [passage.id for passage in index.retrieve("green boat", 2)]
    ['b', 'a']
    """

    def __init__(
        self,
        passages: tuple[Passage, ...],
        settings: BM25Settings,
        scorer: OkapiScorer | _EagerScorer,
    ) -> None:
        self.passages = passages
        self.settings = settings
        self._scorer = scorer

    @classmethod
    def build(cls, passages: Iterable[Passage], settings: BM25Settings | None = None) -> BM25Index:
        kept, settings = tuple(passages), settings or BM25Settings()
        check_ids(kept)
        if settings.variant != "okapi":
            return cls(kept, settings, _eager_scorer(kept, settings))
        tokens = [passage_tokens(passage) for passage in kept]
        return cls(kept, settings, OkapiScorer.fit(tokens, k1=settings.k1, b=settings.b))

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return the ``k`` best passages with their scores, best first; ties keep passage order.

        It returns all passages if there are fewer than ``k``. A query without a known word scores 0
        everywhere and gets the first ``k``.
        """
        check_k(k)
        scores = self.scores(query)
        best = best_first(scores, k)
        return scored(self.passages, scores[best], best)

    def scores(self, query: str) -> NDArray[np.floating[Any]]:
        """Return the query's score of every passage, (n_passages,); 0: no word in common."""
        return self._scorer.scores(tokenize(query))

    def save(self, folder: str | Path) -> None:
        """Write the index to ``folder``; an index already there is replaced in one step."""
        arrays = {}
        if isinstance(self._scorer, _EagerScorer) and self._scorer.engine is not None:
            engine = self._scorer.engine
            words = json.dumps(list(engine.vocab_dict)).encode("ascii")
            arrays = {name: engine.scores[name] for name in _ARRAYS}
            arrays["words"] = np.frombuffer(words, np.uint8)
        save_index(Path(folder), "bm25", self.passages, asdict(self.settings), arrays)

    @classmethod
    def load(cls, folder: str | Path) -> BM25Index:
        stored = load_index(Path(folder), "bm25")
        try:
            settings = BM25Settings(**stored.settings)
        except (TypeError, UsageError) as error:
            raise stored.error(f"not the settings of a BM25 index ({error})") from error
        if settings.variant == "okapi" or not stored.arrays:
            return cls.build(stored.passages, settings)
        engine = _engine(settings)
        try:
            engine.scores = {name: stored.arrays[name] for name in _ARRAYS}
            words = json.loads(stored.arrays["words"].tobytes())
        except UNREADABLE as error:
            raise stored.error(f"not the arrays of a BM25 index ({first_line(error)})") from error
        engine.scores["num_docs"] = len(stored.passages)
        engine.vocab_dict = {word: number for number, word in enumerate(words)}
        engine.nonoccurrence_array = None
        return cls(stored.passages, settings, _EagerScorer(engine, len(stored.passages)))
