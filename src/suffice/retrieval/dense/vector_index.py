"""Nearest unit vectors by inner product, through FAISS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import BackendError, DataError, UsageError

DenseKind = Literal["auto", "flat", "hnsw", "ivf"]
_KINDS: tuple[DenseKind, ...] = get_args(DenseKind)
_TRAINING_VECTORS = 39
"""Vectors a list of an inverted file should have; FAISS asks for as many to place its centre."""
_CHUNK = 16384
_MOST = 2**31 - 1
LARGEST_DIMENSION = 2**20
"""Numbers in a vector at most; far more than any encoder gives."""
_LIMITS = {
    "flat_up_to": (0, _MOST),
    "m": (2, 4096),
    "ef_construction": (1, 1_000_000),
    "ef_search": (1, 1_000_000),
    "nlist": (1, _MOST),
    "nprobe": (1, _MOST),
    "threads": (1, 1024),
}
"""Whole numbers from and to; above them FAISS overflows or runs out of memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSettings:
    """How vectors are searched."""

    index: DenseKind = "auto"
    flat_up_to: int = 50_000
    m: int = 32
    ef_construction: int = 200
    ef_search: int = 64
    nlist: int | None = None
    nprobe: int = 16
    threads: int = 1

    def __post_init__(self) -> None:
        if self.index not in _KINDS:
            raise UsageError(f"no vector index {self.index!r}; allowed: {', '.join(_KINDS)}")
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if value is None and name == "nlist":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise UsageError(
                    f"{name} must be a whole number from {low} to {high}, found {value!r:.60}"
                )

    def kind(self, n_vectors: int) -> Literal["flat", "hnsw", "ivf"]:
        """What ``index`` means for this many vectors; none at all are always ``flat``."""
        if n_vectors == 0:
            return "flat"
        if self.index == "auto":
            return "flat" if n_vectors <= self.flat_up_to else "hnsw"
        return self.index

    def lists(self, n_vectors: int) -> int:
        """The lists of an inverted file over this many vectors."""
        if self.nlist is not None:
            return self.nlist
        return max(1, min(int(4 * n_vectors**0.5), n_vectors // _TRAINING_VECTORS))


class VectorIndex:
    """Unit vectors in a FAISS index, which holds their only copy. Searching is safe in several threads.

    Use :meth:`build` or :meth:`read`.
    """

    def __init__(self, engine: Any, settings: DenseSettings) -> None:
        self._engine = engine
        self._exact = settings.kind(int(engine.ntotal)) == "flat"
        self._threads = settings.threads
        self._faiss = _faiss()

    @classmethod
    def build(cls, vectors: NDArray[np.float32], settings: DenseSettings) -> VectorIndex:
        """Index unit vectors (n, dimension)."""
        faiss = _faiss()
        n, dimension = vectors.shape
        kind = settings.kind(n)
        if kind == "ivf" and settings.lists(n) > n:
            raise UsageError(
                f"nlist is {settings.nlist}, but there are only {n} passages with text"
            )
        engine = _empty(faiss, dimension, settings, n)
        with _threads(faiss, settings.threads):
            if kind == "ivf":
                engine.train(vectors)
            engine.add(vectors)
        return cls(engine, settings)

    def __len__(self) -> int:
        return int(self._engine.ntotal)

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return int(self._engine.d)

    def search(
        self, query: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Inner products and rows of the ``k`` nearest to ``query`` (dimension,), best first.

        Equal scores come in order of rows. Fewer than ``k`` when there are fewer, or when an
        approximate index finds fewer.
        """
        n = len(self)
        if n == 0:
            return np.empty(0, np.float32), np.empty(0, np.int64)
        wanted = min(k, n)
        fetched = min(wanted + 1, n) if self._exact else wanted
        while True:
            with _threads(self._faiss, self._threads):
                scores, rows = self._engine.search(query[None, :], fetched)
            # FAISS takes any of several equal scores; all must be seen to keep the first of them
            if not self._exact or fetched == n or scores[0, -1] < scores[0, wanted - 1]:
                break
            fetched = min(2 * fetched, n)
        scores, rows = scores[0], rows[0]
        if rows[-1] < 0:  # an approximate index found fewer
            scores, rows = scores[rows >= 0], rows[rows >= 0]
        order = np.lexsort((rows, -scores))[:wanted]
        return scores[order], rows[order]

    def write(self, path: Path) -> None:
        """Write a FAISS file."""
        try:
            _faiss().write_index(self._engine, str(path))
        except RuntimeError as error:
            raise BackendError(
                f"cannot write {path}: {_reason(error)}; make room and save the index again"
            ) from error

    @classmethod
    def read(cls, path: Path, settings: DenseSettings) -> VectorIndex:
        """Read what :meth:`write` wrote."""
        faiss = _faiss()
        try:
            engine = faiss.read_index(str(path))
        except RuntimeError as error:
            raise DataError(
                f"not a readable FAISS index ({_reason(error)}); build the index again",
                file=str(path),
            ) from error
        kind = settings.kind(int(engine.ntotal))
        if type(engine).__name__ not in _CLASSES[kind]:
            raise DataError(
                f"holds a {type(engine).__name__} where the settings say {kind!r}; "
                "build the index again",
                file=str(path),
            )
        if not all(np.isfinite(block).all() for block in _blocks(faiss, engine)):
            raise DataError(
                "holds vectors with NaN or infinite numbers; build the index again", file=str(path)
            )
        _tune(engine, settings, kind)
        return cls(engine, settings)


_CLASSES = {
    "flat": ("IndexFlatIP", "IndexFlat"),
    "hnsw": ("IndexHNSWFlat",),
    "ivf": ("IndexIVFFlat",),
}


def _faiss() -> Any:
    return require("faiss", extra="dense", purpose="Dense retrieval")


def _empty(faiss: Any, dimension: int, settings: DenseSettings, n: int) -> Any:
    kind = settings.kind(n)
    if kind == "flat":
        return faiss.IndexFlatIP(dimension)
    if kind == "hnsw":
        engine = faiss.IndexHNSWFlat(dimension, settings.m, faiss.METRIC_INNER_PRODUCT)
        engine.hnsw.efConstruction = settings.ef_construction
    else:
        centres = faiss.IndexFlatIP(dimension)
        engine = faiss.IndexIVFFlat(
            centres, dimension, settings.lists(n), faiss.METRIC_INNER_PRODUCT
        )
        engine.cp.min_points_per_centroid = 1  # below, FAISS writes a warning to stderr
    _tune(engine, settings, kind)
    return engine


def _tune(engine: Any, settings: DenseSettings, kind: str) -> None:
    if kind == "hnsw":
        engine.hnsw.efSearch = settings.ef_search
    elif kind == "ivf":
        engine.nprobe = min(settings.nprobe, engine.nlist)


@contextmanager
def _threads(faiss: Any, n: int) -> Iterator[None]:
    """OpenMP keeps this number for the calling thread, so other threads notice nothing."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


def _blocks(faiss: Any, engine: Any) -> Iterator[NDArray[np.float32]]:
    """The stored vectors, in pieces small enough to copy."""
    if not hasattr(engine, "invlists"):
        for start in range(0, engine.ntotal, _CHUNK):
            yield engine.reconstruct_n(start, min(_CHUNK, engine.ntotal - start))
        return
    lists = engine.invlists
    for number in range(engine.nlist):
        size = lists.list_size(number) * lists.code_size
        if size:
            yield faiss.rev_swig_ptr(lists.get_codes(number), size).view(np.float32)


def _reason(error: Exception) -> str:
    """FAISS's own words without the place in its source."""
    return str(error).splitlines()[0].rpartition("Error: ")[2][:300] or type(error).__name__
