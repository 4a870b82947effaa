"""Networks that read two texts, small and of random weights, through the real library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tiny_encoder import save_scorer

from suffice.contracts import Reranker
from suffice.errors import UsageError
from suffice.retrieval.networks import CrossEncoderReranker, NliCrossEncoder
from suffice.testing.conformance import check_reranker
from suffice.trace.rounds.records import Passage

library = pytest.importorskip("sentence_transformers", reason="the extra 'rerank' is missing")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "three", "four", "title"),
    *("red", "blue", "mill", "sea", "old", "who", "built", "it"),
]
PASSAGES = [
    Passage(id="a", title="Mill", text="one two"),
    Passage(id="b", text="one two three four"),
    Passage(id="c", title="only a title", score=2.0),
]


def scorer(folder: Path, **config: Any) -> Path:
    sizes = {"num_hidden_layers": 2, "intermediate_size": 32, "initializer_range": 0.4}
    if "id2label" in config:
        config["label2id"] = {label: at for at, label in config["id2label"].items()}
    return save_scorer(folder, WORDS, seed=3, **sizes, **config)


def test_a_reranker_gives_the_logits_best_first(tmp_path: Path) -> None:
    """What the library gives, taken back through the sigmoid."""
    folder = scorer(tmp_path, num_labels=1)
    pairs = [("mill?", "Mill one two"), ("mill?", " one two three four"), ("mill?", "only a title")]
    shares = library.CrossEncoder(str(folder)).predict(pairs, show_progress_bar=False)
    reranker = CrossEncoderReranker.load(folder)
    assert isinstance(reranker, Reranker)
    check_reranker(reranker, "mill?", PASSAGES)
    found = {each.id: each for each in reranker.rerank("mill?", PASSAGES)}
    assert found["c"].score == 2.0
    for name, share in zip("abc", shares, strict=True):
        assert found[name].rerank_score == pytest.approx(np.log(share / (1 - share)), abs=1e-4)
    for (each,) in (reranker.rerank("mill?", [passage]) for passage in PASSAGES):
        assert each.rerank_score == pytest.approx(found[each.id].rerank_score, abs=1e-4)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (CrossEncoderReranker, {"num_labels": 3}),
        (NliCrossEncoder, {"num_labels": 3}),
        (NliCrossEncoder, {"id2label": {0: "entailment", 1: "not_entailment"}}),
    ],
)
def test_networks_of_other_labels_are_refused(
    kind: type[CrossEncoderReranker | NliCrossEncoder], config: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="odd"):
        kind.load(scorer(tmp_path / "odd", **config))


def test_entailment_is_that_of_the_network_called_directly(tmp_path: Path) -> None:
    """Neither other pairs nor the order of labels make a difference."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    folder = scorer(tmp_path, id2label={0: "CONTRADICTION", 1: "Entailment", 2: "neutral"})
    pairs = [
        *(("red mill", "who built it"), ("old blue sea sea sea", "red")),
        *(("mill", "old mill built it"), ("sea " * 40, "it")),
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def shares(first: str, second: str) -> Any:
        tokens = tokenizer(first, second, truncation=True, max_length=32, return_tensors="pt")
        with torch.no_grad():
            return network(**tokens).logits.softmax(-1)[0].tolist()

    found = NliCrossEncoder.load(folder).entailed(pairs)
    np.testing.assert_allclose(found, [shares(*pair)[1] for pair in pairs], atol=5e-5)
    assert found.max() - found.min() > 0.02
    network_ = NliCrossEncoder.load(folder)
    one_by_one = [network_.entailed([pair])[0] for pair in pairs]
    np.testing.assert_allclose(one_by_one, found, atol=5e-5)
    # the same weights under other names for the labels
    config = json.loads((folder / "config.json").read_text())
    config["id2label"] = {"0": "entailment", "1": "neutral", "2": "contradiction"}
    config["label2id"] = {"entailment": 0, "neutral": 1, "contradiction": 2}
    (folder / "config.json").write_text(json.dumps(config))
    assert np.abs(NliCrossEncoder.load(folder).entailed(pairs) - found).max() > 1e-3
