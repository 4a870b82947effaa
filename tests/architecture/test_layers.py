"""The layout of the design, held: who imports whom, what may be imported, how long things may be."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import suffice

ROOT = Path(suffice.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# --- the layout table -------------------------------------------------------------------------------
# concurrency: one way to do work in threads, for signals that ask a model and for recorders alike
BASE = frozenset(
    {
        "_optional",
        "_version",
        "concurrency",
        "errors",
        "foreign",
        "options",
        "contracts",
        "reasoning",
    }
    | {"scoring"}
)
# what `suffice.NAME` stands for, gathered; nothing imports it
FRONT = ("interface", "planning", "traces")
LEVEL: dict[str, int] = {
    **dict.fromkeys(BASE, 0),
    **dict.fromkeys(("stats", "trace", "results"), 1),
    **dict.fromkeys(("costs", "datasets", "llm", "retrieval", "signals"), 2),
    "measures": 3,
    "policies": 4,
    **dict.fromkeys(("evaluation", "loops", "monitor"), 5),
    **dict.fromkeys(("live", "report"), 6),
    **dict.fromkeys(("integrations", "testing", "serve", "view", "cli"), 7),
    **dict.fromkeys(FRONT, 8),
}
WITHOUT_MODELS = BASE | {"stats", "trace", "results", "costs", "signals", "measures", "policies"}
EVERYTHING = frozenset(LEVEL)
MAY_IMPORT: dict[str, frozenset[str]] = {
    **dict.fromkeys(BASE, BASE),
    **{name: BASE | {name} for name in ("stats", "results", "trace")},
    **{name: BASE | {"trace", name} for name in ("costs", "datasets", "llm", "retrieval")},
    "signals": BASE | {"trace", "stats", "signals"},
    "measures": WITHOUT_MODELS - {"policies"},
    "policies": WITHOUT_MODELS,
    "evaluation": WITHOUT_MODELS | {"evaluation"},
    "monitor": WITHOUT_MODELS | {"monitor"},
    "loops": (WITHOUT_MODELS - {"results"}) | {"datasets", "llm", "loops", "retrieval"},
    "live": (WITHOUT_MODELS - {"results"}) | {"datasets", "llm", "live", "loops", "retrieval"},
    "report": BASE | {"stats", "trace", "results", "measures", "evaluation", "monitor", "report"},
    "serve": EVERYTHING - {*FRONT, "cli", "testing", "view"},
    "view": EVERYTHING - {*FRONT, "cli", "testing", "llm", "live", "loops", "retrieval"},
    "integrations": EVERYTHING - {*FRONT, "cli"},
    "testing": EVERYTHING - {*FRONT, "cli"},
    "cli": EVERYTHING - {*FRONT},
    **dict.fromkeys(FRONT, EVERYTHING),
}

WEB = frozenset(
    {"fastapi", "prometheus_client", "pydantic", "pydantic_core", "starlette", "uvicorn"}
    | {"typing_extensions"}
)
TORCH = frozenset({"sentence_transformers", "torch", "transformers"})
TORCH_FOLDERS = ("policies/stop_rag/", "retrieval/")


@dataclass(frozen=True, slots=True)
class Import:
    """An import: the module, where it stands, whether it runs when the file is loaded."""

    module: str
    line: int
    loaded: bool
    typing_only: bool
    names: tuple[str, ...] = ()

    @property
    def package(self) -> str:
        """The first name."""
        return self.module.partition(".")[0]


def part(file: Path) -> str:
    """The row of the layout table a file belongs to; empty for the package's own front."""
    first = file.relative_to(ROOT).parts[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(first, first)


def _last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``; empty for what is no name."""
    return str(getattr(node, "attr", getattr(node, "id", "")))


def _typing_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"


def imports(node: ast.AST, *, loaded: bool = True, typing_only: bool = False) -> Iterator[Import]:
    """Every import below a node, also by ``require`` and ``import_module``."""
    for child in ast.iter_child_nodes(node):
        line = getattr(child, "lineno", 0)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, line, loaded, typing_only)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"line {line}: a relative import"
            names = tuple(alias.name for alias in child.names)
            yield Import(child.module or "", line, loaded, typing_only, names)
        elif isinstance(child, ast.Call) and _last_name(child.func) in ("require", "import_module"):
            named = child.args[0] if child.args else None
            if isinstance(named, ast.Constant) and isinstance(named.value, str):
                yield Import(named.value, line, loaded, typing_only)
        in_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from imports(
            child, loaded=loaded and not in_function, typing_only=typing_only or _typing_only(child)
        )


@functools.cache
def tree_of(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@functools.cache
def imports_of(file: Path) -> list[Import]:
    return list(imports(tree_of(file)))


def own(each: Import) -> list[str]:
    """Parts of this package that an import names."""
    if each.package != "suffice":  # a study stands outside the package, which rests on none
        return ["studies"] if each.package == "studies" else []
    rest = each.module.split(".")[1:]
    return [rest[0]] if rest else [name for name in each.names if name != "suffice"]


def told(file: Path, each: Import) -> str:
    return f"{file.relative_to(ROOT)}:{each.line} imports {each.module}"


def test_every_folder_is_in_the_layout_table() -> None:
    folders = {each.name for each in ROOT.iterdir() if each.is_dir() and each.name != "__pycache__"}
    modules = {each.stem for each in ROOT.glob("*.py")} - {"__init__", "__main__"}
    assert folders <= set(MAY_IMPORT) - BASE - {*FRONT}
    assert modules <= {*BASE, *FRONT}


def test_imports_point_where_the_table_allows() -> None:
    wrong = [
        told(file, each)
        for file in FILES
        for each in imports_of(file)
        for name in own(each)
        if part(file)
        and name not in MAY_IMPORT[part(file)]
        # contracts name the data they speak of, for the type checker alone
        and not (part(file) in BASE and name in ("signals", "stats", "trace") and each.typing_only)
    ]
    assert wrong == []


def test_the_table_is_free_of_cycles() -> None:
    """Every import points to a lower level or stays inside; only the leaves import one another."""
    for name, allowed in MAY_IMPORT.items():
        if LEVEL[name] < LEVEL["cli"]:
            assert all(LEVEL[other] < LEVEL[name] for other in allowed - {name} - BASE), name
    for room in ("live", "loops"):
        assert "evaluation" not in MAY_IMPORT[room]
        assert room not in MAY_IMPORT["evaluation"]


def test_reports_take_types_from_replay_and_compute_nothing() -> None:
    wrong = [
        f"{told(file, each)}: {name}"
        for file in FILES
        if part(file) == "report"
        for each in imports_of(file)
        if each.module.split(".")[1:2] in (["evaluation"], ["measures"], ["stats"])
        for name in each.names
        # what makes a table or a word of a result computes nothing
        if not name[0].isupper() and not name.endswith(("_table", "_tables", "auroc_use"))
    ]
    assert wrong == []


def _foreign(each: Import) -> bool:
    return each.package not in sys.stdlib_module_names and each.package != "suffice"


def test_optional_packages_come_through_require() -> None:
    """Inside functions too: what the core brings is installed, everything else may be missing."""
    wrong = [
        told(file, each)
        for file in FILES
        if part(file) not in ("", "integrations")
        for each in imports_of(file)
        if not each.typing_only
        and each.names
        and _foreign(each)
        and each.package not in ("numpy", "pyarrow", "scipy", "cyclopts", "rich")
        and not (part(file) in ("serve", "view") and each.package in WEB)
    ]
    assert wrong == []


def test_torch_stays_where_networks_live_and_is_lazy() -> None:
    wrong = [
        told(file, each)
        for file in FILES
        for each in imports_of(file)
        if each.package in TORCH
        and (
            (each.loaded and not each.typing_only)
            or not file.relative_to(ROOT).as_posix().startswith(TORCH_FOLDERS)
        )
    ]
    assert wrong == []


def test_a_reader_sees_the_plan_of_a_folder_at_a_glance() -> None:
    """At most fifteen modules a folder, some more where named, and a folder says what lives there."""
    wide = {ROOT / "cli" / "commands"}
    for folder in {file.parent for file in FILES}:
        modules = [each for each in folder.glob("*.py") if each.name != "__init__.py"]
        # a file a command: its plan is the command line's
        most = 20 if folder in wide else 15
        assert len(modules) <= most, folder.relative_to(ROOT)
        assert ast.get_docstring(tree_of(folder / "__init__.py")), folder.relative_to(ROOT)


METHODS = ("tasr", "ab_rag", "micp", "gate", "stop_rag")
"""Folders of methods. Rules are the language that methods and searches write in, so anybody reads them."""
KNOW_A_METHOD: dict[str, tuple[str, ...]] = {
    "loops/planning/": ("gate",)  # an agent is built around a Gate, which is public for that
}


def _methods_of(each: Import) -> list[str]:
    parts = each.module.split(".")
    named = parts[2:3] if parts[:2] == ["suffice", "policies"] else []
    return [
        name
        for name in (*named, *(each.names if parts[1:] == ["policies"] else ()))
        if name in METHODS
    ]


def test_a_method_is_known_by_its_folder_alone() -> None:
    """Others ask the registry, and a policy's needs, facts and optional contracts."""
    wrong = []
    for file in FILES:
        place = file.relative_to(ROOT).as_posix()
        if place.startswith(("__init__.py", "planning.py", "testing/")):
            continue
        own_folder = place.split("/")[1:2] if part(file) == "policies" else []
        known = [
            name
            for where, names in KNOW_A_METHOD.items()
            if place.startswith(where)
            for name in names
        ]
        wrong += [
            f"{told(file, each)}: {name}"
            for each in imports_of(file)
            for name in _methods_of(each)
            if name not in (*own_folder, *known)
        ]
    assert wrong == []


def test_nobody_else_asks_for_a_method_by_its_name() -> None:
    names = {name.replace("_", "-") for name in METHODS}
    wrong = [
        f"{file.relative_to(ROOT)}:{node.lineno}: {side.value}"
        for file in FILES
        if part(file) not in ("policies", "testing")
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.Compare)
        for side in (node.left, *node.comparators)
        if isinstance(side, ast.Constant) and side.value in names
    ]
    assert wrong == []
