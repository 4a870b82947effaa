"""Encoders and rerankers by the names that a user types."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path

from suffice.contracts import Encoder, Reranker
from suffice.errors import UsageError
from suffice.llm.embedded import EmbeddedReranker
from suffice.llm.endpoint import EndpointEncoder
from suffice.retrieval.dense import OnnxEncoder
from suffice.retrieval.networks import CrossEncoderReranker, SentenceEncoder
from suffice.trace.rounds.records import Passage

_RERANKER_FILES = (".bin", ".gguf", ".json", ".safetensors", ".txt")


def connect_encoder(
    name: str, model: str | None = None, query_prompt: str | None = None
) -> Encoder:
    if name == "minilm":
        return OnnxEncoder.load(query_prompt=query_prompt)
    if name.startswith(("http://", "https://")):
        if model is None:
            raise UsageError(f"the embedding model of {name} is unknown; type --encoder-model M")
        return EndpointEncoder(name, model, query_prompt=query_prompt)
    return SentenceEncoder.load(name, query_prompt=query_prompt)


def connect_reranker(path: str) -> Reranker:
    """Connect the reranker of a path: a GGUF file, or a cross-encoder's folder or name."""
    if path.lower().endswith(".gguf"):
        return _OneAtATime(EmbeddedReranker(path))
    if leads_nowhere(Path(path)):
        raise UsageError(
            f"no cross-encoder at {path!r}; name a folder, a .gguf file, or a model of the Hub as "
            "OWNER/NAME"
        )
    return _OneAtATime(CrossEncoderReranker.load(path))


def leads_nowhere(place: Path) -> bool:
    """Whether a place neither exists nor is an OWNER/NAME of the Hub; else a search for it takes long."""
    return not place.exists() and (place.is_absolute() or len(place.parts) != 2)


def reranker_name(path: str) -> str:
    """Return a reranker's name for a recording, with a hash of its files."""
    place = Path(path)
    if not place.exists():
        return path
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    digest = hashlib.sha256()
    for member in files:
        if member.is_file() and member.suffix in _RERANKER_FILES:
            with member.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
            digest.update(f"{member.relative_to(place).as_posix()}:".encode() + content)
    return f"{place.resolve().name}:{digest.hexdigest()[:16]}"


class _OneAtATime:
    def __init__(self, model: Reranker) -> None:
        self._model = model
        self._lock = threading.Lock()

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        with self._lock:
            return self._model.rerank(query, passages)
