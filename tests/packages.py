"""A package that brings a method, as an installer leaves it."""

from __future__ import annotations

import sys
from pathlib import Path

from suffice.policies import registry
from suffice.signals import plugins

SOURCE = Path(__file__).parent / "unit" / "policies" / "toy_method.py"


def install(folder: Path, entry: str, name: str = "toy-stopping") -> None:
    """A module, and metadata that names it."""
    folder.mkdir(exist_ok=True)
    (folder / "toy_stopping.py").write_text(SOURCE.read_text(encoding="utf-8"), encoding="utf-8")
    about = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "top_level.txt").write_text("toy_stopping\n")
    (about / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{entry}\n")


def forget() -> None:
    """Have the packages that are installed looked at again."""
    sys.modules.pop("toy_stopping", None)
    for found in (registry._entries, registry._load_entry, plugins._packages):
        found.cache_clear()
