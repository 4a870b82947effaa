"""What dies in the middle of a recording, a recorder or a server, costs nothing that was recorded."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from suffice.trace.durable import Shard
from suffice.trace.rounds.reader import inspect_traces

QUESTIONS = 30
# a slow scripted model behind the loop that records; N of 3, or all
SCRIPT = f"""
import sys
from pathlib import Path

from suffice.datasets.registry import load
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.testing.models import ScriptedModel
from suffice.trace.durable import Shard

shard = Shard.parse(sys.argv[2]) if len(sys.argv) > 2 else None
summary = record_examples(
    load("generated", None, limit={QUESTIONS}, seed=3),
    ScriptedModel(delay_s=0.0 if shard is None else 0.02),
    Path(sys.argv[1]),
    Recording(dataset="generated", settings=CumulativeSettings(rounds=2), shard=shard),
    lambda progress: print(progress.finished, flush=True),
)
print("done", summary.recorded, summary.before, flush=True)
"""


def start(out: Path, *shard: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(out), *shard],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def rows(out: Path) -> list[dict[str, Any]]:
    """What was recorded, but for the clock."""
    inspection = inspect_traces(out)
    assert inspection.errors == ()
    return [
        {
            name: value
            for name, value in row.items()
            if name != "time" and not name.endswith("latency_s")
        }
        for row in inspection.traces.table.to_pylist()
    ]


@pytest.mark.slow
def test_a_killed_shard_is_taken_over_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    out = tmp_path / "sharded"
    running = {shard: start(out, shard) for shard in ("1/3", "2/3", "3/3")}
    unlucky = running["2/3"]
    assert unlucky.stdout is not None
    while unlucky.stdout.readline() not in ("3\n", ""):
        pass
    unlucky.send_signal(signal.SIGKILL)
    unlucky.communicate()
    assert unlucky.returncode == -signal.SIGKILL
    before = {row["question_id"] for row in rows(out)}
    own = {name for name in before if Shard(2, 3).holds(name)}
    assert len(own) >= 3

    output, errors = start(out, "2/3").communicate(timeout=60)
    assert output.splitlines()[-1].endswith(f" {len(own)}"), errors
    for shard in ("1/3", "3/3"):
        running[shard].communicate(timeout=60)
        assert running[shard].returncode == 0
    start(tmp_path / "whole").communicate(timeout=60)
    together = rows(out)
    assert together == rows(tmp_path / "whole")
    assert len(together) == 2 * QUESTIONS
    for number in (1, 2, 3):
        held = rows(out / f"record-{number}of3.db")
        assert held
        assert all(Shard(number, 3).holds(row["question_id"]) for row in held)
