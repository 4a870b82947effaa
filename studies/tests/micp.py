"""Questions for the evaluation of MiCP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Gold, Passage, QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

NAMES = ("Oslo", "oslo.", "Rome", "Bergen", "", "Paris")


def sampled_records(
    count: int, *, rounds: int = 3, samples: int = 5, seed: int = 0, clusters: bool = False
) -> list[QuestionRecord]:
    """Samples that agree more where they are right, passages of which two are right."""
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        record = make_record(f"q{number:04d}", ["Oslo"] * rounds, gold=["Oslo"])
        built = []
        for t, round_ in enumerate(record.rounds):
            knows = rng.random() < 0.25 + 0.2 * t
            weights = np.array([6, 2, 1, 1, 1, 1] if knows else [0, 0, 4, 3, 1, 3], float)
            drawn = tuple(rng.choice(NAMES, size=samples, p=weights / weights.sum()).tolist())
            labels = rng.integers(0, 3, size=samples).tolist()
            first = {label: labels.index(label) for label in labels}
            passages = tuple(
                Passage(id=f"p{number}-{t}-{i}", score=float(rng.normal(1.0 if i < 1 else 0.0)))
                for i in range(3)
            )
            built.append(
                replace(
                    round_,
                    samples=drawn,
                    passages=passages,
                    sample_clusters=tuple(first[label] for label in labels) if clusters else None,
                )
            )
        gold = Gold(answers=("Oslo",), passage_ids=(f"p{number}-0-0", f"p{number}-1-0", "absent"))
        made.append(replace(record, rounds=tuple(built), gold=gold))
    return made


def sampled_traces(count: int, **options: Any) -> TraceSet:
    return to_trace_set(sampled_records(count, **options))
