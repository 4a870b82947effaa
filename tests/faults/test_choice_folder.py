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
from tests.faults.children import Child

from suffice.policies.policy_file import load_policy, policy_hash

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
@pytest.mark.parametrize("signalled", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_at_random_moments(
    signalled: signal.Signals, traces: Path, chosen: Path, folder: Path, tmp_path: Path
) -> None:
    ended = Child(words(traces, folder), tmp_path).end()
    draw, before, after = random.Random(signalled), promised(chosen), promised(folder)
    assert (ended.code, before != after) == (0, True), ended.err
    for number in range(12):
        shutil.rmtree(folder)
        shutil.copytree(chosen, folder)
        child = Child(words(traces, folder), tmp_path)
        # half of them while it writes, which is the last it does; none before Python catches a signal
        began = ended.seconds * 0.8 if number % 2 else 0.2
        time.sleep(draw.uniform(began, ended.seconds * 1.05))
        child.send(signalled)
        code = child.end().code
        assert code in (0, 128 + signalled, -signalled)
        assert promised(folder) == (before if same(folder, chosen) else after)
        assert code != 0 or not same(folder, chosen)
        left = list(folder.rglob("*.tmp"))
        assert code == -signalled or not left
        if left:
            again = Child(words(traces, folder), tmp_path).end()
            assert (again.code, promised(folder)) == (0, after), again.err
            assert not list(folder.rglob("*.tmp"))
