"""Indexes by kind: built, kept in a folder, and used again when they are of the same corpus."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, get_args

from suffice.contracts import Encoder, Retriever
from suffice.errors import DataError, InternalError, UsageError
from suffice.retrieval.dense.index import DenseIndex
from suffice.retrieval.index_file import has_index, prepare_folder
from suffice.retrieval.lexical.bm25 import BM25Index
from suffice.retrieval.ranking import corpus_changes, corpus_fingerprint
from suffice.trace.rounds.records import Passage

IndexKind = Literal["bm25", "dense"]
INDEX_KINDS: tuple[IndexKind, ...] = get_args(IndexKind)


class KeptIndex(Retriever, Protocol):
    """An index that can be saved."""

    passages: tuple[Passage, ...]

    def save(self, folder: str | Path) -> None:
        """Write it to a folder; an index already there is replaced in one step."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexMaker:
    """Makes indexes of every kind.

    ``encoder`` is for dense ones; ``on_progress`` is told how many passages of how many are encoded.
    """

    encoder: Encoder | None = None
    on_progress: Callable[[int, int], None] = lambda *_: None

    def build(
        self, kind: IndexKind, passages: tuple[Passage, ...], work: Path | None = None
    ) -> KeptIndex:
        """A new index; ``work`` is where a dense one keeps what it encoded until it is finished."""
        if kind == "bm25":
            return BM25Index.build(passages)
        return DenseIndex.build(
            passages, self._needed_encoder(), work=work, on_progress=self.on_progress
        )

    def load(self, kind: IndexKind, folder: Path) -> KeptIndex:
        """A saved one."""
        if kind == "bm25":
            return BM25Index.load(folder)
        return DenseIndex.load(folder, self._needed_encoder())

    def cached(self, kind: IndexKind, passages: tuple[Passage, ...], folder: Path) -> KeptIndex:
        """The index in ``folder`` when it is of these passages and this encoder, else a new one there."""
        stored = None
        with suppress(DataError, OSError):  # none, half-written or of another encoder: only a cache
            stored = self.load(kind, folder)
        if stored is not None and _same(stored.passages, passages):
            return stored
        return self._renewed(kind, passages, folder)

    def kept(
        self,
        kind: IndexKind,
        passages: tuple[Passage, ...],
        folder: Path,
        *,
        renew: bool = False,
    ) -> KeptIndex:
        """The index that the user keeps in ``folder``, made there when there is none."""
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
                f"is of another corpus: {corpus_changes(stored.passages, passages)}; --reindex builds it "
                "anew, or name another --index",
                file=str(folder),
            )
        return stored

    def _renewed(self, kind: IndexKind, passages: tuple[Passage, ...], folder: Path) -> KeptIndex:
        prepare_folder(folder)  # what is wrong with it is told before anything is encoded
        place = folder.resolve()  # "." has no name
        work = place.with_name(f"{place.name}.work")
        index = self.build(kind, passages, work)
        index.save(folder)
        shutil.rmtree(work, ignore_errors=True)
        return index

    def _needed_encoder(self) -> Encoder:
        if self.encoder is None:
            raise InternalError("a dense index without an encoder")
        return self.encoder


def _same(stored: Sequence[Passage], passages: Sequence[Passage]) -> bool:
    return corpus_fingerprint(stored) == corpus_fingerprint(passages)
