"""Inputs made once, and what every command leaves where nothing is wrong."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, import_once
from tests.faults.work import LONG, Tried, Work, make_given, result


@dataclass(frozen=True, slots=True, kw_only=True)
class Clean:
    """What a command leaves, and the seconds it takes."""

    result: dict[str, Any]
    seconds: float


@pytest.fixture
def tried(record_property: Callable[[str, object], None]) -> Tried:
    """Counts what is done, for the table at the end."""

    def count(fault: str, times: int = 1) -> None:
        record_property(f"fault: {fault}", times)

    return count


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """How often each fault was tried; where a test fails something was lost, doubled or not told."""
    times: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    reports = [
        (outcome, report)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        if report.when == "call"
    ]
    for outcome, report in reports:
        counted: Counter[str] = Counter()
        for name, value in report.user_properties:
            if name.startswith("fault: "):
                counted[name.removeprefix("fault: ")] += value
        times.update(counted)
        tests.update(counted.keys())
        failed.update(counted.keys() if outcome == "failed" else ())
    if times:
        terminalreporter.section("faults tried")
        terminalreporter.write_line("| What was done | How often | Tests | Failed |")
        terminalreporter.write_line("|---|---:|---:|---:|")
    for fault in sorted(times):
        row = f"| {fault} | {times[fault]:,} | {tests[fault]} | {failed[fault]} |"
        terminalreporter.write_line(row)


@pytest.fixture(scope="session", autouse=True)
def imported(request: pytest.FixtureRequest) -> None:
    """What children find imported; all of it takes seconds, so a few fast tests do without."""
    slow = any(item.get_closest_marker("slow") for item in request.session.items)
    import_once(commands=slow)


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_given(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="session")
def clean(given: Path) -> Callable[[Work], Clean]:
    """What a command leaves where nothing is wrong; run twice, since the first run fills caches."""
    known: dict[str, Clean] = {}

    def run(work: Work) -> Clean:
        if work.name not in known:
            for _ in range(1 if work in LONG else 2):
                with tempfile.TemporaryDirectory() as folder:
                    ended = Child(work.line(given, Path(folder)), given).end()
                    assert ended.code == 0, ended.err
                    left = result(Path(folder))
            known[work.name] = Clean(result=left, seconds=ended.seconds)
        return known[work.name]

    return run


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A disk of 8 MiB."""
    place = tmp_path_factory.mktemp("disk")
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)
