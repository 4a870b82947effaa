"""A folder of packages that is looked at like that of an installer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.commands import forget_commands
from tests.packages import forget


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    forget_commands(monkeypatch)
    forget()
    yield folder
    forget()
