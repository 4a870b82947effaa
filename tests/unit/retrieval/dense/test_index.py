"""Dense retrieval over made-up vectors; the encoders have tests of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import Retriever
from suffice.errors import BackendError, DataError, UsageError
from suffice.retrieval.dense import BLOCK, DenseIndex, encode_passages
from suffice.retrieval.ranking import save_index
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage

ENCODER = HashingEncoder(64)
TEXTS = ["a red boat", "a green boat", "an old tree", "green leaves of an old green tree", "rain"]
PASSAGES = [Passage(id=str(i), title=f"T{i}", text=text) for i, text in enumerate(TEXTS)]


def ids(passages: Sequence[Passage]) -> list[str]:
    return [passage.id for passage in passages]


def test_is_a_retriever() -> None:
    index = DenseIndex.build(PASSAGES, ENCODER)
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
    assert len(index.passages) == 5
    assert ids(index.retrieve("green boat", 99)) == ["1", "0", "c"]
    assert DenseIndex.build(blank[:1], ENCODER).retrieve("boat", 3) == ()


def test_bad_calls() -> None:
    index = DenseIndex.build(PASSAGES, ENCODER)
    with pytest.raises(UsageError, match="at least 1"):
        index.retrieve("boat", 0)
    with pytest.raises(DataError, match="more than once: '0'"):
        DenseIndex.build([*PASSAGES, PASSAGES[0]], ENCODER)


def test_equal_passages_score_alike_wherever_they_stand() -> None:
    many = [Passage(id=str(n), text=f"word{n}" if n % 7 else "a red boat") for n in range(300)]
    found = DenseIndex.build(many, HashingEncoder(50)).retrieve("red boat", 43)
    assert ids(found) == [str(n) for n in range(0, 300, 7)]
    assert len({passage.score for passage in found}) == 1


def test_search_is_exact() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.standard_normal((2000, 64))
    passages = tuple(Passage(id=str(n), text="t") for n in range(2000))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = DenseIndex(passages, ENCODER, unit.astype(np.float32))
    for query in unit[:20]:
        scores, rows = index.search(query.astype(np.float32), 10)
        wanted = np.argsort(-(unit @ query), kind="stable")[:10]
        assert rows.tolist() == wanted.tolist()
        np.testing.assert_allclose(scores, (unit @ query)[wanted], atol=1e-6)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"vectors": np.eye(4, 64, dtype=np.float32)},
        {"vectors": np.eye(5, 64)},
        {"vectors": np.ones((5, 64), np.float32)},
        {"vectors": np.full((5, 64), np.nan, np.float32)},
        {"vectors": np.ones(5, np.float32)},
    ],
)
def test_vectors_that_cannot_be_are_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    save_index(tmp_path, "dense", tuple(PASSAGES), {"encoder": ENCODER.name}, arrays)
    with pytest.raises(DataError, match="build the index again"):
        DenseIndex.load(tmp_path, ENCODER)


# --- encoding ---------------------------------------------------------------------------------------
TEXTS_OF_BLOCKS = [f"text {number} of many" for number in range(2 * BLOCK + 10)]


def test_progress_is_told_by_blocks() -> None:
    seen: list[tuple[int, int]] = []
    encode_passages(TEXTS_OF_BLOCKS, HashingEncoder(8), lambda *done: seen.append(done))
    assert seen == [(BLOCK, 522), (2 * BLOCK, 522), (522, 522)]


@pytest.mark.parametrize(
    "result",
    [
        lambda n: np.ones((n - 1, 1), np.float32),
        lambda n: np.ones(n, np.float32),
        lambda n: np.ones((n, 0), np.float32),
        lambda n: np.ones((n, 4), np.float32),
        lambda n: np.full((n, 4), np.nan, np.float32),
        lambda n: np.eye(n, n % 250 + 300, dtype=np.float32),
    ],
)
def test_what_are_no_unit_vectors_is_refused(result: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HashingEncoder, "encode", lambda _, texts, **__: result(len(texts)))
    with pytest.raises(BackendError):
        encode_passages(TEXTS_OF_BLOCKS, HashingEncoder(8))
