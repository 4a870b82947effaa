"""Sizes: warnings of long modules, functions and parameter lists, and the ratchet of every room.

``python tools/sizes.py --lower`` writes the rooms that shrank into ``tests/architecture/budget.toml``.
"""

from __future__ import annotations

import argparse
import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
BUDGET = SOURCE.parent / "tests" / "architecture" / "budget.toml"
Sizes = dict[str, tuple[int, int]]
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


def sizes() -> Sizes:
    """Lines and modules of every room: a folder of the package, or the modules beside the folders."""
    found: Sizes = {}
    package = SOURCE / "suffice"
    for file in sorted(package.rglob("*.py")):
        inside = file.relative_to(package).parts
        room = inside[0] if len(inside) > 1 else "top"
        lines, modules = found.get(room, (0, 0))
        found[room] = lines + file.read_text(encoding="utf-8").count("\n"), modules + 1
    return found


def budget() -> Sizes:
    """What each room may have at most."""
    rooms = tomllib.loads(BUDGET.read_text(encoding="utf-8"))
    return {name: (room["lines"], room["modules"]) for name, room in rooms.items()}


def lower() -> None:
    """Write the rooms that shrank; none is raised."""
    now = sizes()
    rows = {
        name: [min(pair) for pair in zip(most, now.get(name, (0, 0)), strict=True)]
        for name, most in budget().items()
    }
    head = BUDGET.read_text(encoding="utf-8").partition("\n\n")[0]
    room = "{} = {{ lines = {}, modules = {} }}".format
    body = (room(name, *most) for name, most in sorted(rows.items()) if any(most))
    BUDGET.write_text("\n".join([head, "", *body, ""]), encoding="utf-8")


def main() -> None:
    """Print every warning and their number."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lower", action="store_true", help="write the rooms that shrank")
    if parser.parse_args().lower:
        lower()
    warnings = [line for file in sorted(SOURCE.rglob("*.py")) for line in warnings_of(file)]
    for line in warnings:
        print(f"warning: {line}")
    print(f"{len(warnings)} warnings of size; split by idea, never where a ruler falls")


if __name__ == "__main__":
    main()
