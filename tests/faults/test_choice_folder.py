"""The folder of ``choose`` is of one run, whatever ends the next one that writes into it."""

from __future__ import annotations

import html
import json
import os
import random
import re
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from tests.builders import drawn_records, written_traces
from tests.commands import run
from tests.faults.children import USUAL, Child, Conditions
from tests.faults.work import Tried

from suffice.policies.file import load_policy, policy_hash

PAGE = 4096
LEVELS = (0, 1, PAGE, *(PAGE * 2**power for power in range(1, 10)))
ASKED = ("--bootstrap", "20", "--signals", "answer_stable,overlap", "--workers", "1")
NEXT = ("--max-loss", "0.3", "--confidence", "0.8")


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of which the two commands choose differently."""
    records = drawn_records(40, ["Oslo", "Rome", "unknown"], seed=1)
    return written_traces(tmp_path_factory.mktemp("record"), records)


@pytest.fixture(scope="module")
def chosen(traces: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first command writes, and a file of its user beside it."""
    folder = tmp_path_factory.mktemp("first") / "chosen"
    done = run("choose", traces, *ASKED, "--out", folder)
    assert done.returncode == 0, done.stderr
    (folder / "notes.txt").write_text("mine")
    return folder


@pytest.fixture
def folder(chosen: Path, tmp_path: Path) -> Path:
    return shutil.copytree(chosen, tmp_path / "chosen")


def words(traces: Path, folder: Path) -> list[str]:
    """Of the second command."""
    return ["choose", str(traces), *ASKED, *NEXT, "--out", str(folder)]


def promised(folder: Path) -> Any:
    """What the folder promises; every file says the same, and the user's is there."""
    assert (folder / "notes.txt").read_text() == "mine"
    choice = json.loads((folder / "choice.json").read_bytes())
    policy = load_policy(folder / "policy.json").policy
    assert policy_hash(policy) == choice["chosen"]["hash"]
    page = (folder / "index.html").read_text()
    assert all(html.escape(said) in page for said in re.split(r"(?<=\.) ", choice["headline"]))
    guess = choice["guess"]
    assert (guess is not None) == (folder / "guess.json").exists()
    if guess is not None:
        guessed = load_policy(folder / "guess.json").policy
        assert policy_hash(guessed) == guess["measured"]["hash"]
    return choice["promise"]["max_loss"], choice["promise"]["confidence"], choice["headline"]


def same(folder: Path, chosen: Path) -> bool:
    """Whether the choice of before stands, to the byte."""
    names = ("policy.json", "choice.json", "index.html")
    return all((folder / name).read_bytes() == (chosen / name).read_bytes() for name in names)


@pytest.mark.parametrize("after", [2, 8])
def test_interrupted_while_it_writes_it_leaves_the_choice_of_before(
    after: int, traces: Path, chosen: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = iter(range(1000))
    for name in ("rename", "replace"):
        move = getattr(Path, name)

        def moved(self: Path, target: Any, move: Any = move) -> Path:
            if (self.parent == folder or Path(target).parent == folder) and next(count) == after:
                os.kill(os.getpid(), signal.SIGINT)
            moved_to: Path = move(self, target)
            return moved_to

        monkeypatch.setattr(Path, name, moved)
    done = run(*words(traces, folder))
    assert done.returncode == 130, done.stderr
    assert same(folder, chosen)
    promised(folder)
    assert "wrote" not in done.stderr + done.stdout
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "times"), [("SIGINT", 20), ("SIGTERM", 8), ("SIGKILL", 20)])
def test_ended_at_random_moments(
    name: str, times: int, traces: Path, chosen: Path, tmp_path: Path, tried: Tried
) -> None:
    seconds, number, draw = [], getattr(signal, name), random.Random(name)
    for place in ("warm", "timed"):
        shutil.copytree(chosen, tmp_path / place)
        ended = Child(words(traces, tmp_path / place), tmp_path).end()
        assert ended.code == 0, ended.err
        seconds.append(ended.seconds)
    before, after = promised(chosen), promised(tmp_path / "timed")
    assert before != after
    kept = 0
    for time_of in range(times):
        folder = tmp_path / str(time_of)
        shutil.copytree(chosen, folder)
        child = Child(words(traces, folder), tmp_path)
        # half of them while it writes, which is the last it does; none before Python catches a signal
        time.sleep(draw.uniform(seconds[1] * 0.8 if time_of % 2 else 0.2, seconds[1] * 1.05))
        child.send(number)
        ended = child.end()
        assert ended.code in (0, 128 + number, -number), ended.err
        kept += same(folder, chosen)
        assert promised(folder) == (before if same(folder, chosen) else after)
        if ended.code == 0:
            assert promised(folder) == after
        if ended.code != -number:
            assert not list(folder.rglob("*.tmp"))
        if time_of % 10 == 0 or list(folder.rglob("*.tmp")):
            again = Child(words(traces, folder), tmp_path).end()
            assert (again.code, promised(folder)) == (0, after), again.err
            assert not list(folder.rglob("*.tmp"))
        shutil.rmtree(folder)
    tried(f"{name} of choose into a folder that holds a choice", times)
    assert kept >= times // 4


def fill(traces: Path, chosen: Path, folder: Path, level: int, conditions: Conditions) -> bool:
    """Whether so much room is enough; where not, the choice of before stands and the next run goes on."""
    before = promised(folder)
    ended = Child(words(traces, folder), folder.parent, conditions=conditions).end()
    if ended.code == 0:
        assert promised(folder) != before
        return True
    assert ended.code == 1, (level, ended.err)
    assert "make room" in ended.err
    assert same(folder, chosen)
    assert promised(folder) == before
    assert not list(folder.rglob("*.tmp"))
    return False


@pytest.mark.slow
def test_no_file_may_grow(traces: Path, chosen: Path, tmp_path: Path, tried: Tried) -> None:
    enough = []
    for level in LEVELS:
        folder = shutil.copytree(chosen, tmp_path / str(level))
        enough.append(fill(traces, chosen, folder, level, Conditions(file_bytes=level)))
    tried("no file may grow past 0, 1, 4,096, ... bytes, choose over a choice", enough.count(False))
    assert (enough[0], enough[-1]) == (False, True)


@pytest.mark.slow
def test_the_disk_is_full(traces: Path, chosen: Path, disk: Path, tried: Tried) -> None:
    enough = []
    for level in LEVELS:
        folder = shutil.copytree(chosen, disk / "chosen")
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        with (disk / "filler").open("wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, max(free - level, 1))
        enough.append(fill(traces, chosen, folder, level, USUAL))
        (disk / "filler").unlink()
        shutil.rmtree(folder)
    tried("a disk with 0, 1, 4,096, ... bytes left, choose over a choice", enough.count(False))
    assert (enough[0], enough[-1]) == (False, True)
