"""A file is written whole or not at all, and where it cannot be, that is said before the work."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import BackendError, DataError, StorageError, UsageError
from suffice.policies.policy_file import save_policy
from suffice.policies.unfitted import FixedPolicy
from suffice.trace.durable import (
    Shard,
    in_turn,
    replace_file,
    replaced_together,
    writable,
    written_aside,
)


def test_it_replaces_and_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / ".f.999999999.tmp").write_bytes(b"of a killed run")
    replace_file(tmp_path / "f", b"one")
    replace_file(tmp_path / "f", b"two")
    assert (tmp_path / "f").read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["f"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_full_disk_or_ctrl_c_keeps_what_stood_there(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_policy(FixedPolicy(2), tmp_path / "p.json")
    before = (tmp_path / "p.json").read_bytes()

    def fail(_: int) -> None:
        raise error

    monkeypatch.setattr("os.fsync", fail)
    wanted = BackendError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        save_policy(FixedPolicy(3), tmp_path / "p.json")
    assert (tmp_path / "p.json").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["p.json"]


NAMES = ("policy.json", "guess.json", "index.html", "never.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What an older run and its user left: no index.html, and a file and a folder that are the user's."""
    place = tmp_path / "chosen"
    (place / "notes").mkdir(parents=True)
    (place / "notes" / "mine.txt").write_text("mine")
    (place / "mine.txt").write_text("mine")
    for name in ("policy.json", "guess.json"):
        (place / name).write_text("old")
    return place


def replace(folder: Path) -> None:
    with replaced_together(folder, NAMES) as aside:
        for name in ("policy.json", "index.html"):
            (aside / name).write_text("new")


def stands(folder: Path) -> dict[str, str]:
    """Every file of the folder, and that the user's are as they were."""
    files = {
        file.relative_to(folder).as_posix(): file.read_text()
        for file in folder.rglob("*")
        if file.is_file() and ".tmp" not in file.as_posix()
    }
    assert (files.pop("mine.txt"), files.pop("notes/mine.txt")) == ("mine", "mine")
    return files


def interrupt(done: object) -> None:
    assert done
    raise KeyboardInterrupt


OLDER = {"policy.json": "old", "guess.json": "old"}
NEWER = {"policy.json": "new", "index.html": "new"}


def at_the_renames(monkeypatch: pytest.MonkeyPatch, at: Callable[[int], None]) -> None:
    """Have ``at`` called with the number of every rename, before it."""
    rename, count = Path.rename, iter(range(1000))

    def renamed(self: Path, target: Any) -> Path:
        at(next(count))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", renamed)


def test_files_are_replaced_together_and_nothing_else_is_touched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []
    at_the_renames(monkeypatch, lambda _: seen.append(set(stands(folder).values())))
    replace(folder)
    assert stands(folder) == NEWER
    assert all(len(values) <= 1 for values in seen)  # never some of both
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("step", range(2 * len(NAMES)))
def test_files_that_are_not_all_replaced_are_all_the_old_ones(
    folder: Path, step: int, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(number: int) -> None:
        if number == step:
            raise error

    at_the_renames(monkeypatch, fail)
    wanted = StorageError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(wanted):
        replace(folder)
    assert stands(folder) == OLDER
    assert not list(folder.rglob("*.tmp"))


@pytest.mark.skipif(os.name != "posix", reason="the process forks")
@pytest.mark.parametrize("step", range(2 * len(NAMES)))
def test_killed_between_two_renames_no_two_runs_are_mixed(
    folder: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(number: int) -> None:
        if number == step:
            os._exit(9)

    if (child := os.fork()) == 0:
        with pytest.MonkeyPatch.context() as patched:
            at_the_renames(patched, die)
            replace(folder)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert len(set(stands(folder).values())) <= 1
    replace(folder)
    assert stands(folder) == NEWER
    assert not list(folder.rglob("*.tmp"))


def test_of_a_new_folder_that_could_not_be_filled_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), replaced_together(tmp_path / "a", NAMES) as aside:
        interrupt((aside / "policy.json").write_text("new"))
    assert not list(tmp_path.iterdir())


def test_a_folder_in_the_way_of_a_file_is_named(folder: Path) -> None:
    (folder / "index.html").mkdir()
    with pytest.raises(StorageError, match=r"index\.html"):
        replace(folder)
    assert stands(folder) == OLDER


def test_a_place_that_can_be_written_is_made_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.d").mkdir()
    for path in ("p.json", "new/p.json", "new", "run-0.05", "run.v2", "old.d", "meant.txt/", "."):
        assert writable(path, ".json", folder=True) == Path(path)
    assert writable("cache.sqlite") == Path("cache.sqlite")
    assert [each.name for each in tmp_path.iterdir()] == ["old.d"]


# --- shards --------------------------------------------------------------------------------------
def test_every_question_is_in_one_shard_and_always_in_the_same() -> None:
    names = [f"question {n} \u2014 \ud800" for n in range(500)]
    shards = [Shard(number, 3) for number in (1, 2, 3)]
    held = [[name for name in names if shard.holds(name)] for shard in shards]
    assert sorted(name for part in held for name in part) == sorted(names)
    assert all(len(part) > 120 for part in held)
    # of the letters a to h, by any version
    assert ["".join(filter(shard.holds, "abcdefgh")) for shard in shards] == ["f", "ab", "cdegh"]
    assert all(Shard(1, 1).holds(name) for name in names)


@pytest.mark.parametrize(
    "text", ["", "3", "0/4", "5/4", "1/0", "-1/4", "1 of 4", "a/b", "\u0661/2"]
)
def test_what_is_no_shard_is_refused_with_what_is(text: str) -> None:
    with pytest.raises(UsageError, match="shard"):
        Shard.parse(text)
    assert Shard.parse(" 2/16 ") == Shard(2, 16)


@pytest.mark.skipif(os.name != "posix", reason="processes are looked for on POSIX systems")
def test_what_another_process_is_writing_aside_is_left_to_it(tmp_path: Path) -> None:
    target = tmp_path / "t.parquet"
    theirs = tmp_path / f".t.parquet.{os.getppid()}.tmp"
    left = tmp_path / ".t.parquet.999999999.tmp"
    theirs.touch()
    left.touch()
    with ExitStack() as held:
        aside = held.enter_context(written_aside(target))
        assert (theirs.exists(), left.exists()) == (True, False)
        aside.write_text("ours")
        target.write_text("theirs")
        with pytest.raises(UsageError, match="exists already"):
            held.close()
    assert target.read_text() == "theirs"
    assert sorted(tmp_path.iterdir()) == [theirs, target]


def test_a_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", none)
    with pytest.raises(DataError, match="No locks available"), in_turn(tmp_path, "index"):
        pass
