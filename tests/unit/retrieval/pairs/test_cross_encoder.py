"""The cross-encoder: raw scores, best first; the real library only where it is installed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.tiny_encoder import save_scorer

from suffice.contracts import Reranker
from suffice.errors import BackendError, UsageError
from suffice.retrieval import networks as pair_networks
from suffice.retrieval.networks import CrossEncoderReranker
from suffice.trace.rounds.records import Passage

PASSAGES = [
    Passage(id="a", title="Mill", text="one two"),
    Passage(id="b", text="one two three four"),
    Passage(id="c", title="only a title", score=2.0),
    Passage(id="d", text="one two"),
]


def identity() -> str:
    return "identity"


class Words:
    """Scores a pair by the words of its passage, minus three."""

    num_labels = 1

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.asked: list[tuple[Sequence[tuple[str, str]], dict[str, Any]]] = []

    def predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        if self.fails:
            raise RuntimeError(f"{self.fails}\nand a long story")
        self.asked.append((pairs, options))
        return np.array([len(text.split()) - 3 for _, text in pairs], np.float32)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch and sentence-transformers, as far as they are used."""

    def load(name: str, *, model_kwargs: object) -> SimpleNamespace:
        assert model_kwargs == {"use_safetensors": True}
        if name == "missing":
            raise OSError("no such model\nmore")
        return SimpleNamespace(num_labels=3 if name == "three" else 1)

    torch = SimpleNamespace(nn=SimpleNamespace(Identity=identity))
    modules = {
        "torch": torch,
        "sentence_transformers": SimpleNamespace(CrossEncoder=load),
        "transformers.utils.logging": SimpleNamespace(is_progress_bar_enabled=lambda: False),
    }
    monkeypatch.setattr(pair_networks, "require", lambda name, **_: modules[name])


@pytest.mark.usefixtures("library")
def test_passages_come_back_best_first_with_raw_scores() -> None:
    model = Words()
    reranker = CrossEncoderReranker(model, batch_size=2)
    assert isinstance(reranker, Reranker)
    found = reranker.rerank("which?", PASSAGES)
    assert [(each.id, each.rerank_score) for each in found] == [
        *(("b", 1.0), ("a", 0.0), ("c", 0.0), ("d", -1.0)),
    ]
    assert (found[2].title, found[2].score) == ("only a title", 2.0)
    ((pairs, options),) = model.asked
    assert pairs[0] == ("which?", "Mill one two")
    assert options == {
        "batch_size": 2,
        "activation_fn": "identity",
        "show_progress_bar": False,
    }


@pytest.mark.usefixtures("library")
def test_a_failing_network_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="encoder"):
        CrossEncoderReranker(Words("out of memory")).rerank("q", PASSAGES)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(
    ("name", "message"),
    [("missing", "'missing'"), ("three", "'three'")],
)
def test_what_is_no_reranker_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CrossEncoderReranker.load(name)
    with pytest.raises(UsageError, match="batch_size"):
        CrossEncoderReranker.load("fine", batch_size=0)


def test_an_untrained_network_saved_to_a_folder(tmp_path: Path) -> None:
    """Its scores are the logits: what the library gives, taken back through the sigmoid."""
    library = pytest.importorskip("sentence_transformers", reason="the extra 'rerank' is missing")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "mill", "one", "two", "three", "four", "title"]
    folder = save_scorer(
        tmp_path,
        words,
        num_hidden_layers=1,
        intermediate_size=16,
        num_labels=1,
        initializer_range=0.5,
    )
    pairs = [("mill?", "Mill one two"), ("mill?", " one two three four")]
    shares = library.CrossEncoder(str(folder)).predict(pairs, show_progress_bar=False)
    found = {each.id: each for each in CrossEncoderReranker.load(folder).rerank("mill?", PASSAGES)}
    for name, share in zip("ab", shares, strict=True):
        score = found[name].rerank_score
        assert score is not None
        assert 1 / (1 + math.exp(-score)) == pytest.approx(float(share), abs=1e-6)
    alone = CrossEncoderReranker.load(folder, batch_size=1).rerank("mill?", PASSAGES)
    for each in alone:
        assert each.rerank_score == pytest.approx(found[each.id].rerank_score, abs=1e-4)
