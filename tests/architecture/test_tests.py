"""The tests themselves: none rests on another."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(
    path
    for folder in ("tests", "benchmarks", "examples", "studies", "tools")
    for path in (ROOT / folder).rglob("*.py")
)


def imported(path: Path) -> set[str]:
    """Every module that the file names in an import, and what it takes from them."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_test_is_imported(path: Path) -> None:
    """What tests share stands in a module that is no test, beside the root of the tests."""
    taken = {name for name in imported(path) if name.startswith("tests.")}
    tests = {name for name in taken if any(p.startswith("test_") for p in name.split("."))}
    assert not tests
    assert not {name for name in taken if "conftest" in name.split(".")}
