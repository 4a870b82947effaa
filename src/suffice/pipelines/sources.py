"""Retrievers for recording: over each question's own paragraphs, or over all of them pooled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from suffice.errors import DataError
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.trace.records import Passage

__all__ = ["OwnParagraphs", "pooled_index", "pooled_passages"]


@dataclass(frozen=True, slots=True)
class OwnParagraphs:
    """Ranks one question's paragraphs; the index is built when asked and not kept."""

    passages: tuple[Passage, ...]

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        """All of them, best first: their scores are the round's candidate scores."""
        index = BM25Index.build(self.passages, OKAPI)
        return index.retrieve(query, max(k, len(self.passages)))


def pooled_passages(groups: Iterable[Sequence[Passage]]) -> tuple[Passage, ...]:
    """Every passage once, by id; one that comes again with another text gets ``id~2``.

    Data sets name paragraphs by title, and the same title may carry two texts.
    """
    texts: dict[str, dict[str | None, str]] = {}
    pooled: list[Passage] = []
    for passage in (each for group in groups for each in group):
        seen = texts.setdefault(passage.id, {})
        if passage.text in seen:
            continue
        name = passage.id if not seen else f"{passage.id}~{len(seen) + 1}"
        seen[passage.text] = name
        pooled.append(Passage(id=name, title=passage.title, text=passage.text))
    return tuple(pooled)


def pooled_index(passages: tuple[Passage, ...], folder: Path) -> BM25Index:
    """The index in ``folder`` when it is of these passages, else a new one saved there."""
    try:
        stored = BM25Index.load(folder) if folder.exists() else None
    except DataError:
        stored = None  # half-written or of another version: it is only a cache
    if stored is not None and stored.fingerprint == corpus_fingerprint(passages):
        return stored
    index = BM25Index.build(passages)
    index.save(folder)
    return index
