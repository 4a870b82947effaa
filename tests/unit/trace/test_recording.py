"""What a recorder finished is in its database, in Parquet when it ends, and read once at any moment."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders import keep

from suffice.errors import DataError, StorageError, UsageError
from suffice.live.watch import Watch
from suffice.testing.traces import make_record
from suffice.trace.durable import Shard
from suffice.trace.recording import failures_of
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.writer import question_writer, write_traces
from suffice.trace.store import Store
from suffice.trace.stored_file import parquet_files


def some(*numbers: int) -> list[QuestionRecord]:
    return [make_record(f"q{number:03d}", ["Oslo", "Rome"]) for number in numbers]


def recorded(out: Path, *numbers: int, shard: Shard | None = None) -> None:
    with question_writer(out, run={"m": 1}, shard=shard) as writer:
        keep(writer, some(*numbers))


def ids(path: Path) -> Sequence[str]:
    return read_traces(path).question_ids


# --- at every moment ------------------------------------------------------------------------------
def test_a_folder_is_read_the_same_at_every_moment(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    with question_writer(folder, run={"m": 1}) as writer:
        keep(writer, some(0))
        keep(writer, some(1))
        assert parquet_files(folder) == []
        assert list(read_traces(folder).records()) == some(0, 1)  # the database alone
    recorded(folder, 2)
    with question_writer(folder, run={"m": 1}) as writer:
        assert len(writer.done) == 3
        keep(writer, some(3))
        assert list(read_traces(folder).records()) == some(0, 1, 2, 3)  # some in both
        assert list(read_traces(writer.file).records()) == some(0, 1, 2, 3)
    assert len(parquet_files(folder)) == 3
    assert read_traces(folder).origin.run == {"m": 1}
    (folder / "record.db").unlink()
    assert list(read_traces(folder).records()) == some(0, 1, 2, 3)  # Parquet alone
    recorded(folder, 4)
    assert list(read_traces(folder).records()) == some(0, 1, 2, 3, 4)


def test_a_file_grows_and_says_where_its_records_are_before_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    with question_writer(file, run={}) as writer:
        keep(writer, some(1))
        with pytest.raises(DataError, match=r"t\.db"):
            read_traces(file)
        assert ids(writer.file) == ("q001",)
    recorded_at = file.stat().st_mtime_ns
    with question_writer(file, run={}):
        pass
    assert file.stat().st_mtime_ns == recorded_at  # there was nothing to add
    with question_writer(file, run={}) as writer:
        keep(writer, some(0))
    assert list(read_traces(file).records()) == some(0, 1)


def test_a_killed_recorder_leaves_everything_to_the_next(tmp_path: Path) -> None:
    script = """
import os, signal, sys
from suffice.testing.traces import make_record
from suffice.trace.rounds.writer import question_writer
writer = question_writer(sys.argv[1], run={"m": 1})
writer.add([writer.stored(make_record("q000", ["Oslo", "Rome"]))])
writer.fail(("q001",), "no reply")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -9
    traces = read_traces(tmp_path)
    assert (traces.question_ids, traces.origin.failures) == (("q000",), 1)
    recorded(tmp_path, 1)
    assert list(read_traces(tmp_path).records()) == some(0, 1)
    assert failures_of(tmp_path) == {}


def test_many_questions_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffice.trace.recording._IN_A_FILE", 2)
    recorded(tmp_path, *range(5))
    (tmp_path / "record.db").unlink()
    assert len(parquet_files(tmp_path)) == 3
    assert list(read_traces(tmp_path).records()) == some(*range(5))


