"""Dense retrieval over made-up vectors; the encoders have tests of their own."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.errors import BackendError, DataError, MissingExtra, UsageError
from suffice.protocols import Retriever
from suffice.retrieval.dense.index import DenseIndex
from suffice.retrieval.dense.vector_index import DenseSettings
from suffice.testing.conformance import check_retriever
from suffice.testing.encoders import HashingEncoder
from suffice.trace.rounds.records import Passage

pytest.importorskip("faiss", reason="the extra 'dense' is not installed")

ENCODER = HashingEncoder(64)
TEXTS = ["a red boat", "a green boat", "an old tree", "green leaves of an old green tree", "rain"]
PASSAGES = [Passage(id=str(i), title=f"T{i}", text=text) for i, text in enumerate(TEXTS)]


def ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_is_a_retriever(kind: str) -> None:
    index = DenseIndex.build(PASSAGES, ENCODER, DenseSettings(index=kind))  # type: ignore[arg-type]
    assert isinstance(index, Retriever)
    check_retriever(index, ["old tree", "boat", ""], size=5)
    found = index.retrieve("old tree", 2)
    assert ids(found) == ["2", "3"]
    wanted = ENCODER.encode(["old tree"])[0] @ ENCODER.encode(["T2 an old tree"])[0]
    assert found[0].score == pytest.approx(wanted, abs=1e-6)
    assert found[0].text == TEXTS[2]
    assert all(passage.score is None for passage in index.passages)


def test_passages_without_title_and_text_are_never_retrieved() -> None:
    blank = [
        Passage(id="a"),
        PASSAGES[0],
        Passage(id="b", text=" \n"),
        PASSAGES[1],
        Passage(id="c", title="x"),
    ]
    encoder = HashingEncoder(64)
    index = DenseIndex.build(blank, encoder)
    assert encoder.calls == (("T0 a red boat", "T1 a green boat", "x"),)
    assert len(index) == 5
    assert ids(index.retrieve("green boat", 99)) == ["1", "0", "c"]
    given = DenseIndex.from_vectors(
        blank, np.array([[np.nan] * 64, *ENCODER.encode(["b", "c", "d", "e"])]), ENCODER
    )
    assert len(given.retrieve("boat", 9)) == 3
    assert DenseIndex.build(blank[:1], ENCODER).retrieve("boat", 3) == ()


def test_bad_calls() -> None:
    index = DenseIndex.build(PASSAGES, ENCODER)
    with pytest.raises(UsageError, match="at least 1"):
        index.retrieve("boat", 0)
    with pytest.raises(DataError, match="vectors"):
        index.search(np.ones(7, np.float32), 1)
    with pytest.raises(DataError, match="more than once: '0'"):
        DenseIndex.build([*PASSAGES, PASSAGES[0]], ENCODER)
    with pytest.raises(DataError, match="more than once: '0'"):
        DenseIndex.from_vectors([*PASSAGES, PASSAGES[0]], np.ones((6, 64)), ENCODER)


class TestReadyVectors:
    def test_are_scaled(self) -> None:
        vectors = ENCODER.encode([f"T{i} {text}" for i, text in enumerate(TEXTS)])
        scaled = vectors * np.array([[3.0], [0.1], [1.0], [7.0], [1e-3]])
        index = DenseIndex.from_vectors(PASSAGES, scaled, ENCODER)
        built = DenseIndex.build(PASSAGES, ENCODER)
        for query in ("old tree", "rain"):
            one, other = index.retrieve(query, 5), built.retrieve(query, 5)
            assert ids(one) == ids(other)
            np.testing.assert_allclose(
                [p.score or 0 for p in one], [p.score or 0 for p in other], atol=1e-6
            )

    @pytest.mark.parametrize(
        ("vectors", "message"),
        [
            (np.ones((4, 64)), "dimension"),
            (np.ones(5), r"found \(5,\)"),
            (np.ones((5, 0)), r"found \(5, 0\)"),
            ([[1.0], [2.0, 3.0], [1.0], [1.0], [1.0]], "rows of one length"),
            ([["a"]] * 5, "must be numbers"),
            (np.ones((5, 3)), "vectors"),
            (np.diag([1.0, 1.0, 0.0, 1.0, 1.0]), "vector"),
            (np.full((5, 64), 1e300), "5 have not"),
            (np.where(np.eye(5, 64) > 0, np.nan, 1.0), "5 have not"),
        ],
    )
    def test_are_checked(self, vectors: Any, message: str) -> None:
        with pytest.raises(DataError, match=message):
            DenseIndex.from_vectors(PASSAGES, vectors, ENCODER)


class Broken(HashingEncoder):
    """As it should be for passages; NaN for queries."""

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        return super().encode(texts) * np.float32(np.nan if role == "query" else 1)


def test_a_query_vector_of_nan_is_the_encoders_fault() -> None:
    with pytest.raises(BackendError, match="'hashing-64' gave NaN"):
        DenseIndex.build(PASSAGES, Broken()).retrieve("boat", 1)


def test_finished_work_serves_another_index(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    DenseIndex.build(PASSAGES, ENCODER, work=tmp_path, on_progress=lambda *n: seen.append(n))
    assert seen == [(5, 5)]
    encoder = HashingEncoder(64)
    index = DenseIndex.build(PASSAGES, encoder, DenseSettings(index="hnsw"), work=tmp_path)
    assert encoder.calls == ()
    assert ids(index.retrieve("rain", 1)) == ["4"]
    with pytest.raises(DataError, match="another corpus"):
        DenseIndex.build(PASSAGES[::-1], ENCODER, work=tmp_path)


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_saved_and_loaded(tmp_path: Path, kind: str) -> None:
    settings = DenseSettings(index=kind)  # type: ignore[arg-type]
    passages = [*PASSAGES, Passage(id="blank")]
    index = DenseIndex.build(passages, ENCODER, settings)
    index.save(tmp_path)
    loaded = DenseIndex.load(tmp_path, HashingEncoder(64))
    assert loaded.settings == settings
    assert loaded.fingerprint == index.fingerprint
    for query in ("old tree", "boat", "rain", ""):
        assert loaded.retrieve(query, 4) == index.retrieve(query, 4)


class TestWhatIsNotLoaded:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        DenseIndex.build(PASSAGES, ENCODER).save(tmp_path)
        return tmp_path

    def test_another_encoder(self, folder: Path) -> None:
        with pytest.raises(DataError, match="'hashing-64'"):
            DenseIndex.load(folder, HashingEncoder(65))

    def test_another_dimension_under_the_same_name(self, folder: Path) -> None:
        class Disguised(HashingEncoder):
            name = "hashing-64"

        with pytest.raises(DataError, match="vectors"):
            DenseIndex.load(folder, Disguised(32))

    def test_damaged_files(self, folder: Path) -> None:
        (path,) = folder.glob("data-*/vectors.faiss")
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(DataError, match="vectors"):
            DenseIndex.load(folder, ENCODER)
        path.write_bytes(content[:-1])
        with pytest.raises(DataError, match="vectors"):
            DenseIndex.load(folder, ENCODER)
        path.unlink()
        with pytest.raises(DataError, match=r"vectors\.faiss: missing"):
            DenseIndex.load(folder, ENCODER)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"dimension": 3}, "vectors"),
            ({"index": {"index": "hnsw"}}, "'hnsw'"),
            ({"index": {"m": 0}}, "dense"),
            ({"index": None}, "dense"),
            ({"dimension": "x"}, "dense"),
            *[
                ({"dimension": value}, "dimension must be a whole number|must be a whole number in")
                for value in (float("inf"), 10**30, 10**400, 64.5, 64.0, True, 0, -64, None)
            ],
            *[
                ({"index": {name: value}}, f"{name} must be a whole number from")
                for name in ("threads", "ef_search", "ef_construction", "m", "flat_up_to", "nprobe")
                for value in (float("inf"), float("nan"), 10**30, 1.5, "4", True, None)
            ],
            *[({"encoder": value}, "must be a text") for value in (None, 7, ["hashing-64"])],
            ({"index": {"links": 3}}, "dense"),
            ({"index": [1]}, "dense"),
        ],
    )
    def test_a_changed_header(self, folder: Path, change: dict[str, Any], message: str) -> None:
        path = folder / "index.json"
        header = json.loads(path.read_text())
        header["settings"] |= change
        path.write_text(json.dumps(header))
        with pytest.raises(DataError, match=message):
            DenseIndex.load(folder, ENCODER)


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingExtra, match=r"suffice\[dense\]"):
        DenseIndex.build(PASSAGES, ENCODER)
