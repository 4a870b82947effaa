"""The embedded reranker on a real, small BERT cross-encoder, against torch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.tiny_encoder import make_network

from suffice.contracts import Reranker
from suffice.errors import BackendError, DataError, UsageError
from suffice.llm.embedded import EmbeddedReranker
from suffice.testing.conformance import check_reranker
from suffice.trace.rounds.records import Passage, passage_text

gguf: Any = pytest.importorskip("gguf", reason="writing a GGUF file needs the package gguf")
pytest.importorskip("xllamacpp", reason="the extra 'embedded' is not installed")

WORDS = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "mill", "one", "two", "three", "four", "title"),
    *("which", "?", "##s", "river"),
]
LENGTH, WIDTH, LAYERS = 64, 32, 2
PASSAGES = [
    Passage(id="a", title="Mill", text="one two three", score=2.0),
    Passage(id="b", text="four rivers ?"),
    Passage(id="c", title="title mills one one"),
    Passage(id="d", text=""),
    Passage(id="e", text="river river mill four"),
]
QUERY = "which mill?"


@pytest.fixture(scope="module")
def network() -> Any:
    pytest.importorskip("transformers", reason="the extra 'rerank' is missing")
    return make_network(
        WORDS,
        head="ForSequenceClassification",
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        intermediate_size=64,
        max_position_embeddings=LENGTH,
        num_labels=1,
        initializer_range=0.3,
    )


def write_gguf(network: Any, path: Path, *, ranks: bool = True) -> Path:
    """A BERT cross-encoder as llama.cpp reads it: classifier tensors and pooling type RANK."""
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name("tiny reranker")
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(network.config.intermediate_size)
    writer.add_block_count(LAYERS)
    writer.add_head_count(network.config.num_attention_heads)
    writer.add_layer_norm_eps(network.config.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.RANK if ranks else gguf.PoolingType.MEAN)
    _add_words(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, LAYERS)
    for name, tensor in network.state_dict().items():
        own = name.removeprefix("bert.").replace("pooler.dense", "cls")
        own = own.replace("classifier", "cls.output")
        if not own.startswith("cls."):
            own = names.get_name(own, try_suffixes=(".weight", ".bias"))
        writer.add_tensor(own, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_words(writer: Any) -> None:
    """WordPiece as llama.cpp keeps it: a mark before what begins a word, none before the rest."""
    marked = [
        word if word[0] == "[" else word[2:] if word[:2] == "##" else f"\u2581{word}"
        for word in WORDS
    ]
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_type_count(2)
    writer.add_token_list(marked)
    writer.add_token_types([3 if word[0] == "[" else 1 for word in WORDS])
    writer.add_token_scores([-1000.0] * len(WORDS))
    writer.add_bos_token_id(WORDS.index("[CLS]"))
    writer.add_eos_token_id(WORDS.index("[SEP]"))
    writer.add_sep_token_id(WORDS.index("[SEP]"))
    writer.add_pad_token_id(WORDS.index("[PAD]"))
    writer.add_unk_token_id(WORDS.index("[UNK]"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    writer.add_add_sep_token(False)  # else there are two separators between the texts


def word_pieces(text: str) -> list[str]:
    """Words of the small vocabulary, a plural's s split off."""
    pieces = []
    for word in re.findall(r"\w+|\?", text.lower()):
        pieces += [word] if word in WORDS else [word[:-1], "##s"]
    return pieces


def torch_scores(network: Any, query: str, texts: Sequence[str]) -> list[float]:
    """Every token of the first type, as llama.cpp gives them."""
    import torch

    scores = []
    for text in texts:
        pieces = ["[CLS]", *word_pieces(query), "[SEP]", *word_pieces(text), "[SEP]"]
        ids = torch.tensor([[WORDS.index(piece) for piece in pieces]])
        with torch.no_grad():
            scores.append(float(network(input_ids=ids).logits))
    return scores


@pytest.fixture(scope="module")
def file(network: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(network, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture(scope="module")
def reranker(file: Path) -> Iterator[EmbeddedReranker]:
    with EmbeddedReranker(file, threads=1) as opened:
        yield opened


def test_scores_are_the_networks(network: Any, reranker: EmbeddedReranker) -> None:
    assert isinstance(reranker, Reranker)
    assert reranker.name == "tiny"
    wanted = torch_scores(network, QUERY, [passage_text(each) for each in PASSAGES])
    assert max(wanted) - min(wanted) > 1
    found = reranker.rerank(QUERY, PASSAGES)
    by_id = {each.id: each.rerank_score for each in found}
    for passage, score in zip(PASSAGES, wanted, strict=True):
        # llama.cpp's GELU is the tanh form, from a table of half-precision numbers
        assert by_id[passage.id] == pytest.approx(score, abs=0.02)
    order = sorted(range(len(wanted)), key=lambda place: -wanted[place])
    assert [each.id for each in found] == [PASSAGES[place].id for place in order]
    assert next(each.score for each in found if each.id == "a") == 2.0


def test_it_conforms(reranker: EmbeddedReranker) -> None:
    check_reranker(reranker, QUERY, PASSAGES)


def test_a_long_passage_is_cut_at_its_end(network: Any, reranker: EmbeddedReranker) -> None:
    long = Passage(id="l", text="four rivers " * 60)
    found = {each.id: each.rerank_score for each in reranker.rerank(QUERY, [*PASSAGES, long])}
    alone = {each.id: each.rerank_score for each in reranker.rerank(QUERY, PASSAGES)}
    assert {name: found[name] for name in alone} == pytest.approx(alone, abs=1e-4)
    text = passage_text(long)
    while len(word_pieces(QUERY)) + len(word_pieces(text)) + 3 > LENGTH:
        text = text[: int(0.75 * len(text))]
    assert found["l"] == pytest.approx(torch_scores(network, QUERY, [text])[0], abs=0.02)


def test_a_query_that_is_too_long_is_refused(reranker: EmbeddedReranker) -> None:
    with pytest.raises(BackendError, match="the query is too long for the reranker 'tiny'"):
        reranker.rerank("mill " * 80, PASSAGES[:1])


def test_a_model_that_ranks_nothing_is_refused(network: Any, file: Path, tmp_path: Path) -> None:
    other = write_gguf(network, tmp_path / "mean.gguf", ranks=False)
    with pytest.raises(DataError, match="not a reranker"):
        EmbeddedReranker(other)
    with pytest.raises(UsageError, match="no model file"):
        EmbeddedReranker(tmp_path / "none.gguf")
    with pytest.raises(UsageError, match="threads must be at least 1"):
        EmbeddedReranker(file, threads=0)
