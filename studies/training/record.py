"""What a trained reranker has seen: ``training.json`` in its folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.trace.durable import replace_file

TRAINING_RECORD = "training.json"
TRAIN_IDS = "train_ids"
HELD_OUT_IDS = "held_out_ids"


def training_ids(folder: str | Path) -> frozenset[str]:
    """Ids of the questions that a trained reranker has seen; leave them out when you measure it."""
    path = Path(folder) / TRAINING_RECORD
    try:
        record = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"not the record of a training ({error!r})", file=str(path)) from error
    ids = record.get(TRAIN_IDS) if isinstance(record, dict) else None
    if not isinstance(ids, list):
        raise DataError(
            f"not the record of a training: it lacks the list {TRAIN_IDS!r}", file=str(path)
        )
    return frozenset(map(str, ids))


def trained_on(reranker: str | Path | None) -> frozenset[str]:
    """The same for whatever ``--reranker`` names; none where nothing tells."""
    if reranker is None or not (Path(reranker) / TRAINING_RECORD).is_file():
        return frozenset()
    return training_ids(reranker)


def write_training(folder: str | Path, record: Mapping[str, Any]) -> None:
    """Replace the record, whole or not at all; the folder is made where there is none."""
    text = json.dumps(dict(record), indent=1, ensure_ascii=False, allow_nan=False)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / TRAINING_RECORD, f"{text}\n".encode(errors="backslashreplace"))
