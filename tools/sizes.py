"""Warn of rooms that grow large: long modules, long functions, long parameter lists. Never a failure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
MOST_LINES = 400
MOST_FUNCTION_LINES = 50
MOST_PARAMETERS = 6


def warnings_of(file: Path) -> Iterator[str]:
    """What is larger than a reader likes, each in a line that names its place."""
    text = file.read_text(encoding="utf-8")
    place = file.relative_to(SOURCE.parent)
    lines = text.count("\n")
    if lines > MOST_LINES:
        yield f"{place}: {lines} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            arguments = node.args
            named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = sum(argument.arg not in ("self", "cls") for argument in named)
            if length > MOST_FUNCTION_LINES:
                yield f"{place}:{node.lineno}: {node.name} has {length} lines"
            if count > MOST_PARAMETERS:
                yield f"{place}:{node.lineno}: {node.name} takes {count} parameters"


def main() -> None:
    """Print every warning and their number."""
    warnings = [line for file in sorted(SOURCE.rglob("*.py")) for line in warnings_of(file)]
    for line in warnings:
        print(f"warning: {line}")
    print(f"{len(warnings)} warnings of size; split by idea, never where a ruler falls")


if __name__ == "__main__":
    main()
