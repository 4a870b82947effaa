"""A cross-encoder that starts from a sentence encoder and so needs few examples to learn."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.contracts import Reranker
from suffice.errors import DataError, UsageError, first_line
from suffice.loops.models import connect_reranker
from suffice.retrieval.networks import CrossEncoderReranker, without_bars
from suffice.trace.durable import replace_file

_PURPOSE = "A cross-encoder"
HEADER = "suffice_reranker.json"
_HEAD = "head.safetensors"
_BODY = "encoder"  # apart, so that no other library takes it for a whole cross-encoder
_SCHEMA = 1
_SCALE = 10.0
"""Brings cosines to the spread of log-odds, so that the head's weights start at 1."""


class InteractionModel:
    """Reads question and passage together and compares their tokens.

    The score is linear in the first token's vector, the cosine of the mean token of the question and of the
    passage, and the mean over the question's tokens of the largest cosine with a token of the passage.
    Untrained, it is the two cosines alone: a fair ranking where the encoder was made for similarity, hence
    a start from which hundreds of questions are enough. Fulfils what
    :class:`suffice.retrieval.networks.CrossEncoderReranker` asks of a model.
    """

    num_labels = 1

    def __init__(self, tokenizer: Any, body: Any, head: Any, *, max_length: int) -> None:
        self.tokenizer = tokenizer
        self.body = body
        self.head = head
        self.max_length = max_length

    @classmethod
    def start(cls, base: str | Path, *, max_length: int) -> Self:
        """An untrained head on an encoder: a folder that transformers reads, or a name on the Hub."""
        torch = require("torch", extra="rerank", purpose=_PURPOSE)
        tokenizer, body = _encoder(base)
        size = int(body.config.hidden_size)
        most = int(getattr(body.config, "max_position_embeddings", max_length))
        if not 8 <= max_length <= most:
            raise UsageError(
                f"max_length must lie in [8, {most}] for this model, found {max_length}"
            )
        head = torch.nn.Linear(size + 2, 1)
        with torch.no_grad():
            head.weight.zero_()
            head.weight[0, size:] = 1.0
            head.bias.fill_(-_SCALE)
        return cls(tokenizer, body, head, max_length=max_length)

    @staticmethod
    def is_saved_in(folder: str | Path) -> bool:
        """Whether the folder holds what :meth:`save` wrote."""
        return (Path(folder) / HEADER).is_file()

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read what :meth:`save` wrote."""
        path = Path(folder) / HEADER
        try:
            header = json.loads(path.read_text(encoding="ascii"))
            schema, max_length = int(header["schema"]), int(header["max_length"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"not the header of a reranker ({error!r})", file=str(path)) from error
        if schema > _SCHEMA:
            raise DataError(
                f"schema {schema} is newer than {_SCHEMA}, the newest this version reads; update suffice",
                file=str(path),
            )
        model = cls.start(Path(folder) / _BODY, max_length=max_length)
        weights = require("safetensors.torch", extra="rerank", purpose=_PURPOSE)
        broken = require("safetensors", extra="rerank", purpose=_PURPOSE).SafetensorError
        path = Path(folder) / _HEAD
        try:
            model.head.load_state_dict(weights.load_file(path))
        except (OSError, RuntimeError, ValueError, broken) as error:
            raise DataError(f"not the head of this reranker ({error})", file=str(path)) from error
        return model

    def save(self, folder: str | Path) -> None:
        """Write configuration, tokenizer and weights; the header that makes it readable comes last."""
        weights = require("safetensors.torch", extra="rerank", purpose=_PURPOSE)
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / HEADER).unlink(missing_ok=True)
        self.body.save_pretrained(folder / _BODY)
        self.tokenizer.save_pretrained(folder / _BODY)
        weights.save_file(self.head.state_dict(), folder / _HEAD)
        header = {"schema": _SCHEMA, "kind": "interaction", "max_length": self.max_length}
        (folder / HEADER).write_text(json.dumps(header) + "\n", encoding="ascii")

    def logits(self, pairs: Sequence[tuple[str, str]]) -> Any:
        """Raw scores as a tensor (n_pairs,), with gradients where they are enabled."""
        torch = require("torch", extra="rerank", purpose=_PURPOSE)
        batch = self.tokenizer(
            [first for first, _ in pairs],
            [second for _, second in pairs],
            truncation="longest_first",
            max_length=self.max_length,
            padding=True,
            return_special_tokens_mask=True,
            return_tensors="pt",
        )
        word = batch.pop("special_tokens_mask") == 0  # padding counts as special
        hidden = self.body(**batch).last_hidden_state  # (pairs, tokens, size)
        second = batch["token_type_ids"] == 1
        unit = torch.nn.functional.normalize(hidden, dim=-1)
        features = torch.cat(
            [
                hidden[:, 0],
                _SCALE * _mean_cosine(torch, hidden, word & ~second, word & second),
                _SCALE * _best_cosines(torch, unit, word & ~second, word & second),
            ],
            dim=-1,
        )
        return self.head(features)[:, 0]

    def predict(
        self,
        pairs: Sequence[tuple[str, str]],
        *,
        batch_size: int = 32,
        activation_fn: Callable[[Any], Any] | None = None,
        show_progress_bar: bool = False,  # noqa: ARG002 - callers of the library's own models give it
    ) -> NDArray[np.float32]:
        """Scores (n_pairs,), each after ``activation_fn``."""
        torch = require("torch", extra="rerank", purpose=_PURPOSE)
        batches = []
        with torch.inference_mode():
            for start in range(0, len(pairs), batch_size):
                scores = self.logits(pairs[start : start + batch_size])
                batches.append(activation_fn(scores) if activation_fn else scores)
        if not batches:
            return np.zeros(0, dtype=np.float32)
        whole: NDArray[np.float32] = torch.cat(batches).numpy().astype(np.float32)
        return whole


# --- what it has seen ------------------------------------------------------------------------------
TRAINING_RECORD = "training.json"
TRAIN_IDS = "train_ids"
HELD_OUT_IDS = "held_out_ids"


def trained_on(reranker: str | Path | None) -> frozenset[str]:
    """Ids of the questions that a trained reranker has seen, to be left out; none where nothing tells."""
    path = Path(reranker or "") / TRAINING_RECORD
    if reranker is None or not path.is_file():
        return frozenset()
    try:
        return frozenset(json.loads(path.read_text("utf-8"))[TRAIN_IDS])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"not the record of a training ({error!r})", file=str(path)) from error


def write_training(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Replace the record, whole or not at all; the folder is made where there is none."""
    text = json.dumps(dict(record), indent=1, ensure_ascii=False, allow_nan=False)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / TRAINING_RECORD, f"{text}\n".encode(errors="backslashreplace"))


