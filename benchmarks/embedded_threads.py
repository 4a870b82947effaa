"""Replicas and threads of the embedded model: questions a second alone and beside busy programs.

Each arrangement answers the same generated questions, two rounds with three samples, as many at a time as
it has replicas. Busy programs are Python processes that count. Walls of this machine: run it on idle cores.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings, processors
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.protocols import GenerationRequest

QUESTIONS = 6
BUSY = (0, 1, 2)


@contextmanager
def busy(programs: int) -> Iterator[None]:
    running = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(programs)
    ]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def rate(settings: EmbeddedSettings, programs: int) -> float:
    """Questions a second, the weights loaded."""
    recording = Recording(dataset="generated", settings=CumulativeSettings(rounds=2, samples=3))
    examples = load("generated", limit=QUESTIONS)
    with (
        EmbeddedModel.load(settings=settings) as model,
        tempfile.TemporaryDirectory() as folder,
        busy(programs),
    ):
        model.generate(GenerationRequest(prompt="Hello", max_tokens=1))
        started = time.perf_counter()
        record_examples(examples, model, Path(folder) / "t", recording, lambda _: None)
        return QUESTIONS / (time.perf_counter() - started)


def arrangements() -> dict[str, EmbeddedSettings]:
    """By name; the first is the default."""
    cores = processors()
    half = max(cores // 2, 1)
    return {
        f"{replicas} replicas x {threads} threads": EmbeddedSettings(
            replicas=replicas, threads=threads
        )
        for replicas, threads in ((min(cores, 2), half), (1, cores), (1, 1))
    }


def main() -> dict[str, float]:
    figures = {}
    best = 0.0
    for name, settings in arrangements().items():
        idle = rate(settings, 0)
        best = best or idle
        figures[f"{name}: questions a second over the default's"] = idle / best
        for programs in BUSY[1:]:
            figures[f"{name}: beside {programs} busy, over its own idle rate"] = (
                rate(settings, programs) / idle
            )
    figures["the default: questions a second (this machine)"] = best
    return figures
