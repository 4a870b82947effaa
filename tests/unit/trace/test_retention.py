"""Files of a record are removed by age and size: whole ones, off the list first, never one under way."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from suffice.cli.main import main
from suffice.errors import UsageError
from suffice.pipelines.live.watch import Watch
from suffice.testing.traces import make_record
from suffice.trace.filelist import listed_files
from suffice.trace.retention import Retention, prune
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces

DAY = 86_400.0
NOW = 1_800_000_000.0


def written(folder: Path, count: int = 4) -> list[Path]:
    """A file a question, each a day younger than the one before; the youngest is of now."""
    for number in range(count):
        with Watch(record=folder) as watch, watch.question("?", question_id=f"q{number}") as loop:
            loop.observe(answer="Oslo")
        (new,) = {*folder.glob("*.parquet")} - {*folder.glob("aged-*")}
        file = new.rename(folder / f"aged-{number}.parquet")
        age = (count - 1 - number) * DAY
        os.utime(file, (NOW - age, NOW - age))
    assert main(["traces", "accept", str(folder)]) == 0
    return sorted(folder.glob("*.parquet"))


def test_the_old_ones_go_and_the_rest_is_a_record(tmp_path: Path) -> None:
    files = written(tmp_path)
    done = prune(tmp_path, Retention(days=1.5), now=NOW, dry=True)
    assert done.files == ("aged-0.parquet", "aged-1.parquet")
    assert len(listed_files(tmp_path)) == 4
    assert prune(tmp_path, Retention(days=1.5), now=NOW) == done
    assert sorted(listed_files(tmp_path)) == [file.name for file in files[2:]]
    assert main(["traces", "validate", str(tmp_path)]) == 0
    assert read_traces(tmp_path).question_ids == ("q2", "q3")


def test_the_oldest_go_until_the_rest_takes_no_more(tmp_path: Path) -> None:
    files = written(tmp_path)
    room = sum(file.stat().st_size for file in files[2:])
    done = prune(tmp_path, Retention(gigabytes=room / 1e9), now=NOW)
    assert done.files == ("aged-0.parquet", "aged-1.parquet")
    assert done.bytes_left == room
    assert read_traces(tmp_path).question_ids == ("q2", "q3")


def test_what_is_being_recorded_is_left_alone_by_several_at_once(tmp_path: Path) -> None:
    written(tmp_path)
    with Watch(record=tmp_path) as watch:
        with watch.question("now?", question_id="now") as loop:
            loop.observe(answer="Oslo")
            with ThreadPoolExecutor(4) as pool:
                tiny = Retention(gigabytes=1e-9)
                done = list(pool.map(lambda _: prune(tmp_path, tiny, now=NOW), range(4)))
            loop.observe(answer="Oslo")
        assert sum(len(each.files) for each in done) == 4
        assert read_traces(tmp_path).question_ids == ("now",)
    assert read_traces(tmp_path).question_ids == ("now",)
    assert main(["traces", "validate", str(tmp_path)]) == 0


def test_a_file_off_the_list_that_was_not_removed_is_read(tmp_path: Path) -> None:
    from suffice.trace.filelist import unlist

    files = written(tmp_path)
    unlist(files[0])  # and killed before it was removed
    assert read_traces(tmp_path).n_questions == 4
    assert prune(tmp_path, Retention(days=2.5), now=NOW).files == ("aged-0.parquet",)


def test_the_command_says_what_it_removes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_traces([make_record("q", ["Oslo"])], tmp_path / "r")
    os.utime(tmp_path / "r" / "part-00000.parquet", (1.0, 1.0))
    assert main(["traces", "prune", str(tmp_path / "r")]) == 2
    assert main(["traces", "prune", str(tmp_path / "r"), "--keep-days", "0"]) == 2
    assert main(["traces", "prune", str(tmp_path / "r"), "--keep-days", "30"]) == 0
    assert "1 files removed" in capsys.readouterr().out
    assert not list((tmp_path / "r").glob("*.parquet"))
    with pytest.raises(UsageError, match="no directory"):
        prune(tmp_path / "none", Retention(days=1))
