"""A disk that fills at every write: what was there is whole, and with room the same command goes on."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run
from tests.faults.children import USUAL, Child, Conditions, Ended
from tests.faults.work import WORKS, Tried, Work, result

PAGE = 4096
LEVELS = (0, 1, PAGE, *(PAGE * 2**power for power in range(1, 12)))
ON_A_DISK = (
    "record",
    "record-cached",
    "probe",
    "signals-asked",
    "split",
    "export-jsonl",
    "fit-stop-rag",
    "report",
    "choose",
    "ask-index",
)


def told(ended: Ended, work: Work) -> None:
    """It failed, and said in one line what, and what to do."""
    assert ended.code in (1, 2), (ended.code, ended.err)
    assert "Traceback" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    command = work.words.split()[0]
    assert last.startswith(f"suffice {command}: ") or "run the same command" in last, last
    words = ("make room", "free space", "TMPDIR", "run the same command")
    assert any(word in last for word in words), last


def fill(
    work: Work, given: Path, out: Path, whole: Any, conditions: Callable[[int], Conditions]
) -> int:
    """Run it with ever more room until it has enough; how often it had not."""
    for number, level in enumerate(LEVELS):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        ended = Child(work.line(given, out), given, conditions=conditions(level)).end()
        if ended.code == 0:
            assert result(out) == whole.result
            return number
        told(ended, work)
        assert not list(out.rglob("*.tmp"))
        conditions(-1)
        again = Child(work.line(given, out), given).end()
        assert again.code == 0, (level, again.err)
        assert result(out) == whole.result, level
    raise AssertionError(f"{work.name} needs more than {LEVELS[-1]} bytes")


def limited(level: int) -> Conditions:
    """No file grows past so many bytes."""
    return USUAL if level < 0 else Conditions(file_bytes=level)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_no_file_may_grow(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    times = fill(work, given, tmp_path / "out", clean(work), limited)
    tried("no file may grow past 0, 1, 4,096, ... bytes", times)
    assert times >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [work for work in WORKS if work.name in ON_A_DISK], ids=lambda work: work.name
)
def test_the_disk_is_full(
    work: Work, given: Path, clean: Callable[[Work], Any], disk: Path, tried: Tried
) -> None:
    def leaving(level: int) -> Conditions:
        """All but so many bytes of the disk are taken; temporary files lie there, too."""
        filler = disk / "filler"
        filler.unlink(missing_ok=True)
        if level < 0:
            return USUAL
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        with filler.open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, free - level)
        return Conditions(environment={"TMPDIR": str(disk)})

    times = fill(work, given, disk / "out", clean(work), leaving)
    tried("a disk with 0, 1, 4,096, ... bytes left", times)
    assert times >= 1
    leaving(-1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "work", [work for work in WORKS if work.replaces], ids=lambda work: work.name
)
def test_the_file_before_stays_whole(work: Work, given: Path, tmp_path: Path, tried: Tried) -> None:
    tried("a full disk where a file is to be replaced")
    line = work.line(given, tmp_path)
    assert Child(line, given).end().code == 0
    files = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    told(Child(line, given, conditions=Conditions(file_bytes=1)).end(), work)
    assert {file: file.read_bytes() for file in files} == files


@pytest.mark.parametrize(
    "command",
    [
        "record --dataset generated --limit 2 --rounds 2 --llm scripted --out {}/traces",
        "record --dataset generated --limit 2 --rounds 2 --llm scripted --out {0}/t --cache {0}/c.sqlite",
    ],
)
def test_a_sample_of_full_disks(command: str, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    line = command.format(tmp_path).split()
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE // 2, before[1]))
    try:
        done = run(*line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.returncode == 1
    assert "run the same command again" in done.stderr
    done = run(*line)
    assert (done.returncode, "2 questions" in done.stdout) == (0, True)
    assert "failed" not in done.stderr
