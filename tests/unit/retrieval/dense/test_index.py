"""Dense retrieval over made-up vectors; the encoders have tests of their own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.contracts import Retriever
from suffice.errors import DataError
from suffice.retrieval.dense import BLOCK, DenseIndex, encode_passages
from suffice.retrieval.ranking import save_index
from suffice.testing.conformance import check_retriever
from suffice.testing.encoders import HashingEncoder
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
    """As another program may have written them."""
    save_index(tmp_path, "dense", tuple(PASSAGES), {"encoder": ENCODER.name}, arrays)
    with pytest.raises(DataError, match="build the index again"):
        DenseIndex.load(tmp_path, ENCODER)


# --- encoding ---------------------------------------------------------------------------------------
TEXTS_OF_BLOCKS = [f"text {number} of many" for number in range(2 * BLOCK + 10)]


def run(work: Path | None, encoder: Any = None) -> NDArray[np.float32]:
    return encode_passages(TEXTS_OF_BLOCKS, encoder or HashingEncoder(8), work)


def test_finished_blocks_are_not_made_again(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    first = encode_passages(
        TEXTS_OF_BLOCKS, HashingEncoder(8), tmp_path, lambda *done: seen.append(done)
    )
    assert seen == [(BLOCK, 522), (2 * BLOCK, 522), (522, 522)]
    encoder = HashingEncoder(8)
    assert (run(tmp_path, encoder) == first).all()
    assert encoder.calls == ()


def test_work_is_of_one_corpus_and_encoder(tmp_path: Path) -> None:
    DenseIndex.build(PASSAGES, ENCODER, work=tmp_path)
    for passages, other in ((PASSAGES[::-1], HashingEncoder(64)), (PASSAGES, HashingEncoder(65))):
        DenseIndex.build(passages, other, work=tmp_path)
        assert len(other.calls) == 1


@pytest.mark.parametrize("damage", ["cut", "other", "nan"])
def test_a_damaged_block_is_made_again(tmp_path: Path, damage: str) -> None:
    first = run(tmp_path)
    path = tmp_path / "vectors-0000001.npy"
    content = path.read_bytes()
    if damage == "other":
        np.save(path, np.eye(3, dtype=np.float32))
    else:
        nan = np.full(1, np.nan, np.float32).tobytes()
        path.write_bytes(content[:-9] if damage == "cut" else content[:-4] + nan)
    encoder = HashingEncoder(8)
    assert (run(tmp_path, encoder) == first).all()
    assert encoder.calls == (tuple(TEXTS_OF_BLOCKS[BLOCK : 2 * BLOCK]),)
