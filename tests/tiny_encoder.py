"""A small encoder with random weights, as a folder that transformers reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suffice.testing.stop_rag_traces import WORLDS, stop_rag_records
from suffice.trace.rounds.tokens import passage_tokens, tokenize

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a")
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 96,
}


def vocabulary() -> list[str]:
    """Every word of a few generated questions."""
    words: set[str] = set()
    for world in WORLDS:
        for record in stop_rag_records(world, 6, seed=1):
            words.update(tokenize(record.question.text))
            for each in record.rounds:
                words.update(word for p in each.passages or () for word in passage_tokens(p))
    return [*SPECIAL, *sorted(words - {"a"})]


def save_tokenizer(folder: Path, words: list[str], *, pair: bool = True) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokens.normalizer = normalizers.Lowercase()
    tokens.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    if pair:
        tokens.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    if pair:
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    kinds = ["input_ids", "token_type_ids", "attention_mask"]
    PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        model_input_names=kinds if pair else [kinds[0], kinds[2]],
        **names,
    ).save_pretrained(folder)


def save_encoder(folder: Path, kind: str = "Bert", *, seed: int = 0, **config: Any) -> None:
    import torch
    import transformers

    words = vocabulary()
    save_tokenizer(folder, words)
    given = {"vocab_size": len(words), "pad_token_id": 0, **SMALL, **config}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        built = getattr(transformers, f"{kind}Config")(**given)
        getattr(transformers, f"{kind}Model")(built).save_pretrained(folder)
