"""What a fresh clone installs for a use is what that use imports."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src/suffice", "tests", "benchmarks", "examples", "studies", "tools")
OWN = {"suffice", "tests", "benchmarks", "examples", "studies", "tools"}

INSTALLED = packages_distributions()
# what a distribution that is asked for always brings along
BRINGS = {
    "fastapi": {"pydantic", "starlette"},
    "pydantic": {"pydantic-core", "typing-extensions"},
    "scikit-learn": {"scipy"},
    "sentence-transformers": {"scikit-learn", "torch", "transformers"},
    "transformers": {"safetensors", "tokenizers"},
}
# chosen and installed by the user, or run by tests in an environment of its own, or skipped
FRAMEWORKS = {
    *("agents", "atif", "dask", "datasets", "deepagents", "dspy", "elasticsearch", "google"),
    *("haystack", "inspect_ai", "langchain", "langchain_anthropic", "langchain_community"),
    *("langchain_core", "langchain_openai", "langgraph", "llama_index", "mapie", "mlflow"),
    *("openinference", "opensearchpy", "opentelemetry", "osmem_server", "phoenix"),
    *("pydantic_ai", "smolagents"),
    "workflows",
}
USERS_CHOICE = {"hypothesis", "pandas", "polars", "pytest"}  # for who tests, and forms of a result


@dataclass(frozen=True)
class Import:
    """A module that a file imports, at once or when it is used."""

    module: str
    line: int
    extra: str | None = None  # as `require(..., extra=...)` names it
    package: str | None = None

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def word(call: ast.Call, name: str) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == name and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def imports(path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield Import(node.module, node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            called = node.func.id if isinstance(node.func, ast.Name) else called
            first = node.args[0]
            if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
                continue
            if called == "require":
                extra, package = word(node, "extra"), word(node, "package")
                yield Import(first.value, node.lineno, extra=extra, package=package)
            elif called == "importorskip":
                yield Import(first.value, node.lineno)


@functools.cache
def third_party(path: Path) -> list[Import]:
    return [
        each
        for each in imports(path)
        if each.top not in sys.stdlib_module_names and each.top not in OWN
    ]


def files(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def distribution(line: str) -> str:
    return re.split(r"[\[<>=!~ ;]", line.strip(), maxsplit=1)[0].lower().replace("_", "-")


def distribution_of(top: str) -> str:
    """Where a module comes from, by the first part of its name."""
    return distribution(INSTALLED.get(top, [top])[0])


def with_what_they_bring(distributions: set[str]) -> set[str]:
    found = set(distributions)
    while more := {one for each in found for one in BRINGS.get(each, ())} - found:
        found |= more
    return found


def read_extras() -> dict[str, set[str]]:
    """The distributions of each extra, with the two that are always installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    always = {distribution(line) for line in project["dependencies"]}
    lines: dict[str, list[str]] = project["optional-dependencies"]

    def of(extra: str) -> set[str]:
        named = set()
        for line in lines[extra]:
            if inner := re.fullmatch(r"suffice\[(.*)\]", line):
                named |= {one for part in inner[1].split(",") for one in of(part.strip())}
            else:
                named.add(distribution(line))
        return named

    return {extra: with_what_they_bring(always | of(extra)) for extra in lines}


EXTRAS = read_extras()


def required(file: Path) -> set[str]:
    """The distributions that a requirements file names."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return {distribution(line) for line in lines if line.strip() and not line.startswith("#")}


DEVELOPMENT = required(ROOT / "tools" / "requirements-dev.txt")


def own_environment(path: Path) -> set[str]:
    """What is installed for a test alone that has an environment of its own."""
    file = path.parent / f"requirements-{path.stem.removeprefix('test_')}.txt"
    return required(file) if file.exists() else set()


def test_the_library_imports_what_its_extras_bring() -> None:
    """``require`` names an extra that holds the module, or the package that the user chooses."""
    wrong = []
    for path in files("src/suffice"):
        for each in third_party(path):
            if each.top in FRAMEWORKS | USERS_CHOICE:
                continue
            wanted = distribution_of(each.top)
            if each.package is not None:
                held = {each.package}
            elif each.extra is not None:
                held = EXTRAS.get(each.extra, set())
            else:
                held = set().union(*EXTRAS.values())
            if wanted not in held:
                wrong.append(f"{path.relative_to(ROOT)}:{each.line}: {each.module} ({each.extra})")
    assert wrong == []


def test_tests_and_tools_import_what_setup_installs() -> None:
    installed = with_what_they_bring(EXTRAS["all"] | DEVELOPMENT)
    wrong = [
        f"{path.relative_to(ROOT)}:{each.line}: {each.module}"
        for path in files(*FOLDERS[1:])
        for each in third_party(path)
        if each.top not in FRAMEWORKS
        and distribution_of(each.top) not in installed | own_environment(path)
    ]
    assert wrong == []


DEMO = """
import sys
from importlib.abc import MetaPathFinder

absent = set(sys.argv[1].split(","))

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from suffice.llm import connect
from suffice.cli.main import main
from suffice.testing.models import ScriptedModel

connect.connect = lambda *_: ScriptedModel()
sys.exit(main(["demo", "--questions", "10", "--out", sys.argv[2]]))
"""


def test_the_demo_runs_on_what_its_extra_brings(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    there = EXTRAS["demo"] | {"scipy"}  # which bm25s uses where it is there
    tops = {each.top for path in files(*FOLDERS) for each in third_party(path)} - FRAMEWORKS
    absent = {top for top in tops if distribution_of(top) not in there}
    done = subprocess.run(
        [sys.executable, "-c", DEMO, ",".join(sorted(absent)), "demo"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    embedded = {each.top for each in third_party(ROOT / "src/suffice/llm/embedded.py")}
    assert {distribution_of(top) for top in embedded} <= EXTRAS["demo"]
    assert len(done.stdout.splitlines()) <= 45
    choice, _, recording = done.stdout.partition("held-out questions")
    assert choice.startswith("Stop ")
    assert recording.count("tasr") == 2
    named = dict(line.split(": ") for line in recording.splitlines()[-3:])
    assert list(named) == ["Traces", "Policy", "Report"]
    assert all((tmp_path / path).exists() for path in named.values())
