"""What ``import suffice`` adds to ``import numpy``, and what a core install weighs."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

CODE = """
import time
started = time.perf_counter()
import numpy
between = time.perf_counter()
import suffice
print(between - started, time.perf_counter() - between)
"""


def _once() -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
    numpy_s, suffice_s = map(float, done.stdout.split())
    return numpy_s, suffice_s


def installed_megabytes() -> float:
    """Our own files; numpy and pyarrow are the only packages a core install brings."""
    import suffice

    requires = importlib.metadata.requires("suffice") or []
    core = sorted(line.split(">")[0] for line in requires if "extra ==" not in line)
    if core != ["numpy", "pyarrow"]:
        raise SystemExit(f"the core requires {core}")
    from pathlib import Path

    folder = Path(str(suffice.__file__)).parent
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def main() -> dict[str, float]:
    times = [_once() for _ in range(7)]
    return {
        "import suffice after numpy, seconds (at most 0.05)": min(each[1] for each in times),
        "import numpy, seconds": min(each[0] for each in times),
        "core install beyond numpy and pyarrow, MB (under 60)": installed_megabytes(),
    }
