"""What checksums of stored traces cost: bytes of a file, and CPU time of reading it with and without.

python -m benchmarks.checksums FILE reads a record of one's own (see benchmarks.scale_records).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from time import process_time

import pyarrow.parquet as pq

from suffice.trace.lazy import in_memory
from suffice.trace.parquet import write_parquet
from suffice.trace.rounds.reader import read_traces
from suffice.trace.writer import GROUP_ROWS

EXAMPLE = Path(__file__).parents[1] / "examples" / "traces" / "generated.parquet"
_LARGE = 1_000_000  # bytes


def main() -> dict[str, float]:
    return measured(EXAMPLE)


def measured(record: Path) -> dict[str, float]:
    table = pq.read_table(record)
    times = 15 if record.stat().st_size < _LARGE else 3
    with tempfile.TemporaryDirectory() as folder:
        plain, checked = Path(folder, "plain.parquet"), Path(folder, "checked.parquet")
        seconds = {plain: [0.0] * 2, checked: [0.0] * 2}
        for _ in range(times):
            begin = process_time()
            pq.write_table(table, plain, compression="zstd", row_group_size=GROUP_ROWS)
            middle = process_time()
            with checked.open("wb+") as stream:
                write_parquet(table, stream, group_rows=GROUP_ROWS)
            seconds[plain][0] += middle - begin
            seconds[checked][0] += process_time() - middle
            for file in (plain, checked):
                begin = process_time()
                traces = read_traces(file)
                in_memory(traces.table)
                seconds[file][1] += process_time() - begin
        sizes = {file: file.stat().st_size for file in seconds}
    return {
        "bytes without checksums": sizes[plain],
        "bytes with, as a ratio": sizes[checked] / sizes[plain],
        "CPU s of writing without": seconds[plain][0] / times,
        "CPU time of writing with, as a ratio": seconds[checked][0] / seconds[plain][0],
        "CPU s of reading and checking without": seconds[plain][1] / times,
        "CPU time of reading with, as a ratio": seconds[checked][1] / seconds[plain][1],
    }


if __name__ == "__main__":
    for figure, value in measured(Path(*sys.argv[1:] or [str(EXAMPLE)])).items():
        print(f"  {value:12.4g}  {figure}", flush=True)
