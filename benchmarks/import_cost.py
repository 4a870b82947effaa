"""What importing and starting cost: over numpy, and over an empty interpreter."""

from __future__ import annotations

import resource
import subprocess
import sys

CODE = """
import time
import numpy
started = time.perf_counter()
import suffice
print(time.perf_counter() - started)
"""


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


def main() -> dict[str, float]:
    command = ("-m", "suffice.cli.main")
    version = cpu_seconds(*command, "--version") / cpu_seconds("-c", "pass")
    replay_help = cpu_seconds(*command, "replay", "--help") / cpu_seconds("-c", "import numpy")
    done = [
        subprocess.run([sys.executable, "-c", CODE], check=True, capture_output=True, text=True)
        for _ in range(7)
    ]
    return {
        "import suffice after numpy, seconds (at most 0.05)": min(
            float(one.stdout) for one in done
        ),
        "CPU of suffice --version over python -c pass (at most 5)": version,
        "CPU of suffice replay --help over import numpy (at most 1.5)": replay_help,
    }
