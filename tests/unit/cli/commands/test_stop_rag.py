"""``fit stop-rag``, its replay and stored values, and ``ask`` under its policy."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'learn' is missing")

from tests.commands import run_json
from tests.stop_rag_traces import stop_rag_records

from suffice.cli.main import main
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_trace_set

QUICK = ("--features", "signals", "--min-steps", "20", "--epochs", "0.1")


@pytest.fixture
def record(tmp_path: Path) -> Path:
    records = stop_rag_records("single", 30, rounds=4, split="tune", seed=1)
    records += stop_rag_records("single", 20, rounds=4, split="eval", seed=2)
    return write_trace_set(to_trace_set(records), tmp_path / "traces.parquet")


def test_fit_then_replay(record: Path, tmp_path: Path) -> None:
    out = tmp_path / "policy"
    fitted = run_json("fit", "stop-rag", record, "--out", out, *QUICK, "--target", "mc")
    assert fitted["policy"]["kind"] == "stop-rag"
    assert fitted["policy"]["target"] == "mc"
    assert sorted(each.name for each in out.iterdir()) == ["policy.json", "policy.safetensors"]
    replayed = run_json("replay", record, "--policy", out / "policy.json", "--policy", out)
    first, second, _ = replayed["policies"]
    assert (first["name"], second["name"]) == ("stop-rag", "stop-rag#2")
    assert first["kind"] == "stop-rag"
    assert first["preset"] == "corrected"
    assert first["hash"] == second["hash"] == fitted["hash"]


def test_values_are_stored(
    record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, stored = tmp_path / "p.json", tmp_path / "stored.parquet"
    assert main(["fit", "stop-rag", str(record), "--out", str(out), *QUICK]) == 0
    capsys.readouterr()
    run_json("replay", record, "--policy", out, "--write-signals", stored)
    before, after = read_traces(record), read_traces(stored)
    assert after.n_questions == before.n_questions == 50  # tune as well
    assert set(after.signal_names) == {"q_stop", "q_cont"}
    assert main(["replay", str(stored), "--stop-when", "q_stop > 0.5"]) == 0
