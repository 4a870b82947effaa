"""Models by the names that a user types."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.loops import models
from suffice.loops.models import connect_detector, connect_reranker, reranker_name
from suffice.retrieval.contradiction import FEATURES, ContradictionHead, HeadWeights
from suffice.retrieval.dense import OnnxEncoder
from suffice.signals.samples import MarkerDetector
from suffice.testing.encoders import HashingEncoder
from suffice.trace.rounds.records import Passage

pytest.importorskip("bm25s")
pytest.importorskip("sklearn")

NAMES = ["Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel"]
PASSAGES = tuple(
    Passage(id=name, title=name, text=f"{name} stands on the river {name}a, near {other}.")
    for name, other in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)
)
QUERY = "On which river does Cadel stand?"


@pytest.mark.parametrize("path", ["nowhere", "/no/where", "./a/b/c"])
def test_a_path_that_leads_nowhere_is_refused_at_once(path: str) -> None:
    with pytest.raises(UsageError, match=f"no cross-encoder at '{path}'"):
        connect_reranker(path)


def test_a_reranker_is_named_by_what_it_is_made_of(tmp_path: Path) -> None:
    first, moved, other = (tmp_path / name for name in ("a/mine", "b/mine", "c/mine"))
    for folder, weights in ((first, b"1"), (moved, b"1"), (other, b"2")):
        (folder / "encoder").mkdir(parents=True)
        (folder / "encoder" / "model.safetensors").write_bytes(weights)
        (folder / "notes.md").write_text(folder.parent.name)
    assert reranker_name(str(first)) == reranker_name(str(moved))
    assert reranker_name(str(first)) != reranker_name(str(other))
    assert reranker_name(str(first)).startswith("mine:")
    assert reranker_name("cross-encoder/some-model") == "cross-encoder/some-model"


def test_a_reranker_is_asked_by_one_thread_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    most: list[int] = []

    class Slow:
        def rerank(self, _query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
            under_way.append(1)
            most.append(len(under_way))
            time.sleep(0.01)
            under_way.pop()
            return passages

    class Loaded:
        @staticmethod
        def load(_path: str) -> Slow:
            return Slow()

    monkeypatch.setattr(models, "CrossEncoderReranker", Loaded)
    reranker = connect_reranker("owner/name")
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: reranker.rerank(QUERY, PASSAGES), range(8)))
    assert most == [1] * 8


# --- contradiction detectors ----------------------------------------------------------------------
def test_detectors_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder = HashingEncoder(8)
    monkeypatch.setattr(OnnxEncoder, "load", lambda: encoder)
    assert isinstance(connect_detector("markers"), MarkerDetector)
    weights = HeadWeights(encoder=encoder.name, pole=np.ones(9), weights=np.ones(len(FEATURES) + 1))
    own = tmp_path / "own.safetensors"
    weights.write(own)
    found = connect_detector(str(own))
    assert isinstance(found, ContradictionHead)
    asked = [("open port 80", "close port 80")]
    expected = ContradictionHead(weights, encoder).contradictions(asked)
    assert found.contradictions(asked).tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["marker", "/no/such/folder", "a/b/c"])
def test_an_unknown_detector(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"no contradiction detector '{name}'; name markers, learned"
    ):
        connect_detector(name)
