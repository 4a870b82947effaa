"""Folders that may not be written, no home, no temporary folder, an ASCII terminal, a clock that jumps."""

from __future__ import annotations

import os
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
