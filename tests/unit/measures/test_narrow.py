"""Measures that were written stand for their record, and are refused where they do not any more."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from suffice.cli.main import main
from suffice.errors import BackendError, DataError, UsageError
from suffice.measures import narrow, shards
from suffice.measures.measures import Measures
from suffice.measures.narrow import WIDE, write_measures
from suffice.signals.available import given_signals
from suffice.testing.traces import sampled_records
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    file = tmp_path / "t.parquet"
    write_traces(sampled_records(30, rounds=3, splits=("tune", "eval"), seed=5), file)
    return file


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a few questions each."""
    monkeypatch.setattr(shards, "_TOGETHER", 1)
    monkeypatch.setattr(shards.shards_of, "__defaults__", (12,))


@pytest.mark.usefixtures("small")
def test_they_hold_what_is_measured_and_nothing_wide(traces: Path, tmp_path: Path) -> None:
    whole = Measures(read_traces(traces))
    written = write_measures(read_traces(traces, lazily_above=0), tmp_path / "m")
    assert (written.questions, written.rounds) == (30, 90)
    assert written.parts > 5
    held = pq.read_schema(next((tmp_path / "m").glob("*.parquet"))).names
    assert not {*held} & {*WIDE}
    measures = Measures(read_traces(tmp_path / "m"))
    names = given_signals(whole.traces)
    assert given_signals(measures.traces) == names == written.signals
    table, again = whole.signals(names), measures.signals(names)
    for name in names:
        np.testing.assert_array_equal(table.signal(name), again.signal(name))
    for kind in ("hotpotqa", "squad"):
        np.testing.assert_array_equal(whole.scores(kind).f1, measures.scores(kind).f1)
    np.testing.assert_array_equal(whole.retrieval().recall, measures.retrieval().recall)


@pytest.mark.parametrize("command", ["replay", "search", "sweep", "diagnose"])
def test_commands_take_them_in_place_of_the_record(
    command: str, traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "replay": ["--stop-when", "overlap > 0.1", "--policy", "tasr"],
        "search": ["--signals", "answer_stable,overlap"],
        "sweep": ["--rule", "self_consistency > ?"],
        "diagnose": [],
    }[command]
    assert main(["measure", str(traces), "--out", str(tmp_path / "m")]) == 0

    def printed(path: Path) -> Any:
        assert main([command, str(path), *options, "--json"]) == 0
        said: str = capsys.readouterr().out
        return json.loads(said.replace(str(path), "RECORD"))

    capsys.readouterr()
    assert printed(tmp_path / "m") == printed(traces)


@pytest.mark.usefixtures("small")
def test_an_interrupted_run_is_gone_on_with(traces: Path, tmp_path: Path) -> None:
    record, out = read_traces(traces, lazily_above=0), tmp_path / "m"
    first = write_measures(record, out)
    kept = {file.name: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    gone = sorted(kept)[2]
    (out / gone).unlink()
    with pytest.raises(DataError, match=f"holds {first.parts - 1} of its {first.parts} parts"):
        Measures(read_traces(out))
    again = write_measures(record, out)
    assert again.kept == first.parts - 1
    there = {file.name: file.stat().st_mtime_ns for file in out.glob("*.parquet")}
    assert {name for name in kept if there[name] != kept[name]} == {gone}


def test_those_of_another_record_or_code_are_refused_with_the_command(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "m"
    write_measures(read_traces(traces), out)
    again = rf"suffice measure {traces} --out {out} --again"
    with monkeypatch.context() as patch:
        patch.setattr(narrow, "code_stamp", lambda: "0.0.1 abc")
        with pytest.raises(DataError, match=rf"measured by .*, and this is 0\.0\.1 abc; .*{again}"):
            Measures(read_traces(out))
    write_traces(
        sampled_records(30, rounds=3, splits=("tune", "eval"), seed=6),
        traces.with_name("n.parquet"),
    )
    shutil.move(traces.with_name("n.parquet"), traces)
    with pytest.raises(DataError, match=rf"has changed since it was measured; .*{again}"):
        Measures(read_traces(out))
    with pytest.raises(UsageError, match=rf"write them anew with: {again}"):
        write_measures(read_traces(traces), out)
    write_measures(read_traces(traces), out, again=True)
    traces.unlink()  # measures outlive the record
    assert Measures(read_traces(out)).scores().labelled.all()


def test_what_they_do_not_hold_is_said(traces: Path, tmp_path: Path) -> None:
    write_measures(read_traces(traces), tmp_path / "m")
    held = read_traces(tmp_path / "m")
    with pytest.raises(
        DataError, match="measures do not hold it; name the traces that they are of"
    ):
        held.table.column("samples")
    with pytest.raises(UsageError, match="holds measures already; name the traces they are of"):
        write_measures(held, tmp_path / "n")
    with pytest.raises(UsageError, match=r"holds t\.parquet, which are no measures"):
        write_measures(read_traces(traces), tmp_path)


def test_a_full_disk_keeps_what_was_written(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise BackendError("cannot write: No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(narrow, "write_table", full)
        with pytest.raises(BackendError, match="No space left"):
            write_measures(read_traces(traces), tmp_path / "m")
    assert list((tmp_path / "m").glob("*.parquet")) == []
    assert write_measures(read_traces(traces), tmp_path / "m").kept == 0
