"""``import suffice`` costs next to nothing, and its front holds what it lists."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import suffice

HEAVY = (
    *("bm25s", "duckdb", "httpx", "hypothesis", "numba", "openai", "pandas", "polars", "pyarrow"),
    *("pydantic", "scipy", "sklearn", "torch", "transformers", "xllamacpp"),
)


ARROW = {"numpy", "pyarrow", "cloudpickle"}  # which Arrow takes where it is installed


def loaded_after(code: str) -> set[str]:
    """Names in ``sys.modules`` after running code in a fresh interpreter."""
    shown = (
        f"import json, sys\nbefore = set(sys.modules)\n{code}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_importing_the_package_loads_only_the_standard_library() -> None:
    found = packages(loaded_after("import suffice"))
    assert found - {"suffice"} <= set(sys.stdlib_module_names)


def test_pytest_starts_without_what_a_check_runs_on() -> None:
    found = packages(loaded_after("import suffice.testing.pytest_plugin"))
    assert "pytest" in found
    assert not found & {"numpy", *HEAVY}


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("from suffice import UsageError, DataError, BackendError, SufficeError", set()),
        ("from suffice import Decision", {"numpy"}),
        ("from suffice import Round, Passage, Token, Usage, Question, Gold", {"numpy"}),
        ("from suffice import Controller, Rule, load_policy", ARROW),
        ("import suffice.scoring", set()),
        ("import suffice.stats.maps", {"numpy"}),
    ],
)
def test_light_names_stay_light(code: str, allowed: set[str]) -> None:
    found = packages(loaded_after(code)) - set(sys.stdlib_module_names) - {"suffice"}
    assert {name for name in found if not name.startswith(("_", "cython"))} <= allowed


def test_deciding_by_a_rule_loads_little(tmp_path: Path) -> None:
    """The registry imports the kind of policy that a file holds, and no other."""
    file = tmp_path / "policy.json"
    file.write_text('{"suffice_policy": 1, "kind": "rule", "rule": "answer_stable"}')
    found = loaded_after(f"from suffice import Controller; Controller.load({str(file)!r})")
    others = ("ab_rag", "gate", "micp", "stop_rag", "unfitted", "tasr")
    assert not [name for name in found for other in others if f"policies.{other}" in name]
    assert len([name for name in found if name.startswith("suffice")]) <= 57


def test_everything_public_needs_no_optional_package() -> None:
    names = ", ".join(suffice._HOMES)
    found = packages(loaded_after(f"from suffice import {names}"))
    assert found & (set(HEAVY) - {"pyarrow"}) == set()


def test_the_command_line_starts_without_optional_packages() -> None:
    found = packages(loaded_after("from suffice.cli.main import build_app; build_app()"))
    assert found & (set(HEAVY) - {"pyarrow"}) == set()


def test_the_version_is_told_without_the_parser() -> None:
    found = packages(loaded_after("from suffice.cli.main import main; main(['--version'])"))
    assert found & {"cyclopts", "rich"} == set()


def test_a_command_does_not_load_pandas_where_it_is_installed() -> None:
    pytest.importorskip("pandas")
    example = Path(__file__).parents[2] / "examples" / "traces" / "generated.parquet"
    run = [sys.executable, "-X", "importtime", "-m", "suffice", "replay", "--policy", "fixed-1"]
    done = subprocess.run([*run, str(example)], capture_output=True, text=True, check=True)
    assert "pyarrow" in done.stderr
    assert "pandas._libs" not in done.stderr


def test_the_front_is_sorted_complete_and_lazy() -> None:
    homes = suffice._HOMES
    assert dir(suffice) == sorted([*homes, "__version__"])
    for name, home in homes.items():
        assert getattr(suffice, name) is getattr(importlib.import_module(f"suffice.{home}"), name)
    tree = ast.parse(Path(suffice.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname: str(node.module).removeprefix("suffice.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("suffice.")
        for alias in node.names
        if alias.asname is not None
    }
    assert typed == homes


def test_the_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert suffice.__version__ == version("suffice")
