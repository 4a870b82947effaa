"""The interaction head against a slow twin on a tiny network, saving, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from studies.training.interaction import (
    InteractionModel,
    trained_on,
    trained_reranker,
    training_ids,
    write_training,
)
from tests.tiny_encoder import make_network, save_tokenizer

from suffice.errors import DataError, UsageError
from suffice.testing.conformance import check_reranker
from suffice.trace.rounds.records import Passage

pytest.importorskip("transformers", reason="the extra 'rerank' is missing")

PAIRS = [
    ("mill one?", "title mill two"),
    ("mill one?", "three four three four three"),
    ("four", ""),
    ("", "one"),
]


def write_bert(folder: Path, *, types: int = 2, marks: bool = True) -> Path:
    """An encoder with random weights and ten words."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "mill", "one", "two", "three", "four", "title"]
    save_tokenizer(folder, words, types=marks)
    network = make_network(
        words,
        num_hidden_layers=1,
        intermediate_size=16,
        max_position_embeddings=32,
        type_vocab_size=types,
        initializer_range=0.5,
    )
    network.save_pretrained(folder)
    return folder


@pytest.fixture
def model(tmp_path: Path) -> InteractionModel:
    import torch

    found = InteractionModel.start(write_bert(tmp_path / "base"), max_length=16)
    with torch.no_grad():
        found.head.weight += torch.linspace(-0.5, 0.5, 18)
    return found


def slow_score(model: InteractionModel, pair: tuple[str, str]) -> float:
    """One pair, token by token."""
    import torch

    batch: Any = model.tokenizer([pair[0]], [pair[1]], return_tensors="pt")
    with torch.no_grad():
        hidden = model.body(**batch).last_hidden_state[0].numpy().astype(float)
    ids, types = batch["input_ids"][0].tolist(), batch["token_type_ids"][0].tolist()
    sides: tuple[list[Any], list[Any]] = ([], [])
    for token, side, vector in zip(ids, types, hidden, strict=True):
        if token not in (0, 2, 3):
            sides[side].append(vector)

    def cosine(a: Any, b: Any) -> float:
        return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))

    mean, best = 0.0, 0.0
    if all(sides):
        mean = cosine(np.sum(sides[0], axis=0), np.sum(sides[1], axis=0))
    if sides[0]:
        best = float(
            np.mean([max([cosine(q, p) for p in sides[1]], default=-1.0) for q in sides[0]])
        )
    features = np.concatenate([hidden[0], [10 * mean, 10 * best]])
    weight = model.head.weight.detach().numpy()[0]
    return float(features @ weight + model.head.bias.item())


def test_it_equals_the_slow_twin(model: InteractionModel) -> None:
    wanted = [slow_score(model, pair) for pair in PAIRS]
    np.testing.assert_allclose(model.predict(PAIRS), wanted, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(model.predict(PAIRS, batch_size=1), wanted, rtol=1e-4, atol=1e-4)
    assert np.ptp(wanted) > 1
    assert model.predict([]).shape == (0,)
    doubled = model.predict(PAIRS, activation_fn=lambda scores: 2 * scores)
    np.testing.assert_allclose(doubled, 2 * model.predict(PAIRS), rtol=1e-5)


def test_a_saved_one_is_loaded_as_it_was(model: InteractionModel, tmp_path: Path) -> None:
    folder = tmp_path / "saved"
    assert not InteractionModel.is_saved_in(folder)
    model.save(folder)
    assert InteractionModel.is_saved_in(folder)
    loaded = InteractionModel.load(folder)
    assert loaded.max_length == 16
    np.testing.assert_array_equal(loaded.predict(PAIRS), model.predict(PAIRS))
    model.save(folder)
    passages = [Passage(id=str(n), text=text, score=1.0) for n, (_, text) in enumerate(PAIRS)]
    reranker = trained_reranker(str(folder))
    check_reranker(reranker, "mill one?", passages)
    found = {each.id: each.rerank_score for each in reranker.rerank("mill one?", passages)}
    assert found["0"] == pytest.approx(
        slow_score(model, ("mill one?", " title mill two")), abs=1e-3
    )


def test_no_other_library_takes_it_for_its_own(model: InteractionModel, tmp_path: Path) -> None:
    """It would load the encoder under a head of random numbers."""
    import transformers

    model.save(tmp_path)
    with pytest.raises((OSError, ValueError)):
        transformers.AutoModelForSequenceClassification.from_pretrained(str(tmp_path))


def test_damaged_folders_are_named(model: InteractionModel, tmp_path: Path) -> None:
    model.save(tmp_path)
    header = tmp_path / "suffice_reranker.json"
    good = header.read_text()
    for text in ("{}", "[1]", json.dumps(json.loads(good) | {"schema": 2})):
        header.write_text(text)
        with pytest.raises(DataError) as caught:
            InteractionModel.load(tmp_path)
        assert caught.value.file == str(header)
    header.write_text(good)
    (tmp_path / "head.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataError):
        trained_reranker(str(tmp_path))
    (tmp_path / "head.safetensors").unlink()
    with pytest.raises(DataError):
        InteractionModel.load(tmp_path)


def test_what_cannot_be_a_base(tmp_path: Path) -> None:
    base = write_bert(tmp_path / "c")
    for wrong, length in (
        (tmp_path / "none", 16),
        (write_bert(tmp_path / "a", marks=False), 16),
        (write_bert(tmp_path / "b", types=1), 16),
        (base, 7),
        (base, 33),
    ):
        with pytest.raises(UsageError):
            InteractionModel.start(wrong, max_length=length)


# --- what it has seen ------------------------------------------------------------------------
def test_what_is_written_is_read_and_stays_where_the_next_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "reranker"
    write_training(folder, {"train_ids": ["a", "\u00e9"], "held_out_ids": ["b"]})
    assert training_ids(folder) == trained_on(str(folder)) == frozenset({"a", "\u00e9"})
    with pytest.raises(ValueError, match="JSON"):
        write_training(folder, {"train_ids": ["b"], "loss": float("nan")})
    assert training_ids(folder) == frozenset({"a", "\u00e9"})
    assert [each.name for each in folder.iterdir()] == ["training.json"]
    assert trained_on(None) == trained_on("a/name-on-the-hub") == trained_on(tmp_path) == set()


@pytest.mark.parametrize("text", ["", "[]", "{broken", "{}", '{"train_ids": "abc"}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "training.json").write_text(text)
    for read in (training_ids, trained_on):
        with pytest.raises(DataError):
            read(str(tmp_path))
