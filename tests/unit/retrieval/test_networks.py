"""Networks that read two texts: raw scores, label order, softmax, batches; the real library where it is."""

from __future__ import annotations

import json
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
from suffice.retrieval.networks import CrossEncoderReranker, NliContradiction, NliCrossEncoder
from suffice.trace.rounds.records import Passage

PASSAGES = [
    Passage(id="a", title="Mill", text="one two"),
    Passage(id="b", text="one two three four"),
    Passage(id="c", title="only a title", score=2.0),
    Passage(id="d", text="one two"),
]


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
def library(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Torch and sentence-transformers, as far as they are used; models by name."""
    models = {"three": SimpleNamespace(num_labels=3)}

    def load(name: str, *, model_kwargs: object) -> Any:
        assert model_kwargs == {"use_safetensors": True}
        if name not in models:
            raise OSError("no such model\nmore")
        return models[name]

    modules = {
        "torch": SimpleNamespace(nn=SimpleNamespace(Identity=lambda: "identity")),
        "sentence_transformers": SimpleNamespace(CrossEncoder=load),
        "transformers.utils.logging": SimpleNamespace(is_progress_bar_enabled=lambda: False),
    }
    monkeypatch.setattr(pair_networks, "require", lambda name, **_: modules[name])
    return models


@pytest.mark.usefixtures("library")
def test_passages_come_back_best_first_with_raw_scores() -> None:
    model = Words()
    reranker = CrossEncoderReranker(model)
    assert isinstance(reranker, Reranker)
    found = reranker.rerank("which?", PASSAGES)
    assert [(each.id, each.rerank_score) for each in found] == [
        *(("b", 1.0), ("a", 0.0), ("c", 0.0), ("d", -1.0))
    ]
    assert (found[2].title, found[2].score) == ("only a title", 2.0)
    ((pairs, options),) = model.asked
    assert pairs[0] == ("which?", "Mill one two")
    assert options == {"activation_fn": "identity", "show_progress_bar": False}


@pytest.mark.usefixtures("library")
def test_a_failing_network_is_a_backend_error() -> None:
    with pytest.raises(BackendError, match="encoder"):
        CrossEncoderReranker(Words("out of memory")).rerank("q", PASSAGES)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize(("name", "message"), [("missing", "'missing'"), ("three", "'three'")])
def test_what_is_no_reranker_is_refused(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CrossEncoderReranker.load(name)


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
    reranker = CrossEncoderReranker.load(folder)
    for (each,) in (reranker.rerank("mill?", [passage]) for passage in PASSAGES):
        assert each.rerank_score == pytest.approx(found[each.id].rerank_score, abs=1e-4)


# --- entailment ---
LABELS = {0: "CONTRADICTION", 1: "Entailment", 2: "neutral"}


@pytest.mark.parametrize(
    "labels",
    [
        {0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"},
        {0: "entailment", 1: "not_entailment"},
        {0: "entailment", 1: "neutral", 2: "entailment"},
    ],
)
def test_other_labels_are_refused(library: dict[str, Any], labels: dict[int, str]) -> None:
    library["other"] = SimpleNamespace(config=SimpleNamespace(id2label=labels))
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
    network_ = NliCrossEncoder.load(folder)
    one_by_one = [network_.entailed([pair])[0] for pair in pairs]
    np.testing.assert_allclose(one_by_one, found, atol=5e-5)
    # the same weights under other names for the labels
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    config["label2id"] = {"entailment": 0, "neutral": 1, "contradiction": 2}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.abs(NliCrossEncoder.load(folder).entailed(pairs) - found).max() > 1e-3
