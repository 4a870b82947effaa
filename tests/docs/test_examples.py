"""Every example runs and does what it says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = [  # production.py is walked by tests/e2e/test_production.py
    path
    for path in sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
    if path.stem != "production"
]


def run(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.main()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_it_runs(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if path.stem.startswith("dask"):
        pytest.importorskip("dask.distributed", reason="runs where Dask is installed")
    run(path)
    assert capsys.readouterr().out


def test_own_loop_stops_when_the_answer_repeats() -> None:
    decision = run(EXAMPLES[[each.stem for each in EXAMPLES].index("own_loop")])
    assert (decision.stop, decision.stopped_by) == (True, "policy")
    assert "round 3" in decision.reason


def test_answer_sets_keep_their_promise() -> None:
    policy, share = run(EXAMPLES[[each.stem for each in EXAMPLES].index("answer_sets")])
    assert policy.alpha == 0.1
    assert 0.85 < share < 1.0
