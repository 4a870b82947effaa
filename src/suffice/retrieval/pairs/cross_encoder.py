"""A cross-encoder that reads question and passage together and scores the pair."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from suffice.errors import UsageError
from suffice.retrieval.networks import load_pair_network, raw_outputs
from suffice.trace.rounds.records import Passage, best_reranked
from suffice.trace.rounds.tokens import passage_text

_WHAT = "cross-encoder"


class CrossEncoderReranker:
    """Scores passages with a sentence-transformers cross-encoder; a :class:`suffice.protocols.Reranker`.

    Scores are raw: the network's one output without a sigmoid, unbounded, high for relevant. A
    passage is read as its title and text. Not safe to call from several threads.

    Use :meth:`load`.
    """

    def __init__(self, model: Any, *, batch_size: int = 32) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {batch_size}")
        self._model = model
        self._batch_size = batch_size

    @classmethod
    def load(cls, name_or_path: str | Path, *, batch_size: int = 32) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub."""
        model = load_pair_network(name_or_path, _WHAT)
        if model.num_labels != 1:
            raise UsageError(
                f"{str(name_or_path)!r} gives {model.num_labels} scores a pair; a reranker gives one"
            )
        return cls(model, batch_size=batch_size)

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """The same passages, best first, each with its raw score; equal scores keep their order."""
        if not passages:
            return ()
        pairs = [(query, passage_text(passage)) for passage in passages]
        scores = raw_outputs(self._model, pairs, _WHAT, batch_size=self._batch_size)
        return best_reranked(passages, scores)
