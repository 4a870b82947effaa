"""What every index over a fixed set of passages shares."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.trace.rounds.records import Passage

_SHOWN = 3


def check_ids(passages: Sequence[Passage]) -> None:
    """Refuse passages that share an id."""
    counts = Counter(passage.id for passage in passages)
    if len(counts) < len(passages):
        repeated = [name for name, count in counts.items() if count > 1]
        shown = ", ".join(repr(name) for name in islice(repeated, 5))
        more = f" and {len(repeated) - 5} more" if len(repeated) > 5 else ""
        raise DataError(
            f"passage ids must be unique; these occur more than once: {shown}{more}", column="id"
        )


def check_k(k: int) -> None:
    """Refuse to look for fewer than one passage."""
    if k < 1:
        raise UsageError(f"k must be at least 1, found {k}")


def corpus_fingerprint(passages: Iterable[Passage]) -> str:
    """SHA-256 over ids, titles and texts in order: equal for equal corpora, on every machine."""
    digest = hashlib.sha256()
    for passage in passages:
        digest.update(json.dumps([passage.id, passage.title, passage.text]).encode("ascii"))
        digest.update(b"\n")
    return digest.hexdigest()


def corpus_changes(indexed: Sequence[Passage], wanted: Sequence[Passage]) -> str:
    """What differs between an index's passages and others, in words, with the first few ids."""
    before, now = _texts(indexed), _texts(wanted)
    groups = {
        "added": [name for name in now if name not in before],
        "removed": [name for name in before if name not in now],
        "changed": [name for name in now if name in before and now[name] != before[name]],
    }
    changes = [f"{len(names)} {what} ({_listed(names)})" for what, names in groups.items() if names]
    return ", ".join(changes) if changes else "the same passages in another order"


def _texts(passages: Sequence[Passage]) -> Mapping[str, tuple[str, str | None]]:
    return {passage.id: (passage.title, passage.text) for passage in passages}


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def best_first(scores: NDArray[np.floating[Any]], k: int) -> NDArray[np.intp]:
    """Indices of the ``k`` highest scores, best first; equal scores keep their order."""
    n = len(scores)
    if k >= n:
        return np.argsort(-scores, kind="stable")
    threshold = np.partition(scores, n - k)[n - k]
    candidates = np.flatnonzero(scores >= threshold)
    return candidates[np.argsort(-scores[candidates], kind="stable")[:k]]


def scored(
    passages: Sequence[Passage], scores: NDArray[np.floating[Any]], rows: NDArray[np.intp]
) -> tuple[Passage, ...]:
    """The passages of some rows with their scores (n_rows,)."""
    pairs = zip(rows.tolist(), scores.tolist(), strict=True)
    return tuple(replace(passages[row], score=score) for row, score in pairs)
