"""Cross-encoders of sentence-transformers: rerankers and entailment models."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require, without_bars
from suffice.errors import BackendError, UsageError, first_line
from suffice.trace.rounds.records import Passage, best_reranked, passage_text

SAFE = {"use_safetensors": True}
"""What a loader of transformers is told: weights in a pickle, which may run code, are not read."""


@contextmanager
def _loading(what: str, name: str) -> Iterator[Any]:
    """Prepare the library to load a saved folder, or a model by its name on the Hub."""
    module = require("sentence_transformers", extra="rerank", purpose=f"The {what}")
    logging = require("transformers.utils.logging", extra="rerank", purpose="A cross-encoder")
    try:
        with without_bars(logging):
            yield module
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"no {what} at {name!r}: {first_line(error)}; name a folder that sentence-transformers saved, or "
            "a model of the Hub"
        ) from error


class _PairNetwork:
    _what: str

    def __init__(self, model: Any, *, index: int = 0) -> None:
        self._model, self._index = model, index

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub."""
        name = str(name_or_path)
        with _loading(cls._what, name) as module:
            model = module.CrossEncoder(name, model_kwargs=SAFE)
        return cls(model, index=cls._output(model, name))

    @classmethod
    def _output(cls, model: Any, source: str) -> int:
        raise NotImplementedError

    def _raw(self, pairs: Sequence[tuple[str, str]]) -> Any:
        torch = require("torch", extra="rerank", purpose=f"The {self._what}")
        try:
            return self._model.predict(
                list(pairs), activation_fn=torch.nn.Identity(), show_progress_bar=False
            )
        except RuntimeError as error:
            raise BackendError(f"the {self._what} failed: {first_line(error)}") from error


class CrossEncoderReranker(_PairNetwork):
    """Rerank by a sentence-transformers cross-encoder; a :class:`suffice.contracts.Reranker`.

    Scores are raw: the network's one output without a sigmoid, unbounded, high for relevant. A
    passage is read as its title and text. Not safe to call from several threads.

    Use :meth:`load`.
    """

    _what = "cross-encoder"

    @classmethod
    def _output(cls, model: Any, source: str) -> int:
        if model.num_labels != 1:
            raise UsageError(
                f"{source!r} gives {model.num_labels} scores a pair; a reranker gives one"
            )
        return 0

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Return the same passages, best first, each with its raw score; equal scores keep their order."""
        if not passages:
            return ()
        return best_reranked(
            passages, self._raw([(query, passage_text(passage)) for passage in passages])
        )


# --- entailment -----------------------------------------------------------------------------------
class NliCrossEncoder(_PairNetwork):
    """Compute entailment probabilities; a :class:`suffice.contracts.Entailment`.

    Not safe to call from several threads. The package brings no weights. Tests run it with random weights;
    its quality with trained ones is not measured.

    Use :meth:`load`. The place of the ``label`` differs between models.
    """

    _what = "entailment model"
    label = "entailment"

    @classmethod
    def _output(cls, model: Any, source: str) -> int:
        labels, wanted = model.config.id2label, cls.label
        matching = [int(at) for at, label in labels.items() if label.strip().lower() == wanted]
        if len(labels) != 3 or len(matching) != 1:
            raise UsageError(
                f"{source!r} has the labels {', '.join(labels.values())}; an entailment model has three, "
                f"one of them named {wanted}: set id2label in its config.json"
            )
        return matching[0]

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """Return P(conclusion follows) for every (premise, conclusion), (len(pairs),), in [0, 1]."""
        if not pairs:
            return np.empty(0, np.float64)
        logits = np.asarray(self._raw(pairs), np.float64)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares: NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
        return shares[:, self._index]


# --- sentence vectors -----------------------------------------------------------------------------
class SentenceEncoder:
    """Encode by sentence-transformers, one thread at a time; an :class:`suffice.contracts.Encoder`.

    It applies the model's own prompts for queries and passages. Many models of the Hub were trained with a
    prompt but do not bring it (bge: "Represent this sentence for searching relevant passages: " before
    queries); give it as ``query_prompt``.

    Use :meth:`load`. ``name`` ends with the start of a SHA-256 that does not depend on the folder. It covers
    every parameter, the modules' settings, the tokenizer, prompts and greatest length.
    """

    def __init__(self, model: Any, label: str) -> None:
        self._model = model
        self.dimension: int = int(model.get_embedding_dimension())
        self.name: str = f"sentence-transformers:{label}:{_identity(model)[:16]}"
        self._lock = threading.Lock()  # the tokenizer is set anew for every call

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        *,
        query_prompt: str | None = None,
        passage_prompt: str | None = None,
    ) -> Self:
        """Load a folder that sentence-transformers saved, or a model by its name on the Hub."""
        label = str(name_or_path)
        with _loading("sentence encoder", label) as module:
            model = module.SentenceTransformer(label, model_kwargs=SAFE)
        prompts = model.prompts  # where encode_query and encode_document look first
        if query_prompt is not None:
            prompts["query"] = query_prompt
        if passage_prompt is None:
            # the empty prompt that every model gets for documents hides these names
            names = ("document", "passage", "corpus")
            passage_prompt = next((prompts[name] for name in names if prompts.get(name)), None)
        if passage_prompt is not None:
            prompts["document"] = passage_prompt
        folder = Path(label)
        return cls(model, folder.resolve().name if folder.exists() else label)

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Return a unit vector for every text, (len(texts), dimension).

        An empty text gets the vector of the prompt and special tokens alone.
        """
        if not texts:
            return np.empty((0, self.dimension), np.float32)
        call = self._model.encode_query if role == "query" else self._model.encode_document
        try:
            with self._lock:
                encoded = call(list(texts), show_progress_bar=False)
        except RuntimeError as error:
            raise BackendError(f"the encoder {self.name!r} failed: {first_line(error)}") from error
        vectors = np.asarray(encoded, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise BackendError(
                f"the encoder {self.name!r} gave NaN, infinite numbers or a vector of zeros"
            )
        unit: NDArray[np.float32] = vectors / lengths
        return unit


def _identity(model: Any) -> str:
    torch = require("torch", extra="rerank", purpose="The sentence encoder")
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy())
    backend = getattr(model.tokenizer, "backend_tokenizer", None)
    if backend is None:
        words = json.dumps(sorted(model.tokenizer.get_vocab().items()))
    else:  # without padding and truncation, which every call sets anew
        definition = json.loads(backend.to_str()) | {"padding": None, "truncation": None}
        words = json.dumps(definition, sort_keys=True)
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
