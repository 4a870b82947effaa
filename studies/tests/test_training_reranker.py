"""Training learns, repeats itself, writes what it should, and says what is wrong."""

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
from studies.training.reranker import (
    STUDY,
    RerankerSettings,
    compare_rankings,
    split_questions,
    train,
)
from tests.tiny_encoder import SPECIAL, make_network, save_tokenizer

from suffice.datasets.registry import load
from suffice.retrieval.bm25 import BM25Index
from suffice.retrieval.networks import CrossEncoderReranker
from suffice.retrieval.retrievers import HybridRetriever, RerankedRetriever
from suffice.testing.conformance import check_reranker, check_retriever
from suffice.trace.rounds.records import passage_tokens

pytest.importorskip("transformers", reason="the extra 'train' is missing")

EXAMPLES = load("generated", limit=60, seed=11)
TRAIN, HELD_OUT = split_questions(EXAMPLES, holdout=0.4, seed=1)
SHORT = RerankerSettings(steps=200, passages=4, batch_size=1, max_length=64, learning_rate=1e-3)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small encoder with random weights that knows the data set's words."""
    folder = tmp_path_factory.mktemp("base")
    known = {word for example in EXAMPLES for p in example.passages for word in passage_tokens(p)}
    words = [*SPECIAL, *sorted(known - set(SPECIAL))]
    save_tokenizer(folder, words)
    network = make_network(
        words,
        hidden_size=32,
        num_hidden_layers=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    network.save_pretrained(folder)
    return folder


def random_order_mrr() -> float:
    """Expected 1 / rank of the first gold paragraph in a random order, over the held-out questions."""
    rng = np.random.default_rng(0)
    scores = []
    for example in HELD_OUT:
        gold = np.array([p.id in example.gold.passage_ids for p in example.passages])
        ranks = [1 + int(np.argmax(rng.permutation(gold))) for _ in range(500)]
        scores.append(float(np.mean(1 / np.array(ranks))))
    return float(np.mean(scores))


@pytest.fixture(scope="module")
def trained(base: Path) -> tuple[InteractionModel, list[float]]:
    losses: list[float] = []
    model = train(TRAIN, base, SHORT, on_step=lambda _, __, loss: losses.append(loss))
    return model, losses


@pytest.mark.slow
def test_two_hundred_steps_beat_a_random_order_and_an_untrained_head(
    base: Path, trained: tuple[InteractionModel, list[float]]
) -> None:
    model, losses = trained
    assert len(losses) == 200
    assert np.mean(losses[-50:]) < 0.8 * np.mean(losses[:50])
    untrained = InteractionModel.start(base, max_length=64)
    scores = compare_rankings(
        HELD_OUT,
        {"untrained": CrossEncoderReranker(untrained), "trained": CrossEncoderReranker(model)},
    )
    mrr = {name: values["mrr"] for name, values in scores["means"].items()}
    assert mrr["trained"] > random_order_mrr() + 0.15
    assert mrr["trained"] > mrr["untrained"] + 0.05


def test_the_same_seed_gives_the_same_weights(base: Path) -> None:
    few = RerankerSettings(steps=3, passages=3, batch_size=2, max_length=32, seed=5)
    other = RerankerSettings(steps=3, passages=3, batch_size=2, max_length=32, seed=6)
    pairs = [("who?", "the one"), ("a mill?", "of the lake")]
    first, again = (train(TRAIN, base, few).predict(pairs) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert (train(TRAIN, base, other).predict(pairs) != first).any()


def test_the_command_writes_a_reranker_that_pipelines_can_use(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "reranker"
    options = ["--dataset", "generated", "--limit", "12", "--out", str(out), "--base", str(base)]
    small = ["--steps", "4", "--passages", "3", "--max-length", "32", "--seed", "7", "--json"]
    assert STUDY.main([*options, *small]) == 0
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert document["settings"]["steps"] == 4
    assert document["train_questions"] == 7
    assert document["held_out"]["questions"] == 5
    assert set(document["held_out"]["means"]) == {"bm25", "untrained", "reranked"}
    gain = document["held_out"]["gains_over_bm25"]["reranked"]["mrr"]
    means = document["held_out"]["means"]
    assert gain["estimate"] == pytest.approx(means["reranked"]["mrr"] - means["bm25"]["mrr"])
    record = json.loads((out / "training.json").read_text())
    examples = load("generated", limit=12, seed=7)
    assert sorted(record["train_ids"] + record["held_out_ids"]) == sorted(
        example.question.id for example in examples
    )
    assert training_ids(out) == frozenset(record["train_ids"])
    assert record["settings"]["seed"] == 7
    assert {"config.json", "tokenizer.json", "model.safetensors"} <= {
        p.name for p in (out / "encoder").iterdir()
    }
    reranker = trained_reranker(str(out))
    pool = {p.id: p for example in examples for p in example.passages}
    check_reranker(reranker, examples[0].question.text, examples[0].passages)
    first = HybridRetriever([BM25Index.build(pool.values())], candidates=8)
    scores = RerankedRetriever(first, reranker, candidates=8)
    check_retriever(scores, [examples[0].question.text], size=8)


def test_weights_are_never_usable_without_a_record_of_what_they_saw(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "reranker"
    write_training(out, {"train_ids": ["an old question"]})
    (out / "suffice_reranker.json").write_text("{}")
    seen: list[tuple[bool, bool, frozenset[str]]] = []

    def watched(folder: Path, record: dict[str, Any]) -> None:
        before = InteractionModel.is_saved_in(folder)
        write_training(folder, record)
        seen.append((before, InteractionModel.is_saved_in(folder), trained_on(folder)))

    monkeypatch.setattr("studies.training.reranker.write_training", watched)
    options = ["--dataset", "generated", "--limit", "12", "--out", str(out), "--base", str(base)]
    small = ["--steps", "1", "--passages", "2", "--max-length", "16", "--seed", "7"]
    assert STUDY.main([*options, *small]) == 0
    now = training_ids(out)
    assert seen == [(False, False, now), (True, True, now)]  # the second adds how it ranks
    assert len(training_ids(out)) == 7
