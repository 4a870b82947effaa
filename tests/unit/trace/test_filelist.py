"""The list of a folder's files: what is missing or another is noticed, and what is under way is not."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice.cli.main import main
from suffice.errors import DataError, StorageError, UsageError
from suffice.measures.contents import traces_info
from suffice.testing.plans import make_plan
from suffice.testing.traces import make_record
from suffice.trace import filelist
from suffice.trace.durable import Shard, replace_file
from suffice.trace.filelist import (
    Stamp,
    accept_files,
    check_listed,
    listed_files,
    lists_in,
    missing_files,
    write_listed,
)
from suffice.trace.plans.file import plan_writer, read_plans, write_plans
from suffice.trace.rounds.filter import TraceFilter, filter_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import question_writer, write_traces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three questions in two files, and the first of them as it was before it was whole."""
    root = tmp_path / "my traces"
    with question_writer(root, run={"model": "m"}, shard_questions=2) as writer:
        for name in "abc":
            writer.add([make_record(name, ["Rome", "Oslo"])])
            if name == "a":
                shutil.copy(root / "part-00000.parquet", tmp_path / "older.parquet")
    return root


def test_sha256sum_reads_it(folder: Path, tmp_path: Path) -> None:
    filter_traces(folder, tmp_path / "kept", TraceFilter(min_rounds=1))
    write_traces([make_record("d", ["Oslo"])], folder)
    for root, files in ((folder, 3), (tmp_path / "kept", 2)):
        command = ["sha256sum", "--strict", "-c", "files.sha256"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        assert done.stdout.count(": OK") == files
        assert not any(listed.before for listed in listed_files(root).values())
        assert read_traces(root, lazily_above=0).n_questions in (3, 4)


def test_what_is_missing_or_older_is_refused_until_it_is_accepted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = folder / "part-00000.parquet"
    content = first.read_bytes()
    shutil.copy(tmp_path / "older.parquet", first)
    wanted = (
        rf"part-00000\.parquet: is another file than files\.sha256 says: found .* bytes, footer .*; listed "
        rf"{len(content):,} bytes, footer .*suffice traces accept '{folder}'"
    )
    for above in (0, 10**9):
        with pytest.raises(DataError, match=wanted):
            read_traces(folder, lazily_above=above)
        assert read_traces(folder, lazily_above=above, skip_invalid=True).question_ids == ("c",)
    with pytest.raises(DataError, match=wanted):
        read_traces(first)
    first.unlink()
    for above in (0, 10**9):
        with pytest.raises(
            DataError, match=r"is listed in files\.sha256 \(.*\) and missing; bring"
        ):
            read_traces(folder, lazily_above=above)
        assert read_traces(folder, lazily_above=above, skip_invalid=True).question_ids == ("c",)
    with pytest.raises(DataError, match="and missing"):
        question_writer(folder, run={"model": "m"})
    assert main(["traces", "validate", str(folder)]) == 2
    shutil.copy(tmp_path / "older.parquet", first)
    capsys.readouterr()
    assert main(["traces", "accept", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] == ["part-00000.parquet"]
    assert read_traces(folder).question_ids == ("a", "c")
    assert main(["traces", "validate", str(folder)]) == 0


def test_validate_compares_whole_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of bytes that no reader looks at none tells but the whole file's checksum."""
    file = folder / "part-00001.parquet"
    content = file.read_bytes()
    name, listed = "part-00001.parquet", listed_files(folder)["part-00001.parquet"]
    assert Stamp.of_content(content) == listed.stamp
    text = (folder / "files.sha256").read_text().replace(listed.sha256, "0" * 64)
    (folder / "files.sha256").write_text(text)
    assert read_traces(folder).n_questions == 3
    assert main(["traces", "validate", str(folder)]) == 2
    assert f"{name}: its SHA-256 is not that of files.sha256" in capsys.readouterr().out


def test_folders_without_a_list_and_files_in_none(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    write_traces([make_record("x", ["Oslo"])], tmp_path / "x.parquet")
    assert not lists_in(tmp_path)
    shutil.copytree(folder, other)
    (other / "files.sha256").unlink()
    assert traces_info(other).listed is None
    shutil.copy(tmp_path / "x.parquet", folder)
    info = traces_info(folder)
    assert (info.files, info.listed) == (3, 2)
    assert any("not listed: 1 of 3 files, the first x.parquet" in note for note in info.notes)
    assert accept_files(folder).added == ("x.parquet",)
    # one that is listed stays so where it is written anew
    write_traces([make_record("y", ["Oslo"])], folder / "x.parquet")
    assert read_traces(folder).question_ids == ("a", "b", "c", "y")
    with pytest.raises(UsageError, match="no directory with"):
        accept_files(tmp_path / "x.parquet")


def test_names_and_lists_of_other_programs(tmp_path: Path) -> None:
    name = "a \\ b\n.parquet"
    write_traces([make_record("x", ["Oslo"])], tmp_path / name)
    accept_files(tmp_path)
    assert list(listed_files(tmp_path)) == [name]
    subprocess.run(["sha256sum", "-c", "files.sha256"], cwd=tmp_path, check=True)
    printed = subprocess.run(["sha256sum", name], cwd=tmp_path, capture_output=True, check=True)
    (tmp_path / "files.sha256").write_bytes(printed.stdout)
    assert listed_files(tmp_path)[name].stamp == Stamp()
    assert read_traces(tmp_path).n_questions == 1
    (tmp_path / name).unlink()
    assert len(missing_files(tmp_path)) == 1


@pytest.mark.parametrize("line", ["x", "# {", '# {"size": "1"}', '# {"before": 3}', "a" * 64])
def test_a_damaged_list_is_named(folder: Path, line: str) -> None:
    place = folder / "files.sha256"
    place.write_text(f"{line}\n{place.read_text().splitlines()[-1]}\n")
    with pytest.raises(DataError, match=r"files\.sha256: line \d is none .* traces accept"):
        read_traces(folder)
    assert read_traces(folder, skip_invalid=True).n_questions == 3
    with pytest.raises(DataError, match="line"):
        question_writer(folder, run={"model": "m"})
    accept_files(folder)
    assert read_traces(folder).n_questions == 3


def test_shards_have_lists_of_their_own(tmp_path: Path) -> None:
    shards = [Shard(number, 2) for number in (1, 2)]
    own = {shard: next(n for n in "abcdefgh" if shard.holds(n)) for shard in shards}
    for shard, name in own.items():
        with question_writer(tmp_path, run={}, shard=shard) as writer:
            writer.add([make_record(name, ["Oslo"])])
    assert [file.name for file in lists_in(tmp_path)] == ["files-1of2.sha256", "files-2of2.sha256"]
    (tmp_path / "part-2of2-00000.parquet").unlink()
    with pytest.raises(DataError, match=r"part-2of2-00000\.parquet: is listed in files-2of2"):
        question_writer(tmp_path, run={}, shard=shards[0])
    assert accept_files(tmp_path).gone == ("part-2of2-00000.parquet",)
    assert read_traces(tmp_path).n_questions == 1


def test_plans_are_listed_too(tmp_path: Path) -> None:
    write_plans([make_plan("a")], tmp_path / "one")
    with plan_writer(tmp_path / "two", run={}) as writer:
        writer.add([make_plan("a")])
        writer.add([make_plan("b")])
    for root in (tmp_path / "one", tmp_path / "two"):
        assert [*listed_files(root)] == ["part-00000.parquet"]
        read_plans(root)
    shutil.copy(tmp_path / "one/part-00000.parquet", tmp_path / "two")
    with pytest.raises(DataError, match="is another file"):
        read_plans(tmp_path / "two")


class _Killed(BaseException):
    """Stands for a kill between two writes."""


@settings(deadline=None, max_examples=15)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), min_size=1, max_size=6))
def test_whatever_a_kill_leaves_is_as_listed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    """Each step writes a file and is killed before its write of that number, if it makes as many."""
    folder = tmp_path_factory.mktemp("killed")
    for number, (name, kill_at) in enumerate(steps):
        writes = 0

        def write(path: Path, content: bytes, kill_at: int = kill_at) -> None:
            nonlocal writes
            if writes == kill_at:
                raise _Killed
            writes += 1
            replace_file(path, content)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(filelist, "replace_file", write)
            with suppress(_Killed):
                write_listed(folder / f"{name}.parquet", f"content {number}".encode())
        assert not missing_files(folder)
        for file in folder.glob("*.parquet"):
            check_listed(file)
    filelist.settle(folder / "files.sha256")
    there = {file.name for file in folder.glob("*.parquet")}
    assert {*listed_files(folder)} == there
    assert not filelist.differing_files(folder)
    for name in there:
        (folder / name).unlink()
    assert len(missing_files(folder)) == len(there)


