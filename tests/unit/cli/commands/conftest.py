"""Notes that questions are asked of."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A folder of eight pages, one of them about Cadel Tower."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in ("Ardel", "Borel", "Cadel", "Dorel", "Edrel", "Fadel", "Gadel", "Hadel"):
        page = f"# {name} Tower\n\n{name} Tower was founded by Mira {name}son.\n"
        (folder / f"{name}.md").write_text(page, encoding="utf-8")
    return folder
