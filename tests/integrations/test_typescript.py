"""The example in TypeScript, under a node that strips types: that of this environment, or the machine's."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")

from tests.loop_service import listening

from suffice.trace.rounds.reader import read_traces

EXAMPLE = Path(__file__).parents[2] / "examples" / "loop.ts"


def node_that_strips_types() -> str:
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    node = shutil.which("node", path=places)
    if node is not None:
        asked = [node, "-p", "process.features.typescript"]
        told = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60)
        if told.stdout.strip() == "strip":
            return node
    pytest.skip("needs node 22.18 or newer, which make test-integrations brings")


def test_the_example_runs_as_it_is(tmp_path: Path) -> None:
    node = node_that_strips_types()
    with listening(tmp_path / "record") as port:
        done = subprocess.run(
            [node, EXAMPLE, f"http://127.0.0.1:{port}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "Skien (round 3, stopped by policy)"
    assert read_traces(tmp_path / "record").n_questions == 1
