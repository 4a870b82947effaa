"""Sentence vectors from any model of sentence-transformers."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import BackendError, UsageError, first_line
from suffice.retrieval.networks import SAFE, without_bars

_PURPOSE = "A sentence-transformers encoder"


class SentenceEncoder:
    """An :class:`suffice.contracts.Encoder` over sentence-transformers. Threads take turns.

    Queries and passages are read with the prompts the model brings for them. Many models of the Hub
    were trained with one and do not bring it (bge: "Represent this sentence for searching relevant
    passages: " before queries); give it as ``query_prompt``.

    Use :meth:`load`.
    """

    def __init__(self, model: Any, label: str, *, batch_size: int = 32) -> None:
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, found {batch_size}")
        self._model = model
        self._batch_size = batch_size
        self._dimension = int(model.get_embedding_dimension())
        self._name = f"sentence-transformers:{label}:{_identity(model)[:16]}"
        self._lock = threading.Lock()  # the tokenizer is set anew for every call

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        batch_size: int = 32,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub."""
        module = require("sentence_transformers", extra="rerank", purpose=_PURPOSE)
        label = str(name_or_path)
        try:
            with without_bars():
                model = module.SentenceTransformer(label, model_kwargs=SAFE)
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(
                f"no sentence encoder at {label!r}: {first_line(error)}; name a folder that "
                "sentence-transformers saved, or a model of the Hub"
            ) from error
        _set_prompts(model.prompts, query_prompt, passage_prompt)
        folder = Path(label)
        return cls(
            model, folder.resolve().name if folder.exists() else label, batch_size=batch_size
        )

    @property
    def name(self) -> str:
        """The model's name and the start of a SHA-256 over what was loaded.

        That is every parameter, the modules' settings, the tokenizer, prompts and greatest length. A
        folder may move without another name; other weights in it give another one.
        """
        return self._name

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self._dimension

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension).

        An empty text gets the vector of the prompt and special tokens alone.
        """
        if not texts:
            return np.empty((0, self._dimension), np.float32)
        call = self._model.encode_query if role == "query" else self._model.encode_document
        try:
            with self._lock:
                encoded = call(list(texts), batch_size=self._batch_size, show_progress_bar=False)
        except RuntimeError as error:
            raise BackendError(f"the encoder {self._name!r} failed: {first_line(error)}") from error
        vectors = np.asarray(encoded, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise BackendError(
                f"the encoder {self._name!r} gave NaN, infinite numbers or a vector of zeros"
            )
        unit: NDArray[np.float32] = vectors / lengths
        return unit


def _set_prompts(prompts: dict[str, Any], query: str | None, passage: str | None) -> None:
    """Put what is chosen where ``encode_query`` and ``encode_document`` look first."""
    if query is not None:
        prompts["query"] = query
    if passage is None:  # the empty prompt every model gets for documents hides these names
        passage = prompts.get("document") or prompts.get("passage") or prompts.get("corpus")
    if passage is not None:
        prompts["document"] = passage


def _identity(model: Any) -> str:
    """SHA-256 over what makes the vectors, as it is in memory."""
    torch = require("torch", extra="rerank", purpose=_PURPOSE)
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    words = (
        json.dumps(sorted(model.tokenizer.get_vocab().items()))
        if backend is None
        else _fixed(backend)
    )
    usage = {
        "modules": [
            (
                type(module).__name__,
                module.get_config_dict() if hasattr(module, "get_config_dict") else {},
            )
            for module in model.children()
        ],
        "prompts": dict(model.prompts),
        "length": model.max_seq_length,
        "words": hashlib.sha256(words.encode()).hexdigest(),
    }
    digest.update(json.dumps(usage, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def _fixed(tokenizer: Any) -> str:
    """A tokenizer's definition without padding and truncation, which every call sets anew."""
    definition = json.loads(tokenizer.to_str())
    return json.dumps(definition | {"padding": None, "truncation": None}, sort_keys=True)
