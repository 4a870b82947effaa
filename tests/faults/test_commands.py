"""Every command and every fault: what was finished is kept, and the same command goes on."""

from __future__ import annotations

import random
import resource
import shutil
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run
from tests.faults.children import Child, Conditions, check_told, full
from tests.faults.work import ALL, LONG, SHORT, WORKS, Clean, line, result

from suffice.cli.main import COMMANDS
from suffice.trace.rounds.reader import inspect_traces

PAGE = 4096
REPLACED = {"policy.json", "rule.json", "report.html", "state.json", "chosen/policy.json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What a command runs under, how it may end, and one of these words is in its last line if it fails."""

    conditions: Conditions
    codes: tuple[int, ...] = (0,)
    told: tuple[str, ...] = ()
    names: Mapping[str, str]


def limited(level: int) -> Fault:
    return Fault(
        conditions=Conditions(file_bytes=level),
        codes=(0, 1, 2),
        told=("make room", "free space", "TMPDIR", "run the same command"),
        names=WORKS,
    )


# forward and back: seconds, a day, twenty years; each reading by another
JUMPS = (0.0, 3.0, -3.0, 86_400.0, -86_400.0, 20 * 365 * 86_400.0, -20 * 365 * 86_400.0)
NO_HOME = {"HOME": None, "XDG_CACHE_HOME": None, "USER": None, "LOGNAME": None}
NOWHERE = {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}
FAULTS = {
    **{f"files of {level} bytes": limited(level) for level in (0, 1, PAGE, 8 * PAGE, 64 * PAGE)},
    "deaf stdout": Fault(conditions=Conditions(deaf=1), codes=(0, 1), names=SHORT),
    "deaf stderr": Fault(conditions=Conditions(deaf=2), names=SHORT),
    "no home": Fault(conditions=Conditions(environment=NO_HOME), names=SHORT),
    "nowhere": Fault(conditions=Conditions(environment=NOWHERE), names=SHORT),
    "jumping clock": Fault(conditions=Conditions(jumps=JUMPS), names=SHORT),
}


def goes_on(words: list[str], given: Path, out: Path, whole: Any) -> None:
    """The same command leaves what a run without a fault leaves."""
    if result(out) != whole:
        again = Child(words, given).end(300.0)
        if "exists already" in again.err:  # killed when all but what lies aside was done
            for aside in out.rglob("*.tmp"):
                shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
        else:
            assert again.code == 0, again.err
        assert result(out) == whole
    assert not list(out.rglob("*.tmp"))


def test_every_command_is_tried() -> None:
    assert {words.split()[0] for words in ALL.values()} == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "name"), [(fault, name) for fault, how in FAULTS.items() for name in how.names]
)
def test_under_conditions(fault: str, name: str, given: Path, clean: Clean, tmp_path: Path) -> None:
    how, (whole, _), words = FAULTS[fault], clean(name), line(ALL[name], given, tmp_path)
    ended = Child(words, given, how.conditions).end()
    assert ended.code in how.codes, ended.err
    assert not any(word in ended.err for word in ("Traceback", "Broken pipe", "Exception ignored"))
    if ended.code and how.told:
        check_told(ended, *how.told)
    assert not list(tmp_path.rglob("*.tmp"))
    goes_on(words, given, tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "signalled"),
    [
        *((name, signalled) for name in SHORT for signalled in (signal.SIGTERM, signal.SIGINT)),
        *((name, signal.SIGINT) for name in LONG),
    ],
)
def test_signalled_at_a_random_moment(
    name: str, signalled: signal.Signals, given: Path, clean: Clean, tmp_path: Path
) -> None:
    """It ends within seconds, with what is under way, and leaves nothing half."""
    (whole, seconds), words = clean(name), line(ALL[name], given, tmp_path)
    child = Child(words, given)
    time.sleep(random.Random(f"{signalled} {name}").uniform(0.0, seconds))
    child.send(signalled)
    ended = child.end(150.0 if name in LONG else 20.0)
    # before the command began, and after it ended, nobody catches the signal; Python may then end with 1
    began = ended.code != 1 or ended.err
    assert not began or ended.code in (0, 128 + signalled, -signalled), ended.err
    # what compiled code swallows it tells of itself; the command then goes on to its end
    assert "Traceback" not in ended.err.partition("Exception ignored in")[0]
    if ended.code == 128 + signalled:
        assert "interrupted" in ended.err
    if ended.code != -signalled:
        assert not list(tmp_path.rglob("*.tmp"))
    goes_on(words, given, tmp_path, whole)


def recorded(out: Path) -> dict[Path, set[str]]:
    """Whole questions of every folder that a recorder fills; it is valid as it lies there."""
    held = {}
    for folder in {file.parent for file in out.rglob("record*.db")}:
        inspection = inspect_traces(folder)
        assert inspection.errors == ()
        held[folder] = set(inspection.traces.question_ids)
        assert len(held[folder]) == inspection.traces.n_questions
    return held


@pytest.mark.slow
@pytest.mark.parametrize("name", [*LONG, *WORKS])
def test_killed_at_random_moments(name: str, given: Path, clean: Clean, tmp_path: Path) -> None:
    """And again and again, so that it is killed while it takes up what a dead one left."""
    (whole, seconds), words = clean(name), line(ALL[name], given, tmp_path)
    draw, before = random.Random(name), recorded(tmp_path)
    for _ in range(2 if name in LONG else 6):
        child = Child(words, given)
        time.sleep(draw.uniform(0.0, seconds))
        child.send(signal.SIGKILL)
        child.end()
        after = recorded(tmp_path)
        assert all(after[folder] >= held for folder, held in before.items())
        before = after
        if result(tmp_path) == whole:
            break
    goes_on(words, given, tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_twice_at_once(name: str, given: Path, clean: Clean, tmp_path: Path) -> None:
    (whole, _), words = clean(name), line(ALL[name], given, tmp_path)
    ended = [child.end() for child in [Child(words, given) for _ in range(2)]]
    assert 0 in {end.code for end in ended}, [end.err for end in ended]
    for end in ended:
        if end.code:
            check_told(end, "another recorder", "exists already", "is at it")
    goes_on(words, given, tmp_path, whole)


@pytest.mark.slow
@pytest.mark.parametrize("name", WORKS)
def test_a_full_disk(name: str, given: Path, clean: Clean, disk: Path) -> None:
    """Temporary files lie there, too; what is replaced stands there whole."""
    (whole, _), out = clean(name), disk / "out"
    out.mkdir()
    words, there = line(ALL[name], given, out), Conditions(environment={"TMPDIR": str(disk)})
    with full(disk, PAGE):
        ended = Child(words, given, there).end()
    if ended.code:
        check_told(ended, *limited(0).told)
    goes_on(words, given, out, whole)
    files = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    if any((out / place).exists() for place in REPLACED):
        with full(disk, 0):
            check_told(Child(words, given, there).end(), *limited(0).told)
        assert {file: file.read_bytes() for file in files} == files


@pytest.mark.parametrize("cache", ["", "--cache {}/c.sqlite"])
def test_a_recording_ends_at_a_full_disk_and_goes_on(cache: str, tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    words = f"record --dataset generated --limit 2 --rounds 2 --llm scripted --out {{}}/t {cache}"
    command = words.replace("{}", str(tmp_path)).split()
    resource.setrlimit(resource.RLIMIT_FSIZE, (PAGE // 2, before[1]))
    try:
        done = run(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert done.returncode == 1
    assert "make room" in done.stderr
    done = run(*command)
    assert (done.returncode, "2 questions" in done.stdout) == (0, True)
    assert "failed" not in done.stderr
