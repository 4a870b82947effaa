"""Models by the names that a user types."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suffice.errors import UsageError
from suffice.loops import connecting as models
from suffice.loops.connecting import connect_encoder, connect_reranker, reranker_name
from suffice.trace.rounds.records import Passage

pytest.importorskip("bm25s")
pytest.importorskip("sklearn")


def test_models_are_told_by_what_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, object]] = []
    told: list[object] = []

    class Fake:
        def __init__(self, kind: str) -> None:
            self._kind = kind

        def load(self, *given: object, **options: object) -> str:
            asked.append((self._kind, given))
            told.append(next(iter(options.values()), None))
            return self._kind

        __call__ = load

    monkeypatch.setattr(models, "OnnxEncoder", Fake("onnx"))
    monkeypatch.setattr(models, "SentenceEncoder", Fake("sentence"))
    monkeypatch.setattr(models, "EndpointEncoder", Fake("endpoint"))
    monkeypatch.setattr(models, "EmbeddedReranker", Fake("embedded"))
    monkeypatch.setattr(models, "CrossEncoderReranker", Fake("cross"))
    connect_encoder("minilm")
    connect_encoder("some/model")
    connect_encoder("http://localhost:1/v1", "embedder")
    for name in ("minilm", "some/model", "http://localhost:1/v1"):
        connect_encoder(name, "embedder", "query: ")
    assert told == [None, None, None, "query: ", "query: ", "query: "]
    del asked[3:]
    connect_reranker("owner/name")
    connect_reranker("model.GGUF")
    assert asked == [
        ("onnx", ()),
        ("sentence", ("some/model",)),
        ("endpoint", ("http://localhost:1/v1", "embedder")),
        ("cross", ("owner/name",)),
        ("embedded", ("model.GGUF",)),
    ]
    with pytest.raises(UsageError, match="--encoder-model M"):
        connect_encoder("https://localhost/v1")


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
        list(pool.map(lambda _: reranker.rerank("Where?", [Passage(id="a")]), range(8)))
    assert most == [1] * 8
