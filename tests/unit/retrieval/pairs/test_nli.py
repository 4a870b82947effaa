"""The entailment cross-encoder: label order, softmax, batches; random weights where the library is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.tiny_encoder import save_scorer

from suffice.errors import UsageError
from suffice.retrieval import networks as pair_networks
from suffice.retrieval.networks import NliContradiction, NliCrossEncoder

LABELS = {0: "CONTRADICTION", 1: "Entailment", 2: "neutral"}


class Fixed:
    """Logits 0, log 2 and log 5 for every pair."""

    def __init__(self, labels: dict[int, str]) -> None:
        self.config = SimpleNamespace(id2label=labels)
        self.options: dict[str, Any] = {}

    def predict(self, pairs: Sequence[tuple[str, str]], **options: Any) -> Any:
        self.options = options
        return np.log(np.tile(np.array([1, 2, 5], np.float32), (len(pairs), 1)))


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Torch and sentence-transformers, as far as they are used; models by name."""
    models: dict[str, Any] = {
        "good": Fixed(LABELS),
        "last": Fixed({0: "a", 1: "b", 2: "entailment"}),
    }

    def load(name: str, *, model_kwargs: object) -> Any:
        assert model_kwargs == {"use_safetensors": True}
        return models[name]

    modules = {
        "transformers.utils.logging": SimpleNamespace(is_progress_bar_enabled=lambda: False),
        "sentence_transformers": SimpleNamespace(CrossEncoder=load),
        "torch": SimpleNamespace(nn=SimpleNamespace(Identity=lambda: "identity")),
    }
    monkeypatch.setattr(pair_networks, "require", lambda module, **_: modules[module])
    return models


@pytest.mark.parametrize(
    "labels",
    [
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
        {0: "entailment", 1: "not_entailment"},
        {0: "entailment", 1: "neutral", 2: "entailment"},
    ],
)
def test_other_labels_are_refused(library: dict[str, Any], labels: dict[int, str]) -> None:
    library["other"] = Fixed(labels)
    with pytest.raises(
        UsageError, match=f"'other' has the labels {', '.join(labels.values())}.*three"
    ):
        NliCrossEncoder.load("other")


WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("red", "blue", "mill", "sea", "old", "who", "built", "it"),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_random_weights_through_the_real_library(tmp_path: Path) -> None:
    """Against the same network called directly; batches and label order make no difference."""
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    pytest.importorskip("sentence_transformers")
    folder = save_scorer(
        tmp_path,
        WORDS,
        seed=3,
        num_hidden_layers=2,
        intermediate_size=32,
        id2label=LABELS,
        label2id={label: i for i, label in LABELS.items()},
        initializer_range=0.4,
    )
    pairs = [
        ("red mill", "who built it"),
        ("old blue sea sea sea", "red"),
        ("mill", "old mill built it"),
        ("sea " * 40, "it"),
    ]
    found = NliCrossEncoder.load(folder).entailed(pairs)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for pair, probability in zip(pairs, found, strict=True):
        with torch.no_grad():
            logits = network(
                **tokenizer(*pair, truncation=True, max_length=32, return_tensors="pt")
            ).logits
        assert probability == pytest.approx(float(logits.softmax(-1)[0, 1]), abs=5e-5)
    assert found.max() - found.min() > 0.02
    turned = [(second, first) for first, second in pairs]
    contrary = NliContradiction.load(folder).contradictions(pairs)
    for pair, other, probability in zip(pairs, turned, contrary, strict=True):
        with torch.no_grad():
            both = [
                network(**tokenizer(*each, truncation=True, max_length=32, return_tensors="pt"))
                for each in (pair, other)
            ]
        higher = max(float(each.logits.softmax(-1)[0, 0]) for each in both)
        assert probability == pytest.approx(higher, abs=5e-5)
    one_by_one = NliCrossEncoder.load(folder, batch_size=1).entailed(pairs)
    np.testing.assert_allclose(one_by_one, found, atol=5e-5)
    # the same weights under other names for the labels
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    config["label2id"] = {"entailment": 0, "neutral": 1, "contradiction": 2}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.abs(NliCrossEncoder.load(folder).entailed(pairs) - found).max() > 1e-3
