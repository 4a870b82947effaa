"""A bit that flipped in a page of a stored trace is noticed: the file is refused, or reads as it was."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from suffice.errors import SufficeError
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import write_table
from suffice.trace.rounds.reader import read_traces

EXAMPLE = Path(__file__).parents[2] / "examples/traces/generated.parquet"
_WHOLE = [pytest.param(600, marks=pytest.mark.slow), 12]


def _flipped(content: bytes, times: int) -> Iterator[bytes]:
    """The content with another bit changed each time, before the footer, which no checksum covers."""
    draw = random.Random(0)
    pages = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    for _ in range(times):
        damaged = bytearray(content)
        damaged[draw.randrange(pages)] ^= 1 << draw.randrange(8)
        yield bytes(damaged)


def _outcome(file: Path, content: bytes, clean: tuple[Any, ...]) -> str:
    file.write_bytes(content)
    try:
        return "harmless" if _read(file) == clean else "other values"
    except SufficeError:
        return "refused"


def _read(file: Path) -> tuple[Any, ...]:
    """All that a trace holds."""
    traces = read_traces(file)
    return in_memory(traces.table), in_memory(traces.closed_book), traces.origin.run


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("times", _WHOLE)
def test_flipped_bits_are_not_read_as_other_values(tmp_path: Path, times: int) -> None:
    """Of a file that was written here; one without checksums shows what the test sees."""
    file = tmp_path / "t.parquet"
    rows = pq.read_table(EXAMPLE)
    if times < 100:  # the sample is of a small file
        rows = rows.slice(0, 12)
    write_table(rows, file)
    clean = _read(file)
    counts = Counter(_outcome(file, each, clean) for each in _flipped(file.read_bytes(), times))
    assert counts["other values"] <= 0.02 * times, counts  # headers of pages have none either
    assert counts["refused"] > 0.7 * times, counts
    pq.write_table(rows, file)
    counts = Counter(_outcome(file, each, clean) for each in _flipped(file.read_bytes(), times))
    assert counts["other values"] > 0
