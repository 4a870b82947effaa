"""The viewer as static files: its page and the record's data beside it, worked out and capped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """What was written: where, and how many questions in the table and with their rounds, of how many."""

    folder: Path
    rows: int
    told: int
    questions: int
    bytes: int

    def lines(self) -> Iterator[str]:
        """The same in words."""
        yield f"wrote {self.folder} ({self.bytes / 1e6:.1f} MB): {counted(self.rows, 'question')}"
        if self.rows < self.questions:
            yield f"{self.questions - self.rows:,} questions are left out of the table: it has {MOST_ROWS:,}"
        if self.told < self.rows:
            yield (
                f"{self.rows - self.told:,} questions are without their rounds: these may have "
                f"{MOST_BYTES >> 20} MB"
            )
        yield f"look at it: python -m http.server --directory {self.folder}"


def write_bundle(view: RecordView, folder: Path) -> Bundle:
    """The viewer of a record that was measured, as files in a folder that is new or empty.

    Figures are of all questions; in the table are at most :data:`MOST_ROWS`, evenly over the record.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; name a new folder for the bundle")
    with written_aside(folder) as aside:
        return replace(_written(view, aside), folder=folder)


def _written(view: RecordView, folder: Path) -> Bundle:
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
    return Bundle(folder=folder, rows=len(rows), told=told, questions=view.n_questions, bytes=size)


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
