"""Every signal that a record gives without a model: by columns beside its slow twin, round after round.

Over a record whose answers, samples and passages have a word of each question's own, tokens included.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from tests.signal_twins import twin

from benchmarks.scale_records import Record, written
from benchmarks.timing import best_cpu_seconds
from suffice.signals.registry import SIGNALS
from suffice.signals.spec import SignalSpec
from suffice.signals.table import signal_columns
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

QUESTIONS, SLOW_QUESTIONS = 20_000, 400


def _specs() -> list[SignalSpec]:
    """Computed though the record may hold them."""
    held = [spec for spec in SIGNALS.values() if spec.columns is not None]
    return [replace(spec, own_settings=True) for spec in held]


def main() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder), Record(questions=QUESTIONS, varied=True))
        traces = read_traces(file, lazily_above=1 << 60)
    few = traces.take(np.arange(traces.n_questions) < SLOW_QUESTIONS)
    figures: dict[str, float] = {}
    for spec in _specs():
        figures |= _figures(spec, traces, few)
    return figures


def _figures(spec: SignalSpec, traces: TraceSet, few: TraceSet) -> dict[str, float]:
    (fast,) = signal_columns(few, [spec])
    (slow,) = signal_columns(few, [twin(spec)])
    defined = ~np.isnan(slow)
    assert (np.isnan(fast) == ~defined).all(), spec.name
    assert fast[defined].tobytes() == slow[defined].tobytes(), spec.name
    seconds = best_cpu_seconds(lambda: signal_columns(traces, [spec]), repeats=3)
    one_by_one = best_cpu_seconds(lambda: signal_columns(few, [twin(spec)]), repeats=1)
    scaled = one_by_one * traces.table.num_rows / few.table.num_rows
    return {
        f"{spec.name}: round after round over all at once": scaled / seconds,
        f"{spec.name}: seconds of all at once, {QUESTIONS:,} questions x 5 rounds": seconds,
    }