def test_a_full_disk_keeps_what_was_there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, _: bytes) -> None:
        raise StorageError(f"cannot write {path}: no room")

    monkeypatch.setattr(filelist, "replace_file", full)
    with pytest.raises(StorageError, match="no room"):
        write_traces([make_record("d", ["Oslo"])], folder)
    assert read_traces(folder).n_questions == 3


_RECORDER = """
import sys
import time
from pathlib import Path
from suffice.testing.traces import make_record
from suffice.trace.durable import Shard
from suffice.trace.rounds.writer import question_writer
folder, shard = sys.argv[1], Shard.parse(sys.argv[2])
names = [f"q{n}" for n in range(int(sys.argv[3])) if shard.holds(f"q{n}")]
with question_writer(folder, run={}, shard=shard, shard_questions=3) as writer:
    for name in names:
        if (name,) not in writer.done:
            writer.add([make_record(name, ["Oslo"])])
            time.sleep(0.3)  # or a fast machine is done before it can be killed
"""


@pytest.mark.slow
def test_killed_recorders_of_shards_leave_what_is_listed(tmp_path: Path) -> None:
    """Two recorders, killed at random moments, while a reader finds nothing wrong; all of it comes about."""
    draw = random.Random(0)
    asked, kills = 40, 0
    wrong: list[Exception] = []
    ended = threading.Event()

    def read() -> None:
        before = 0
        while not ended.is_set():
            try:
                count = read_traces(tmp_path).n_questions if [*tmp_path.glob("*.parquet")] else 0
                assert count >= before
                before = count
            except (DataError, AssertionError) as error:
                wrong.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    left = {"1/2", "2/2"}
    try:
        while left:
            children = {
                shard: subprocess.Popen(
                    [sys.executable, "-c", _RECORDER, str(tmp_path), shard, str(asked)]
                )
                for shard in left
            }
            time.sleep(draw.uniform(0.5, 2.0))
            for shard, child in children.items():
                if kills < 12 and child.poll() is None:
                    child.kill()
                    kills += 1
                if child.wait() == 0:
                    left.discard(shard)
    finally:
        ended.set()
        reader.join()
    assert not wrong, wrong
    assert kills > 3
    assert read_traces(tmp_path).n_questions == asked
    assert not filelist.differing_files(tmp_path)
    for place in lists_in(tmp_path):
        subprocess.run(["sha256sum", "-c", "--status", place.name], cwd=tmp_path, check=True)
