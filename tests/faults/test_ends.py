"""SIGTERM, SIGINT and readers that go away, at random moments of every command."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child
from tests.faults.work import LONG, READS, WORKS, Tried, Work, result

from suffice.cli.main import COMMANDS

ONCE = [*WORKS, *READS]


def test_every_command_is_tried() -> None:
    assert {work.words.split()[0] for work in [*ONCE, *LONG]} == set(COMMANDS)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("work", [*LONG, *ONCE], ids=lambda work: work.name)
def test_it_ends_within_seconds_and_leaves_nothing_half(
    work: Work, name: str, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    tried(f"{name} of the demo or of training on text" if work in LONG else name)
    whole, number = clean(work), getattr(signal, name)
    child = Child(work.line(given, tmp_path), given)
    time.sleep(random.Random(name + work.name).uniform(0.0, whole.seconds))
    child.send(number)
    began = time.monotonic()
    ended = child.end()
    assert time.monotonic() - began < work.seconds
    # before the command began, and after it ended, nobody catches the signal
    assert ended.code in (0, 128 + number, -number), ended.err
    assert "Traceback" not in ended.err
    if ended.code == 128 + number:
        assert "interrupted" in ended.err
    if ended.code != -number:
        assert not list(tmp_path.rglob("*.tmp"))
    if result(tmp_path) != whole.result:
        again = Child(work.line(given, tmp_path), given).end()
        assert again.code == 0, again.err
        assert result(tmp_path) == whole.result


@pytest.mark.slow
@pytest.mark.parametrize("heard", [0, 1])
@pytest.mark.parametrize("work", ONCE, ids=lambda work: work.name)
def test_a_reader_that_goes_away(
    work: Work, heard: int, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    """As ``suffice ... | head``: the work is done, and nothing is said."""
    tried("the reader of stdout goes away")
    ended = Child(work.line(given, tmp_path), given, heard=heard).end()
    assert ended.code in (0, 1)
    assert "Traceback" not in ended.err
    assert "Broken pipe" not in ended.err
    assert "Exception ignored" not in ended.err
    assert result(tmp_path) == clean(work).result


@pytest.mark.slow
@pytest.mark.parametrize("work", ONCE, ids=lambda work: work.name)
def test_a_reader_of_stderr_that_goes_away(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    tried("the reader of stderr goes away")
    ended = Child(work.line(given, tmp_path), given, heard_of_stderr=0).end()
    assert ended.code == 0
    assert result(tmp_path) == clean(work).result
