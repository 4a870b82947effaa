"""The base of every index over a fixed set of passages."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, first_line, plain_file
from suffice.trace.durable import replace_file
from suffice.trace.rounds.records import Passage

_SHOWN = 3


def check_ids(passages: Sequence[Passage]) -> None:
    counts = Counter(passage.id for passage in passages)
    if len(counts) < len(passages):
        repeated = [name for name, count in counts.items() if count > 1]
        shown = ", ".join(repr(name) for name in islice(repeated, 5))
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(
            f"passage ids must be unique; these occur more than once: {shown}{more}", column="id"
        )


def check_k(k: int) -> None:
    if k < 1:
        raise UsageError(f"k must be at least 1, found {k}")


def corpus_fingerprint(passages: Iterable[Passage]) -> str:
    """Return a SHA-256 of ids, titles and texts in order: equal for equal corpora, on every machine."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json.dumps([passage.id, passage.title, passage.text]).encode("ascii"))
        digest.update(b"\n")
    return digest.hexdigest()


def corpus_changes(indexed: Sequence[Passage], wanted: Sequence[Passage]) -> str:
    """Return the differences between an index's passages and others, in words, with the first ids."""
    before, now = ({p.id: (p.title, p.text) for p in held} for held in (indexed, wanted))
    groups = {
        "added": [name for name in now if name not in before],
        "removed": [name for name in before if name not in now],
        "changed": [name for name in now if name in before and now[name] != before[name]],
    }
    changes = [f"{len(names)} {what} ({_listed(names)})" for what, names in groups.items() if names]
    return ", ".join(changes) if changes else "the same passages in another order"


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def best_first(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Return the indices of the ``k`` highest scores, best first; equal scores keep their order."""
    n = len(scores)
    if k >= n:
        return np.argsort(-scores, kind="stable")
    threshold = np.partition(scores, n - k)[n - k]
    candidates = np.flatnonzero(scores >= threshold)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def scored(
    passages: Sequence[Passage], scores: NDArray[np.floating[Any]], rows: NDArray[np.intp]
) -> tuple[Passage, ...]:
    """Return the passages of some rows with their scores (n_rows,)."""
    pairs = zip(rows.tolist(), scores.tolist(), strict=True)
    return tuple(replace(passages[row], score=score) for row, score in pairs)


# --- on disk --------------------------------------------------------------------------------------
SCHEMA = 3
_FILE = "index.npz"

UNREADABLE: tuple[type[Exception], ...] = (
    # any file, and JSON
    *(OSError, EOFError, ValueError),
    # too deep, of an unknown kind, or encrypted, as flipped bits may say
    *(RecursionError, NotImplementedError, RuntimeError),
    # NumPy reads an array's header as Python source, and makes an array of the size it states
    *(SyntaxError, tokenize.TokenError, MemoryError, OverflowError, struct.error),
    *(zipfile.BadZipFile, zlib.error),
    # well-formed, but not what the reader expects
    *(TypeError, KeyError, IndexError, AttributeError, ArithmeticError),
)
"""Not among them: ``ImportError``, which :class:`suffice.errors.MissingExtra` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """Hold the content of an index file; its errors name ``file``."""

    passages: tuple[Passage, ...]
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]
    file: Path

    def error(self, message: str, column: str | None = None) -> DataError:
        return DataError(f"{message}; build the index again", file=str(self.file), column=column)


def has_index(folder: Path) -> bool:
    return os.path.exists(folder / _FILE)  # noqa: PTH110 - a name too long is no index


def prepare_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        names = sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise UsageError(
            f"an index cannot be kept in {folder} ({error.strerror or error}); name a folder that can be "
            "made and written"
        ) from error
    others = [name for name in names if not name.startswith((_FILE, f".{_FILE}"))]
    if others and _FILE not in names:
        more = ", ..." if len(others) > _SHOWN else ""
        raise UsageError(
            f"{folder} holds other files ({', '.join(others[:_SHOWN])}{more}) and no index; an index "
            "is saved to a folder of its own: name a new or empty one"
        )


def packed(arrays: Mapping[str, NDArray[Any]], **documents: Any) -> bytes:
    """Return arrays and JSON documents as the bytes of one ``.npz`` file."""
    held = {
        name: np.frombuffer(json.dumps(document).encode("ascii"), np.uint8)
        for name, document in documents.items()
    }
    content = io.BytesIO()
    np.savez(content, **held, **dict(arrays))  # type: ignore[arg-type]
    return content.getvalue()


def unpacked(path: Path, *documents: str) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Return the arrays and documents of a :func:`packed` file; raise one of :data:`UNREADABLE`."""
    with plain_file(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        if sum(part.file_size for part in file.zip.infolist()) > path.stat().st_size:
            raise ValueError("it is packed")  # an index is stored as it is
        arrays = {name: file[name] for name in file.files}
    return arrays, [json.loads(arrays.pop(name).tobytes()) for name in documents]


def save_index(
    folder: Path,
    kind: str,
    passages: tuple[Passage, ...],
    settings: Mapping[str, Any],
    arrays: Mapping[str, NDArray[Any]],
) -> None:
    """Write an index; an existing one is replaced in one step."""
    prepare_folder(folder)
    header = {"schema": SCHEMA, "kind": kind, "settings": dict(settings)}
    rows = [[passage.id, passage.title, passage.text] for passage in passages]
    replace_file(folder / _FILE, packed(arrays, header=header, passages=rows))


def load_index(folder: Path, kind: str) -> StoredIndex:
    path = folder / _FILE
    if not path.exists():
        raise DataError(f"missing: no {kind} index was saved here", file=str(path))
    try:
        arrays, (header, rows) = unpacked(path, "header", "passages")
        schema, stated, settings = (header[name] for name in ("schema", "kind", "settings"))
        passages = tuple(Passage(id=own, title=title, text=text) for own, title, text in rows)
        settings = dict(settings.items())
        newer = schema > SCHEMA
    except UNREADABLE as error:
        raise DataError(
            f"not a readable index ({first_line(error)}); build the index again", file=str(path)
        ) from error
    stored = StoredIndex(passages=passages, settings=settings, arrays=arrays, file=path)
    if newer:
        raise stored.error(f"schema {schema} is newer than {SCHEMA}; update suffice")
    if stated != kind:
        raise stored.error(f"holds an index of kind {stated!r:.60}, not {kind!r}", "kind")
    return stored
