"""What importing and starting cost: over numpy, over an empty interpreter, in modules, on disk."""

from __future__ import annotations

import importlib.metadata
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

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
    """Our own files; a core install brings cyclopts, numpy, pyarrow and rich besides."""
    import suffice

    requires = importlib.metadata.requires("suffice") or []
    core = sorted(re.split("[<>=]", line)[0] for line in requires if "extra ==" not in line)
    if core != ["cyclopts", "numpy", "pyarrow", "rich"]:
        raise SystemExit(f"the core requires {core}")
    folder = Path(str(suffice.__file__)).parent
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6


def cpu_seconds(*command: str, runs: int = 7) -> float:
    """The least CPU time of a process over several runs."""

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    times = []
    for _ in range(runs):
        before = spent()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        times.append(spent() - before)
    return min(times)


def modules_of_a_controller() -> int:
    """Modules of ours in an interpreter that loaded a rule's policy file."""
    import suffice

    with tempfile.TemporaryDirectory() as folder:
        file = suffice.save_policy(
            suffice.RulePolicy(rule="answer_stable"), Path(folder) / "policy.json"
        )
        code = (
            f"import sys, suffice; suffice.Controller.load({str(file)!r}); "
            "print(sum(name.partition('.')[0] == 'suffice' for name in sys.modules))"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
    return int(done.stdout)


def starting() -> dict[str, float]:
    """What starting the command costs, over an empty interpreter and over numpy."""
    command = ("-m", "suffice.cli.main")
    version = cpu_seconds(*command, "--version") / cpu_seconds("-c", "pass")
    replay_help = cpu_seconds(*command, "replay", "--help") / cpu_seconds("-c", "import numpy")
    return {
        "CPU of suffice --version over python -c pass (at most 5)": version,
        "CPU of suffice replay --help over import numpy (at most 1.5)": replay_help,
    }


def main() -> dict[str, float]:
    times = [_once() for _ in range(7)]
    return {
        "import suffice after numpy, seconds (at most 0.05)": min(pair[1] for pair in times),
        "import numpy, seconds": min(pair[0] for pair in times),
        **starting(),
        "our modules that loading a rule's controller imports (at most 30)": modules_of_a_controller(),
        "core install beyond numpy and pyarrow, MB (under 60)": installed_megabytes(),
    }
