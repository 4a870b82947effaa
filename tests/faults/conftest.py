"""Inputs made once, and what every command leaves where nothing is wrong."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child, import_once
from tests.faults.work import ALL, LONG, Clean, line, make_given, result


@pytest.fixture(scope="session", autouse=True)
def imported(request: pytest.FixtureRequest) -> None:
    """What children find imported; all of it takes seconds, so a few fast tests do without."""
    slow = any(item.get_closest_marker("slow") for item in request.session.items)
    import_once(commands=slow)


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_given(tmp_path_factory.mktemp("given"))


@pytest.fixture(scope="session")
def clean(given: Path) -> Clean:
    """Each command is run twice, since the first run fills caches."""

    @cache
    def run(name: str) -> tuple[dict[str, Any], float]:
        for _ in range(1 if name in LONG else 2):
            with tempfile.TemporaryDirectory() as folder:
                ended = Child(line(ALL[name], given, Path(folder)), given).end(300.0)
                assert ended.code == 0, ended.err
                left = result(Path(folder))
        return left, ended.seconds

    return run


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)
