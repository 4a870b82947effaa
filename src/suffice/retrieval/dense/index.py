"""Dense retrieval: passages whose vectors are nearest to the query's."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError, UsageError, first_line
from suffice.protocols import Encoder
from suffice.retrieval.dense.passage_vectors import encode_checked, encode_passages
from suffice.retrieval.dense.vector_index import (
    LARGEST_DIMENSION,
    DenseSettings,
    VectorIndex,
)
from suffice.retrieval.index_folder import StoredIndex, load_index, save_index
from suffice.retrieval.ranking import check_ids, check_k, corpus_changes, corpus_fingerprint
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.tokens import passage_text

_VECTORS = "vectors.faiss"


class DenseIndex:
    """Passages ranked by inner product of unit vectors; a :class:`suffice.protocols.Retriever`.

    What is embedded is title and text. A passage with neither is kept but never retrieved: the vector
    of no text means nothing. Scores are cosines in [-1, 1]. Safe to search from several threads.

    Build one with :meth:`build`, :meth:`from_vectors` or :meth:`load`.
    """

    def __init__(
        self,
        passages: tuple[Passage, ...],
        encoder: Encoder,
        vectors: VectorIndex,
        settings: DenseSettings,
    ) -> None:
        self.passages = passages
        self.settings = settings
        self.encoder = encoder
        self._vectors = vectors
        kept = _with_text(passages)
        self._rows = kept if len(kept) < len(passages) else None

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        encoder: Encoder,
        settings: DenseSettings | None = None,
        *,
        work: Path | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> DenseIndex:
        """Embed and index passages."""
        kept, settings = tuple(passages), settings or DenseSettings()
        check_ids(kept)
        texts = [passage_text(kept[row]).strip() for row in _with_text(kept)]
        fingerprint = corpus_fingerprint(kept) if work is not None else ""
        vectors = encode_passages(texts, encoder, fingerprint, work=work, on_progress=on_progress)
        return cls(kept, encoder, VectorIndex.build(vectors, settings), settings)

    @classmethod
    def from_vectors(
        cls,
        passages: Iterable[Passage],
        vectors: ArrayLike,
        encoder: Encoder,
        settings: DenseSettings | None = None,
    ) -> DenseIndex:
        """Index passages whose vectors are at hand."""
        kept, settings = tuple(passages), settings or DenseSettings()
        check_ids(kept)
        unit = _scaled(vectors, len(kept), _with_text(kept))
        _check_dimension(encoder, unit.shape[1], None)
        return cls(kept, encoder, VectorIndex.build(unit, settings), settings)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the corpus; two indexes of the same passages in the same order share it."""
        return corpus_fingerprint(self.passages)

    def __len__(self) -> int:
        return len(self.passages)

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """The ``k`` nearest passages with their scores, best first; ties keep passage order.

        All passages with text when there are fewer than ``k``; ``hnsw`` and ``ivf`` may find fewer.
        """
        check_k(k)
        if not len(self._vectors):
            return ()
        vector = encode_checked(self.encoder, [query], "query")[0]
        scores, rows = self.search(vector, k)
        return tuple(
            replace(self.passages[row], score=score)
            for score, row in zip(scores.tolist(), rows.tolist(), strict=True)
        )

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and positions in :attr:`passages` of the ``k`` nearest to a unit vector, best first."""
        if vector.shape != (self._vectors.dimension,):
            raise DataError(
                f"a query vector of shape {vector.shape}, but the index holds vectors of "
                f"{self._vectors.dimension} numbers; use the encoder that made them"
            )
        scores, rows = self._vectors.search(vector, k)
        return scores, rows if self._rows is None else self._rows[rows]

    def check_matches(self, passages: Iterable[Passage]) -> None:
        """Refuse to stand in for an index of other passages."""
        wanted = tuple(passages)
        if corpus_fingerprint(wanted) == self.fingerprint:
            return
        raise DataError(
            f"the index was built of another corpus: {corpus_changes(self.passages, wanted)}; "
            "build the index again"
        )

    def save(self, folder: str | Path) -> None:
        """Write the index to ``folder``; an index already there is replaced in one step."""
        settings = {
            "encoder": self.encoder.name,
            "dimension": self._vectors.dimension,
            "index": asdict(self.settings),
        }

        def write(data: Path) -> None:
            self._vectors.write(data / _VECTORS)

        save_index(Path(folder), "dense", self.passages, settings, write)

    @classmethod
    def load(cls, folder: str | Path, encoder: Encoder) -> DenseIndex:
        """Read an index that :meth:`save` wrote."""
        stored = load_index(Path(folder), "dense")
        made_by, dimension, settings = _header(stored)
        if encoder.name != made_by:
            raise DataError(
                f"the index was built with the encoder {made_by!r}, this one is {encoder.name!r}; "
                "load it with the first, or build the index again with the second",
                file=str(stored.header),
                column="encoder",
            )
        stored.need(_VECTORS)
        path = stored.data / _VECTORS
        vectors = VectorIndex.read(path, settings)
        shape = (len(vectors), vectors.dimension)
        if shape != (len(_with_text(stored.passages)), dimension):
            raise DataError(
                f"{shape[0]} vectors of {shape[1]} numbers do not fit the passages; build the index "
                "again",
                file=str(path),
            )
        _check_dimension(encoder, dimension, str(stored.header))
        return cls(stored.passages, encoder, vectors, settings)


def _with_text(passages: Sequence[Passage]) -> NDArray[np.int64]:
    """Positions of the passages that have something to embed."""
    rows = [row for row, passage in enumerate(passages) if passage_text(passage).strip()]
    return np.array(rows, dtype=np.int64)


def _scaled(vectors: ArrayLike, n: int, rows: NDArray[np.int64]) -> NDArray[np.float32]:
    try:
        with np.errstate(over="ignore"):  # an infinite number is refused below
            matrix = np.asarray(vectors, dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise DataError(f"vectors must be numbers in rows of one length ({error})") from error
    if matrix.ndim != 2 or len(matrix) != n or not matrix.shape[1]:
        raise DataError(
            f"{n} passages need vectors of shape ({n}, dimension), found {matrix.shape}"
        )
    matrix = matrix[rows]
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(matrix, axis=1)
    wrong = np.flatnonzero(~(np.isfinite(lengths) & (lengths > 0)))
    if len(wrong):
        raise DataError(
            "a vector must have finite numbers that are not all 0; "
            f"{len(wrong)} have not, the first is this one",
            row=int(rows[wrong[0]]),
        )
    unit: NDArray[np.float32] = matrix / lengths[:, None]
    return unit


def _check_dimension(encoder: Encoder, dimension: int, file: str | None) -> None:
    length = encode_checked(encoder, ["dimension"], "query").shape[1]
    if length != dimension:
        raise DataError(
            f"the encoder {encoder.name!r} gives vectors of {length} numbers, these have {dimension}; "
            "use the encoder that made them",
            file=file,
        )


def _header(stored: StoredIndex) -> tuple[str, int, DenseSettings]:
    encoder, dimension = (stored.settings.get(name) for name in ("encoder", "dimension"))
    try:
        settings = DenseSettings(**stored.settings["index"])
    except (KeyError, TypeError, UsageError) as error:
        raise _no_header(stored, "index", first_line(error)) from error
    if not isinstance(encoder, str):
        raise _no_header(stored, "encoder", f"must be a text, found {encoder!r:.60}")
    if type(dimension) is not int or not 1 <= dimension <= LARGEST_DIMENSION:
        raise _no_header(
            stored,
            "dimension",
            f"must be a whole number in 1..{LARGEST_DIMENSION}, found {dimension!r:.60}",
        )
    return encoder, dimension, settings


def _no_header(stored: StoredIndex, column: str, wrong: str) -> DataError:
    return DataError(
        f"not the header of a dense index: {wrong}; build the index again",
        file=str(stored.header),
        column=column,
    )
