"""The viewer as static files: its page and the record's data beside it, worked out and capped."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.results.formats import counted
from suffice.trace.durable import written_aside
from suffice.view.answers import chart, compared, figures, one_question, promises
from suffice.view.app import assets, document
from suffice.view.data import RecordView
from suffice.view.selection import rows_shown

MOST_ROWS = 20_000
"""Questions in the table of a bundle."""
MOST_BYTES = 64 << 20
"""Of the rounds of its questions, of which the first are written that fit."""
_MOST_PAIRED = 12  # policies that are compared with one another
_A_FILE = 50  # questions
_MARK = '<html lang="en">'


def write_bundle(view: RecordView, folder: Path) -> list[str]:
    """Write the viewer of a measured record as files in a new or empty folder; say what was written.

    Figures are of all questions; in the table are at most :data:`MOST_ROWS`, evenly over the record.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; name a new folder for the bundle")
    with written_aside(folder) as aside:
        rows, told, size = _written(view, aside)
    said = [f"wrote {folder} ({size / 1e6:.1f} MB): {counted(rows, 'question')}"]
    if rows < view.n_questions:
        left = view.n_questions - rows
        said.append(f"{left:,} questions are left out of the table: it has {MOST_ROWS:,}")
    if told < rows:
        most = f"these may have {MOST_BYTES >> 20} MB"
        said.append(f"{rows - told:,} questions are without their rounds: {most}")
    return [*said, f"look at it: python -m http.server --directory {folder}"]


def _written(view: RecordView, folder: Path) -> tuple[int, int, int]:
    """How many questions are in the table, how many with their rounds, and the bytes of all."""
    data = folder / "data"
    data.mkdir(parents=True)
    step = -(-view.n_questions // MOST_ROWS)
    places: NDArray[np.int64] = np.arange(0, view.n_questions, step)
    policies = list(view.columns.policies)
    rows = rows_shown(view, places, policies)
    size, told = 0, 0
    for number, start in enumerate(range(0, len(rows), _A_FILE)):
        if size > MOST_BYTES:
            break
        part = rows[start : start + _A_FILE]
        content = document({row["id"]: one_question(view, row["id"]) for row in part})
        size += len(content)
        if size > MOST_BYTES:
            break
        (data / f"rounds-{number}.json").write_bytes(content)
        told += len(part)
        for row in part:
            row["file"] = number
    names = [policy.candidate.name for policy in policies]
    files = {
        "data/questions.json": document({"policies": names, "rows": rows}),
        "data/record.json": document(_record(view, len(rows), told)),
        **{name: content for name, content in assets().items() if name != "index.html"},
    }
    page = assets()["index.html"].decode().replace(_MARK, '<html lang="en" data-bundle="">', 1)
    for name, content in {**files, "index.html": page.encode()}.items():
        (folder / name).write_bytes(content)
        size += len(content)
    return len(rows), told, size


def _record(view: RecordView, shown: int, told: int) -> dict[str, Any]:
    splits = ["*", *(name for name in view.facts()["splits"] if name)]
    records = {
        split: {
            "policies": (of_split := figures(view, split))["policies"],
            "split": of_split["split"],
            "chart": str(chart(view, split)),
        }
        for split in splits
    }
    names = [policy.candidate.name for policy in view.columns.policies][-_MOST_PAIRED:]
    asked = view.scored_split or "*"
    said = "static files: no rule can be tried, signals are not filtered by, nothing new comes"
    if shown < view.n_questions:
        said += f"; the table holds {shown:,} questions, evenly over the record"
    if told < shown:
        said += f"; rounds are here of the first {told:,} of these"
    return {
        **view.facts(),
        "records": records,
        "pairs": {
            f"{one}\n{other}\n{asked}": compared(view, one, other, "", asked)
            for one, other in permutations(names, 2)
        },
        "promises_made": promises(view),
        "full": f"fixed-{view.traces.n_rounds}",
        "bundle": said,
    }
