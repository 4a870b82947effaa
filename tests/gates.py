"""Question and plan traces that the gate can be fitted on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from tests.plan_records import make_plan

from suffice.errors import SufficeWarning
from suffice.policies.gate.gate_settings import GateSettings
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.plan_traces import PlanRecord, PlanSet
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

AGREE, DIFFER = ("Oslo", "oslo"), ("Oslo", "Rome")


def published_settings(**changes: Any) -> GateSettings:
    """The paper's, without the warning that they never choose EXECUTE."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        return GateSettings.published(**changes)


def question(
    name: str, right: Sequence[bool], samples: Sequence[Sequence[str] | None], split: str = "tune"
) -> QuestionRecord:
    """Answers that are right or wrong, and what was drawn beside each."""
    answers = ["Oslo" if each else "Rome" for each in right]
    return make_record(name, answers, gold=["Oslo"], split=split, samples=samples)


def informative(count: int = 120, *, seed: int = 0) -> TraceSet:
    """Agreeing samples are right four times in five, others once."""
    rng = np.random.default_rng(seed)
    records = []
    for number in range(count):
        agree = rng.random(4) < 0.5
        right = rng.random(4) < np.where(agree, 0.8, 0.2)
        drawn = [AGREE if each else DIFFER for each in agree]
        split = "tune" if number % 2 else "eval"
        records.append(question(f"q{number:03d}", right.tolist(), drawn, split))
    return to_trace_set(records)


def plan(
    name: str, steps: Sequence[Mapping[str, float]], semantic: bool | None, *, seed: int = 0
) -> PlanRecord:
    made = make_plan(name, ["ASK"] * len(steps), seed=seed)
    with_values = tuple(
        replace(step, values=values) for step, values in zip(made.steps, steps, strict=True)
    )
    return replace(made, steps=with_values, outcome=replace(made.outcome, semantic=semantic))


def step(agreed: float, conflict: float = 0.0, remaining: float = 0.5) -> dict[str, float]:
    return {"candidate_agreement": agreed, "contradiction": conflict, "remaining_share": remaining}


def judged(count: int = 40) -> PlanSet:
    """Runs whose candidates agree succeed four times in five."""
    records = [
        plan(f"t{n:02d}", [step(float(n % 2))] * (1 + n % 3), (n % 5 != 0) == bool(n % 2))
        for n in range(count)
    ]
    return PlanSet(records=tuple(records), source="plans")