def trained_reranker(path: str) -> Reranker:
    """A reranker that :meth:`InteractionModel.save` wrote, or any other that suffice knows."""
    if InteractionModel.is_saved_in(path):
        return CrossEncoderReranker(InteractionModel.load(path))
    return connect_reranker(path)


def _encoder(base: str | Path) -> tuple[Any, Any]:
    transformers = require("transformers", extra="rerank", purpose=_PURPOSE)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(base))
        with without_bars():
            body = transformers.AutoModel.from_pretrained(str(base), use_safetensors=True)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"no encoder at {str(base)!r}: {first_line(error)}; name a folder with config.json, "
            "tokenizer.json and model.safetensors, or a model of the Hub"
        ) from error
    if "token_type_ids" not in tokenizer("a", "b") or body.config.type_vocab_size < 2:
        raise UsageError(
            f"the encoder at {str(base)!r} does not mark which of two texts a token belongs to; "
            "name a BERT with two token types, such as all-MiniLM-L6-v2"
        )
    body.eval()  # without dropout: the same steps give the same weights
    return tokenizer, body


def _mean_cosine(torch: Any, hidden: Any, first: Any, second: Any) -> Any:
    """Cosine of the mean tokens, (pairs, 1); 0 where a text has no token."""
    means = [
        torch.nn.functional.normalize((hidden * mask.unsqueeze(-1)).sum(dim=1), dim=-1)
        for mask in (first, second)
    ]
    return (means[0] * means[1]).sum(dim=-1, keepdim=True)


def _best_cosines(torch: Any, unit: Any, first: Any, second: Any) -> Any:
    """Mean over the first text's tokens of the best cosine in the second, (pairs, 1)."""
    cosines = torch.matmul(unit, unit.transpose(1, 2))  # (pairs, tokens, tokens)
    cosines = cosines.masked_fill(~second.unsqueeze(1), -1.0)
    best = cosines.amax(dim=-1) * first
    return best.sum(dim=-1, keepdim=True) / first.sum(dim=-1, keepdim=True).clamp(min=1)
