"""The wheel installs and runs by itself, and holds the package alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("hatchling")

ROOT = Path(__file__).parents[2]


def test_the_wheel_is_built_installed_and_run(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    built = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(tmp_path), str(ROOT)]
    subprocess.run([*pip, *built], check=True)
    (wheel,) = tmp_path.glob("suffice-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"suffice"}
    place = tmp_path / "installed"
    subprocess.run([*pip, "install", "--no-deps", "--target", str(place), str(wheel)], check=True)
    code = (
        "import suffice, sys; print(suffice.__file__); print(suffice.read('example').n_questions)"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert told == [str(place / "suffice" / "__init__.py"), "250"]
