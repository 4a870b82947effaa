"""FAISS behind our rules: exact where promised, ties in order, damage named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError, DataError, UsageError
from suffice.retrieval.dense.vector_index import DenseSettings, VectorIndex


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(
        np.float32
    )
    return scaled


def clustered(n: int, dimension: int, seed: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(40, dimension))
    return unit(centres[rng.integers(0, 40, n)] + 0.6 * rng.normal(size=(n, dimension)))


@pytest.mark.parametrize("dimension", [3, 24])
def test_flat_equals_a_sort_of_all_products(dimension: int) -> None:
    """On a grid products are exact in float32, so scores and order must be equal bit for bit."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        n = int(rng.integers(1, 300))
        # not of length 1, which the index does not ask for: whole numbers make many exact ties
        vectors = rng.integers(-2, 3, (n, dimension)).astype(np.float32)
        index = VectorIndex.build(vectors, DenseSettings(index="flat"))
        query = rng.integers(-2, 3, dimension).astype(np.float32)
        k = int(rng.integers(1, n + 5))
        products = vectors @ query
        wanted = np.argsort(-products, kind="stable")[:k]
        scores, rows = index.search(query, k)
        assert rows.tolist() == wanted.tolist()
        assert scores.tolist() == products[wanted].tolist()


@pytest.mark.parametrize(("kind", "lowest"), [("hnsw", 0.97), ("ivf", 0.9)])
def test_approximate_indexes_find_nearly_all(kind: str, lowest: float) -> None:
    both = clustered(4060, 64, 3)
    vectors, queries = both[:4000], both[4000:]
    settings = DenseSettings(index=kind)  # type: ignore[arg-type]
    index, again = VectorIndex.build(vectors, settings), VectorIndex.build(vectors, settings)
    exact = VectorIndex.build(vectors, DenseSettings(index="flat"))
    shares = []
    for query in queries:
        scores, rows = index.search(query, 10)
        assert rows.tolist() == again.search(query, 10)[1].tolist()  # the same graph every time
        assert scores.tolist() == sorted(scores.tolist(), reverse=True)
        shares.append(len(set(rows.tolist()) & set(exact.search(query, 10)[1].tolist())) / 10)
    assert np.mean(shares) >= lowest


def test_what_automatic_means() -> None:
    settings = DenseSettings(flat_up_to=100)
    assert [settings.kind(n) for n in (0, 100, 101)] == ["flat", "flat", "hnsw"]
    assert DenseSettings(index="ivf").kind(0) == "flat"
    assert DenseSettings().kind(50_000) == "flat"
    assert [DenseSettings().lists(n) for n in (1, 100, 100_000)] == [1, 2, 1264]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_written_and_read(tmp_path: Path, kind: str) -> None:
    settings = DenseSettings(index=kind)  # type: ignore[arg-type]
    vectors = clustered(400, 16, 6)
    built = VectorIndex.build(vectors, settings)
    built.write(tmp_path / "v")
    read = VectorIndex.read(tmp_path / "v", settings)
    assert (len(read), read.dimension) == (400, 16)
    for query in vectors[:20]:
        (scores, rows), again = built.search(query, 9), read.search(query, 9)
        assert (scores.tolist(), rows.tolist()) == (again[0].tolist(), again[1].tolist())


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_vectors_that_are_no_numbers_are_not_read(tmp_path: Path, kind: str) -> None:
    settings = DenseSettings(index=kind, nlist=1)  # type: ignore[arg-type]
    vectors = clustered(60, 8, 6)
    VectorIndex.build(vectors, settings).write(tmp_path / "v")
    content = (tmp_path / "v").read_bytes()
    place = content.index(vectors[17].tobytes())
    bad = np.full(1, np.nan, np.float32).tobytes()
    (tmp_path / "v").write_bytes(content[:place] + bad + content[place + 4 :])
    with pytest.raises(DataError, match="infinite"):
        VectorIndex.read(tmp_path / "v", settings)


def test_what_is_no_index_is_named(tmp_path: Path) -> None:
    path = tmp_path / "v"
    for content in (b"", b"nothing of the kind", b"IxFI"):
        path.write_bytes(content)
        with pytest.raises(DataError, match="FAISS"):
            VectorIndex.read(path, DenseSettings())
    VectorIndex.build(clustered(60, 8, 6), DenseSettings()).write(path)
    with pytest.raises(DataError, match="'hnsw'"):
        VectorIndex.read(path, DenseSettings(index="hnsw"))
    with pytest.raises(BackendError, match="cannot write"):
        VectorIndex.build(clustered(60, 8, 6), DenseSettings()).write(tmp_path / "none" / "v")


def test_more_lists_than_vectors() -> None:
    with pytest.raises(UsageError, match="nlist"):
        VectorIndex.build(clustered(5, 8, 1), DenseSettings(index="ivf", nlist=9))


@pytest.mark.parametrize(
    "settings",
    [{"index": "tree"}, {"m": 1}, {"ef_construction": 0}, {"ef_search": 0}, {"nlist": 0},
     {"nprobe": 0}, {"threads": 0}, {"flat_up_to": -1}],
)  # fmt: skip
def test_settings_are_checked(settings: dict[str, int]) -> None:
    name = next(iter(settings))
    with pytest.raises(UsageError, match="vector index 'tree'" if name == "index" else name):
        DenseSettings(**settings)  # type: ignore[arg-type]
