"""Questions for the evaluation of AB-RAG."""

from __future__ import annotations

import numpy as np

from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet


def study_traces(*, tune: bool = True) -> TraceSet:
    """Agreement is 1 for right answers and 1/3 for wrong ones; the other signals are noise."""
    rng = np.random.default_rng(0)
    records = []
    for number in range(60):
        answers = [str(rng.choice(["Oslo", "Rome"])) for _ in range(3)]
        split = "tune" if tune and number % 2 else "eval"
        signals = [
            {
                "self_consistency": 1.0 if answer == "Oslo" else 1 / 3,
                "evidence_consistency": float(rng.random()),
                "rerank_variance": float(rng.random()) / 4,
            }
            for answer in answers
        ]
        name = f"q{number:02d}"
        records.append(make_record(name, answers, gold=["Oslo"], split=split, signals=signals))
    return to_trace_set(records)
