"""Files of different loops are told apart by what they state and by their budgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import DataError
from suffice.measures.seen import record_banners
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import in_words
from suffice.trace.rounds.writer import write_traces


def file(folder: Path, name: str, rounds: int = 2, first: int = 0, **run: object) -> None:
    records = [make_record(f"q{first + n}", ["Oslo"] * rounds, gold=["Oslo"]) for n in range(8)]
    write_traces(records, folder / f"{name}.parquet", run=run)


def test_what_files_state_of_their_loops(tmp_path: Path) -> None:
    file(tmp_path, "a", pipeline="react", step=1, dataset="x")
    file(tmp_path, "b", first=8, pipeline="react", step=1, dataset="y")
    assert read_traces(tmp_path).origin.loops == ()
    file(tmp_path, "c", first=16, pipeline="cumulative", step=3)
    file(tmp_path, "d", first=24)
    loops = read_traces(tmp_path).origin.loops
    said = "they differ in pipeline react (a.parquet, b.parquet), cumulative (c.parquet); step 1, 3"
    assert in_words(loops) == said
    assert said in record_banners(read_traces(tmp_path))[0]
    lazily = read_traces(tmp_path, lazily_above=0)
    assert lazily.origin.loops == loops


def test_the_same_questions_of_two_runs_are_refused_with_the_files(tmp_path: Path) -> None:
    file(tmp_path, "a", setting="one")
    file(tmp_path, "b", setting="two")
    said = r"twice.*differ in setting one \(a.parquet\), two \(b.parquet\): name one of them alone"
    with pytest.raises(DataError, match=said):
        read_traces(tmp_path)