# --- who may write --------------------------------------------------------------------------------
def test_shards_are_one_record_and_a_whole_recorder_takes_over(tmp_path: Path) -> None:
    for number in (1, 2):
        with question_writer(tmp_path, run={"m": 1}, shard=Shard(number, 2)) as writer:
            keep(writer, some(number))
            writer.fail((f"f{number}",), "no reply")
    assert ids(tmp_path) == ("q001", "q002")
    assert failures_of(tmp_path) == {"f1": ("no reply", 1), "f2": ("no reply", 1)}
    assert read_traces(tmp_path).origin.run == {"m": 1, "shards": 2}
    with question_writer(tmp_path, run={"m": 1}) as writer:
        assert writer.failed == {("f1",), ("f2",)}
        keep(writer, [make_record("f1", ["Oslo"])])
        writer.fail(("f2",), "no reply")
    assert ids(tmp_path) == ("f1", "q001", "q002")
    assert failures_of(tmp_path) == {"f2": ("no reply", 2)}


def test_what_a_killed_shard_left_is_exported_by_a_whole_recorder(tmp_path: Path) -> None:
    writer = question_writer(tmp_path, run={"m": 1}, shard=Shard(1, 2))
    keep(writer, some(0))
    writer._end()  # without Parquet
    recorded(tmp_path, 1)
    for database in tmp_path.glob("*.db"):
        database.unlink()
    assert ids(tmp_path) == ("q000", "q001")


def test_who_may_be_at_a_folder_together(tmp_path: Path) -> None:
    def others() -> dict[str, bool]:
        wanted = {"whole": None, "1/3": Shard(1, 3), "2/3": Shard(2, 3), "2/4": Shard(2, 4)}
        may: dict[str, bool] = {}
        for name, shard in wanted.items():
            try:
                with question_writer(tmp_path, run={}, shard=shard):
                    may[name] = True
            except UsageError:
                may[name] = False
        return may

    with question_writer(tmp_path, run={}):
        assert others() == dict.fromkeys(("whole", "1/3", "2/3", "2/4"), False)
    with question_writer(tmp_path, run={}, shard=Shard(1, 3)):
        assert others() == {"whole": False, "1/3": False, "2/3": True, "2/4": False}
    assert others() == dict.fromkeys(("whole", "1/3", "2/3", "2/4"), True)


def test_a_question_that_two_recorders_finish_is_kept_once(tmp_path: Path) -> None:
    with question_writer(tmp_path, run={}) as writer:
        keep(writer, some(0))
        keep(writer, [make_record("q000", ["Bergen"])])
    assert list(read_traces(tmp_path).records()) == some(0)


def test_live_loops_and_recorders_do_not_share_a_store(tmp_path: Path) -> None:
    with Watch(record=tmp_path / "live") as watch, watch.question("?", question_id="a") as loop:
        loop.observe(answer="Oslo")
    with pytest.raises(UsageError, match="live loops"):
        question_writer(tmp_path / "live", run={})
    recorded(tmp_path / "t", 0)
    for place in (tmp_path / "t", tmp_path / "t" / "record.db"):
        with pytest.raises(UsageError, match="suffice record"):
            Watch(record=place)


def test_no_recording_goes_on_among_files_of_several_runs(tmp_path: Path) -> None:
    recorded(tmp_path, 0)
    write_traces(some(1), tmp_path)
    with pytest.raises(UsageError, match=r"files of several runs.*suffice traces merge"):
        question_writer(tmp_path, run={"m": 1})


# --- what goes wrong ------------------------------------------------------------------------------
def test_a_store_that_was_removed_is_said(tmp_path: Path) -> None:
    def removed() -> None:
        with question_writer(tmp_path, run={}) as writer:
            keep(writer, some(0))
            for file in tmp_path.iterdir():
                file.unlink()
            keep(writer, some(1))

    with pytest.raises(StorageError, match="was removed"):
        removed()
    assert not list(tmp_path.iterdir())


def test_a_damaged_record_is_an_error_with_its_file(tmp_path: Path) -> None:
    recorded(tmp_path, 0)
    with sqlite3.connect(tmp_path / "record.db") as database:
        database.execute("UPDATE records SET rows = x'00ff'")
    database.close()
    with pytest.raises((DataError, StorageError)) as error:
        Store(tmp_path / "record.db").runs()
    assert "record.db" in str(error.value)
    assert inspect_traces(tmp_path).errors == ()  # which Parquet holds
