"""A record read in shards gives what it gives in memory, whoever measures them and whatever dies."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from tests.properties import examples
from tests.question_records import question_records

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import BackendError, DataError
from suffice.measures import shards as module
from suffice.measures.measures import Measures
from suffice.measures.shards import Workers, map_shards, shards_of
from suffice.signals.known_signals import SignalSpec
from suffice.signals.signal_table import given_signals
from suffice.testing.traces import sampled_records
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import records_to_table
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

RECORDS = sampled_records(40, rounds=3, splits=("tune", "eval"), seed=7)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files of row groups that are smaller than shards, their questions in no order."""
    for number, part in enumerate((RECORDS[::-2], RECORDS[::2])):
        pq.write_table(records_to_table(part), tmp_path / f"{number}.parquet", row_group_size=16)
    return tmp_path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FEW", 0)
    monkeypatch.setattr(module.shards_of, "__defaults__", (10,))


def lazily(path: Path) -> TraceSet:
    return read_traces(path, lazily_above=0)


def assert_alike(one: Measures, other: Measures) -> None:
    assert one.traces.question_ids == other.traces.question_ids
    for name in ("em", "f1", "acc", "labelled"):
        first, second = (getattr(measures.scores(), name) for measures in (one, other))
        np.testing.assert_array_equal(first, second)
    names = given_signals(one.traces)
    assert names == given_signals(other.traces)
    table, other_table = (measures.signals(names) for measures in (one, other))
    for name in names:
        np.testing.assert_array_equal(table.signal(name), other_table.signal(name))
    paid, other_paid = (
        measures.costs(CostModel()).at_stops(CostReads()) for measures in (one, other)
    )
    for name in paid:
        np.testing.assert_equal(paid[name], other_paid[name])


def test_shards_hold_every_question_once(folder: Path) -> None:
    traces = lazily(folder)
    shards = shards_of(traces)
    assert len(shards) > 10
    places = np.concatenate([shard.questions for shard in shards])
    assert sorted(places.tolist()) == list(range(40))
    ids = np.array(traces.question_ids)
    for shard in shards:
        assert shard.traces().question_ids == tuple(ids[shard.questions])


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(question_records())
def test_any_record_measures_alike(tmp_path: Path, records: list[QuestionRecord]) -> None:
    write_traces(records, tmp_path / "t.parquet")
    file = tmp_path / "t.parquet"
    whole, shards = (Measures(read_traces(file, lazily_above=n)) for n in (10**9, 0))
    assert_alike(whole, shards)


@pytest.mark.parametrize("metric", ["f1", "agreement"])
def test_parts_and_metrics_measure_alike(folder: Path, metric: Any) -> None:
    whole, shards = Measures(read_traces(folder)).by(metric), Measures(lazily(folder)).by(metric)
    assert_alike(whole.only_split("eval"), shards.only_split("eval"))
    assert_alike(whole, shards)
    retrieved = [measures.retrieval() for measures in (whole, shards)]
    np.testing.assert_array_equal(retrieved[0].recall, retrieved[1].recall)


def test_threads_give_the_same(folder: Path) -> None:
    with ThreadPoolExecutor(3) as executor:
        assert_alike(Measures(read_traces(folder)), Measures(lazily(folder), executor=executor))


def test_a_signal_that_cannot_travel_is_computed_here(folder: Path) -> None:
    own = SignalSpec(name="own", summary="own", compute=lambda view: float(len(view.rounds)))
    with Workers(2) as workers:
        table = Measures(lazily(folder), executor=workers).signals([own])
    assert table.signal("own")[0].tolist() == [1.0, 2.0, 3.0]


def _killed(_: TraceSet) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def _counted(traces: TraceSet) -> int:
    return traces.n_questions


@pytest.mark.slow
def test_a_worker_that_dies_is_told_and_others_begin_anew(folder: Path) -> None:
    shards = shards_of(lazily(folder))
    with Workers(2) as workers:
        with pytest.raises(BackendError, match="--workers 1"):
            list(map_shards(_killed, shards, workers))
        assert len(list(map_shards(_counted, shards, workers))) == len(shards)


# --- what is wrong with a large record -------------------------------------------------------------
def damage(file: Path, group: int, column: str) -> None:
    """Overwrite the beginning of one column's pages."""
    groups = pq.ParquetFile(file).metadata
    chunks = [groups.row_group(group).column(i) for i in range(groups.num_columns)]
    (offset,) = (c.data_page_offset for c in chunks if c.path_in_schema == column)
    content = bytearray(file.read_bytes())
    content[offset : offset + 24] = b"\xff" * 24
    file.write_bytes(content)


def test_a_damaged_shard_is_named_and_without_its_file_the_rest_is_read(folder: Path) -> None:
    damage(folder / "1.parquet", 2, "answer")
    with pytest.raises(DataError, match=r"1\.parquet.*truncated or damaged"):
        Measures(lazily(folder)).scores()
    left = read_traces(folder, lazily_above=0, skip_invalid=True)
    (error,) = left.origin.skipped
    assert error.file == str(folder / "1.parquet")
    assert left.n_questions == 20


def test_an_invalid_row_costs_its_question_only(folder: Path) -> None:
    rows = pq.read_table(folder / "0.parquet")
    calls = rows.column("llm_calls").to_pylist()
    calls = pa.array([-1 if row == 4 else known for row, known in enumerate(calls)], pa.int16())
    place = rows.column_names.index("llm_calls")
    pq.write_table(rows.set_column(place, "llm_calls", calls), folder / "0.parquet")
    with pytest.raises(DataError, match=r"0\.parquet, row 4, column llm_calls: must be"):
        lazily(folder).column("llm_calls")
    left = read_traces(folder, lazily_above=0, skip_invalid=True)
    assert left.n_questions == 39
    assert {error.row for error in left.origin.skipped} == {4}


def test_a_question_split_over_files_is_measured_whole(tmp_path: Path) -> None:
    rows = records_to_table(RECORDS)
    pq.write_table(rows.slice(0, 40), tmp_path / "a.parquet")
    pq.write_table(rows.slice(40), tmp_path / "b.parquet")
    traces = lazily(tmp_path)
    assert shards_of(traces) == ()
    assert_alike(Measures(read_traces(tmp_path)), Measures(traces))


def test_ids_repeated_over_files_are_refused(tmp_path: Path) -> None:
    for name in "ab":
        write_traces(RECORDS[:5], tmp_path / f"{name}.parquet")
    with pytest.raises(DataError, match=r"b\.parquet, row 0, .* has round 1 twice"):
        lazily(tmp_path)
