"""Any encoder can be loaded, identified, and told apart from another."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import TextEncoder, Tokenizer, Tokens

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


def test_an_encoder_without_layers_of_its_own_is_run_whole(
    make_encoder: Callable[..., Path],
) -> None:
    folder = make_encoder("Albert", embedding_size=16)
    encoder = TextEncoder.load(str(folder))
    assert encoder.depth == 0
    assert encoder.train_only(None) == 0
    assert all(each.requires_grad for each in encoder.body.parameters())
    with pytest.raises(UsageError, match="shows no layers of its own; give trained_layers=None"):
        encoder.train_only(1)


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


def test_masks_mark_question_and_document(tiny: Path) -> None:
    encoder = TextEncoder.load(str(tiny))
    one = texts(encoder)[0]
    batch = encoder.batch([one])
    assert batch.mask.sum() == len(one.ids)
    question = batch.ids[0][batch.question[0]].tolist()
    assert (
        question == encoder.tokenizer("Who founded Velor?", add_special_tokens=False)["input_ids"]
    )
    assert not (batch.question & batch.document).any()
    assert set(batch.types[0][batch.document[0]].tolist()) == {1}


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


def test_windows_where_the_encoder_sets_no_limit(make_encoder: Callable[..., Path]) -> None:
    kind, config = KINDS[3]
    encoder = TextEncoder.load(str(make_encoder(kind, **config)))
    assert encoder.limit is None
    assert encoder.window(None, "separate") == 256
    assert encoder.window(None, "joined") == 2048
