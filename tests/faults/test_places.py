"""Folders that may not be written, no home, no temporary folder, an ASCII terminal, a clock that jumps."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.commands import SUFFICE
from tests.faults.children import Child, Conditions
from tests.faults.work import READS, WORKS, Tried, Work, result

OBEYING = Conditions(permissions=True)
# forward and back: seconds, a day, twenty years; each reading by another
JUMPS = (0.0, 3.0, -3.0, 86_400.0, -86_400.0, 20 * 365 * 86_400.0, -20 * 365 * 86_400.0)


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_folder_that_may_not_be_written(
    work: Work, given: Path, tmp_path: Path, tried: Tried
) -> None:
    tried("a folder that may not be written")
    tmp_path.chmod(0o555)
    ended = Child(work.line(given, tmp_path), given, conditions=OBEYING).end()
    tmp_path.chmod(0o755)
    assert ended.code in (1, 2), ended.err
    assert "Traceback" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    assert str(tmp_path) in last
    assert any(
        word in last for word in ("choose another", "permissions", "can be made and written")
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("work", [*WORKS, *READS], ids=lambda work: work.name)
def test_what_is_read_may_not_be_written(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    """Inputs on a disk that is only read: no lock, no cache, no index is made beside them."""
    tried("inputs that may only be read")
    whole = clean(work)
    places = [given, *(place for place in given.rglob("*") if place.is_dir())]
    for place in places:
        place.chmod(0o555)
    try:
        ended = Child(work.line(given, tmp_path), given, conditions=OBEYING).end()
    finally:
        for place in places:
            place.chmod(0o755)
    assert ended.code == 0, ended.err
    assert result(tmp_path) == whole.result


EXAMPLE = Path(__file__).parents[2] / "examples" / "traces" / "generated.parquet"


@pytest.mark.parametrize("line", ["traces info", "traces validate", "replay", "ask"])
@pytest.mark.parametrize("mode", [0o000, 0o311, "file"], ids=["nothing", "no-list", "file"])
def test_what_may_not_be_read_is_told_as_that(
    line: str, mode: int | str, given: Path, tmp_path: Path
) -> None:
    """And not as damaged, nor as a folder that holds nothing."""
    place = tmp_path / "r"
    place.mkdir()
    inner = place / ("a.txt" if line == "ask" else "a.parquet")
    shutil.copy(EXAMPLE, inner)
    locked = inner if mode == "file" else place
    locked.chmod(0o000 if isinstance(mode, str) else mode)
    words = (
        ["ask", "--corpus", str(place), "Who?"] if line == "ask" else [*line.split(), str(place)]
    )
    try:
        ended = Child(words, given, conditions=OBEYING).end()
    finally:
        locked.chmod(0o755)
    assert ended.code in (1, 2)
    said = ended.err + ended.out
    assert "Permission denied" in said
    assert "damaged" not in said
    assert "holds no" not in said
    assert "Traceback" not in said


def test_a_policy_that_may_not_be_read_is_no_text_of_a_rule(given: Path, tmp_path: Path) -> None:
    policy = tmp_path / "r" / "chosen"
    policy.mkdir(parents=True)
    (tmp_path / "r").chmod(0o600)
    line = ["replay", str(EXAMPLE), "--policy", str(policy)]
    try:
        ended = Child(line, given, conditions=OBEYING).end()
    finally:
        (tmp_path / "r").chmod(0o755)
    assert ended.code in (1, 2)
    assert f"{policy}: Permission denied" in ended.err


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment",
    [
        {"HOME": None, "XDG_CACHE_HOME": None, "USER": None, "LOGNAME": None},
        {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"},
    ],
    ids=["no-home", "nowhere"],
)
@pytest.mark.parametrize("work", [*WORKS, *READS], ids=lambda work: work.name)
def test_without_a_home(
    work: Work,
    environment: dict[str, str | None],
    given: Path,
    clean: Callable[[Work], Any],
    tmp_path: Path,
    tried: Tried,
) -> None:
    tried("no home, or a home and a temporary folder that are not there")
    conditions = Conditions(environment=environment)
    ended = Child(work.line(given, tmp_path), given, conditions=conditions).end()
    assert ended.code == 0, ended.err
    assert result(tmp_path) == clean(work).result


@pytest.mark.slow
@pytest.mark.parametrize("work", [*WORKS, *READS], ids=lambda work: work.name)
def test_a_clock_that_jumps(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    tried("a clock that jumps by up to 20 years")
    ended = Child(work.line(given, tmp_path), given, conditions=Conditions(jumps=JUMPS)).end()
    assert ended.code == 0, ended.err
    assert result(tmp_path) == clean(work).result


ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        "policies",
        "policies --json",
        "signals --list",
        "replay GIVEN/foreign.parquet --policy fixed-1",
        "replay GIVEN/foreign.parquet --policy fixed-1 --json",
        "traces info GIVEN/foreign.parquet",
        "traces export GIVEN/foreign.parquet --format csv --out OUT/Århus.csv",
        "report GIVEN/foreign.parquet --bootstrap 10 --out OUT/Århus.html",
        "record --dataset generated --limit 2 --rounds 2 --llm scripted --out OUT/Århus",
        "ask Wo~liegt~Ålesund? --corpus GIVEN/notes --llm scripted --policy fixed-1",
        "replay OUT/Ålesund.parquet",
    ],
)
def test_a_terminal_that_knows_ascii_only(
    words: str, given: Path, tmp_path: Path, tried: Tried
) -> None:
    tried("a terminal that knows ASCII only")
    work = Work(name="ascii", words=words)
    done = subprocess.run(
        [*SUFFICE, *work.line(given, tmp_path)],
        env={**os.environ, **ASCII},
        capture_output=True,
        check=False,
    )
    error = done.stderr.decode("ascii")
    assert "Traceback" not in error
    assert done.returncode == (2 if "Ålesund.parquet" in words else 0), error
