"""Vectors of many texts, made block by block; an interrupted run goes on where it stopped."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError, DataError, UsageError
from suffice.protocols import Encoder
from suffice.retrieval.index_folder import UNREADABLE
from suffice.trace.durable import replace_file

BLOCK = 256
"""Texts of a block: what an interrupted run loses at most."""
_UNIT = 1e-3
_HEADER = "work.json"
_SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkHeader:
    """What the vectors in a work folder are of."""

    encoder: str
    fingerprint: str
    texts: int
    block: int = BLOCK
    schema: int = _SCHEMA


def check_unit(vectors: NDArray[np.float32]) -> str:
    """What is wrong with rows that should be unit vectors; empty when nothing is."""
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
    """The encoder's unit vectors (len(texts), dimension)."""
    vectors = np.asarray(encoder.encode(texts, role=role), dtype=np.float32)
    problem = ""
    if vectors.ndim != 2 or len(vectors) != len(texts) or not vectors.shape[1]:
        problem = f"an array of shape {vectors.shape} for {len(texts)} texts"
    problem = problem or check_unit(vectors)
    if problem:
        raise BackendError(
            f"the encoder {encoder.name!r} gave {problem}; it must give a unit vector for every text"
        )
    return vectors


def encode_passages(
    texts: Sequence[str],
    encoder: Encoder,
    fingerprint: str,
    *,
    work: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.float32]:
    """Unit vectors of all texts (len(texts), dimension)."""
    if work is not None:
        header = WorkHeader(encoder=encoder.name, fingerprint=fingerprint, texts=len(texts))
        _claim(work, header)
    if not texts:
        return np.asarray(encoder.encode([], role="passage"), dtype=np.float32)
    vectors = np.empty((len(texts), 0), np.float32)
    for start in range(0, len(texts), BLOCK):
        part = texts[start : start + BLOCK]
        path = None if work is None else work / f"vectors-{start // BLOCK:07d}.npy"
        block = _block(path, part, encoder)
        if start == 0:
            vectors = np.empty((len(texts), block.shape[1]), np.float32)
        if block.shape[1] != vectors.shape[1]:
            raise BackendError(
                f"the encoder {encoder.name!r} gave vectors of {vectors.shape[1]} numbers, then of "
                f"{block.shape[1]}"
            )
        vectors[start : start + len(part)] = block
        if on_progress is not None:
            on_progress(start + len(part), len(texts))
    return vectors


def _block(path: Path | None, texts: Sequence[str], encoder: Encoder) -> NDArray[np.float32]:
    kept = None if path is None else _kept(path, len(texts))
    if kept is not None:
        return kept
    vectors = encode_checked(encoder, texts, "passage")
    if path is not None:
        content = io.BytesIO()
        np.save(content, vectors, allow_pickle=False)
        replace_file(path, content.getvalue())
    return vectors


def _kept(path: Path, n: int) -> NDArray[np.float32] | None:
    """A finished block; ``None`` when there is none that is whole."""
    try:
        vectors = np.load(path, allow_pickle=False)
    except UNREADABLE:
        return None
    whole = isinstance(vectors, np.ndarray) and vectors.dtype == np.float32 and vectors.ndim == 2
    return vectors if whole and len(vectors) == n and not check_unit(vectors) else None


def _claim(work: Path, header: WorkHeader) -> None:
    """Write the header of a new folder, or refuse one that is not of this work."""
    try:
        if work.exists() and not work.is_dir():
            raise UsageError(f"{work} is a file; finished vectors are kept in a folder")
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"finished vectors cannot be kept in {work} ({error.strerror or error}); name a place "
            "that can be written"
        ) from error
    path = work / _HEADER
    if not path.exists():
        if any(not file.name.startswith(f".{_HEADER}") for file in work.iterdir()):
            raise DataError(
                f"no {_HEADER} here, but other files; name a new or empty folder", file=str(work)
            )
        replace_file(path, (json.dumps(asdict(header), indent=2) + "\n").encode())
        return
    stored = _read(path)
    wanted = asdict(header)
    for name, what in (
        ("schema", "format"),
        ("encoder", "encoder"),
        ("fingerprint", "corpus"),
        ("texts", "number of passages"),
        ("block", "block size"),
    ):
        if stored.get(name) != wanted[name]:
            raise DataError(
                f"holds vectors of another {what}: {stored.get(name)!r}, not {wanted[name]!r}; name "
                "another folder, or delete this one to start anew",
                file=str(path),
                column=name,
            )


def _read(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"not a readable header ({error}); delete the folder to start anew", file=str(path)
        ) from error
    if not isinstance(header, dict):
        raise DataError(
            "not the header of kept vectors; delete the folder to start anew", file=str(path)
        )
    return header
