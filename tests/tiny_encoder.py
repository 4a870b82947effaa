"""Small networks with random weights and the words they know, as folders that transformers reads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.stop_rag_traces import WORLDS, stop_rag_records

from suffice.trace.rounds.records import passage_tokens, tokenize

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a")
SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 96,
}
LONGEST_PAIR = 32


def vocabulary() -> list[str]:
    """Every word of a few generated questions."""
    words: set[str] = set()
    for world in WORLDS:
        for record in stop_rag_records(world, 6, seed=1):
            words.update(tokenize(record.question.text))
            for each in record.rounds:
                words.update(word for p in each.passages or () for word in passage_tokens(p))
    return [*SPECIAL, *sorted(words - {"a"})]


def save_tokenizer(folder: Path, words: Sequence[str], **settings: Any) -> None:
    """A tokenizer of whole words, which begin as ``SPECIAL`` does."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    tokens = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokens.normalizer = normalizers.Lowercase()
    tokens.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokens.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    PreTrainedTokenizerFast(
        tokenizer_object=tokens,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        **settings,
    ).save_pretrained(folder)


def make_network(
    words: Sequence[str], kind: str = "Bert", *, head: str = "Model", seed: int = 0, **config: Any
) -> Any:
    """A network of transformers with weights that follow from the seed alone."""
    import torch
    import transformers

    given = {"vocab_size": len(words), "pad_token_id": 0, **SMALL, **config}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        built = getattr(transformers, f"{kind}Config")(**given)
        return getattr(transformers, f"{kind}{head}")(built).eval()


def save_encoder(folder: Path, kind: str = "Bert", *, seed: int = 0, **config: Any) -> None:
    words = vocabulary()
    save_tokenizer(folder, words)
    make_network(words, kind, seed=seed, **config).save_pretrained(folder)


def save_scorer(folder: Path, words: Sequence[str], *, seed: int = 0, **config: Any) -> Path:
    """A BERT of small layers that scores pairs of at most 32 tokens."""
    save_tokenizer(folder, words, model_max_length=LONGEST_PAIR)
    scorer = make_network(
        words,
        head="ForSequenceClassification",
        seed=seed,
        max_position_embeddings=LONGEST_PAIR,
        **config,
    )
    scorer.save_pretrained(folder)
    return folder
