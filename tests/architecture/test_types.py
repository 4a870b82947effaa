"""Every public name has one type, which every type checker reads alike."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# the checker looks for packages where the first python lies
BESIDE = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
CHECKER = shutil.which("basedpyright", path=BESIDE)


@pytest.mark.skipif(CHECKER is None, reason="needs basedpyright")
def test_every_public_name_has_a_known_type() -> None:
    assert CHECKER is not None
    done = subprocess.run(
        [CHECKER, "--verifytypes", "suffice", "--ignoreexternal", "--outputjson"],
        cwd=ROOT,
        env={**os.environ, "PATH": BESIDE, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    told = json.loads(done.stdout)["typeCompleteness"]
    unclear = {
        symbol["name"]: [said["message"] for said in symbol["diagnostics"]]
        for symbol in told["symbols"]
        if not symbol["isTypeKnown"] or symbol["isTypeAmbiguous"]
    }
    assert unclear == {}
    assert Path(told["packageRootDirectory"]) == ROOT / "src" / "suffice"
    counts = told["exportedSymbolCounts"]
    assert counts.pop("withKnownType") > 5_000  # it looked at the whole package
    assert counts == {"withAmbiguousType": 0, "withUnknownType": 0}
    assert told["completenessScore"] == 1.0
