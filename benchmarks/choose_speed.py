"""Seconds of ``suffice choose``, a whole process, and which share of them is reading and which learning.

``python -m benchmarks.run choose_speed``: 3,000 questions in three rounds are the recorded routes below
``SUFFICE_DATA`` where they are (else generated as the others), which hold answers and costs alone; 300 x 5
and 3,000 x 5 are generated, with passages, tokens and samples, so that every method runs. ``python -m
benchmarks.choose_speed RECORD`` prints the parts of one record, in CPU seconds: the process begun and modules
loaded, the record read, values learned from all signals (which loads torch), the rest of the choice, and
the page.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.scale_records import Record, written

ROUTES = "traces/routes_llama8b_dev.parquet"


def parts(record: str) -> dict[str, float]:
    """CPU seconds of each part of a choice, in the order in which they come; this process is spent on it."""
    from suffice.cli.commands.choose import write_choice
    from suffice.replay.choose import candidates
    from suffice.replay.choose.procedure import choose
    from suffice.trace.rounds.reader import read_traces

    learned = 0.0
    variant = candidates._variant  # noqa: SLF001 - its time is told apart

    def timed(*given: Any) -> Any:
        nonlocal learned
        begun = time.process_time()
        try:
            return variant(*given)
        finally:
            learned += time.process_time() - begun

    marks = [0.0, time.process_time()]
    traces = read_traces(record)
    marks.append(time.process_time())
    with patch.object(candidates, "_variant", timed), tempfile.TemporaryDirectory() as folder:
        choice = choose(traces)
        marks.append(time.process_time())
        write_choice(choice, Path(folder))
        marks.append(time.process_time())
    loaded, reading, choosing, page = (after - before for before, after in pairwise(marks))
    return {
        "loading": loaded,
        "reading": reading,
        "learning": learned,
        "rest": choosing - learned,
        "page": page,
    }


def main() -> dict[str, float]:
    """Wall time of the command, and shares of its CPU time, record by record."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        made = partial(written, Path(folder))
        routes = Path(os.environ.get("SUFFICE_DATA", ".")) / ROUTES
        records = {
            "3,000 x 3" if routes.exists() else "3,000 x 5, copies": routes
            if routes.exists()
            else made(Record(questions=3_000)),
            "300 x 5": made(Record(questions=300, varied=True)),
            "3,000 x 5": made(Record(questions=3_000, varied=True)),
        }
        for name, record in records.items():
            out = Path(folder) / name
            begun = time.perf_counter()
            command = [sys.executable, "-m", "suffice", "choose", str(record), "--out", str(out)]
            subprocess.run(command, check=True, capture_output=True)
            figures[f"choose, {name}: s"] = time.perf_counter() - begun
            told = [sys.executable, "-m", "benchmarks.choose_speed", str(record)]
            cpu = json.loads(subprocess.run(told, check=True, capture_output=True).stdout)
            whole = sum(cpu.values())
            figures[f"choose, {name}: CPU s"] = whole
            for part, seconds in cpu.items():
                figures[f"choose, {name}: share of {part}"] = seconds / whole
    return figures


if __name__ == "__main__":
    print(json.dumps(parts(sys.argv[1])))
