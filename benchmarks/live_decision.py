"""A live decision over three signals, and what of it is the policy's own: milliseconds."""

from __future__ import annotations

import time

import numpy as np

from suffice.live.controller import Controller
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import GrowingRecord
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import LoopView

RULE = "answer_stable and not abstained and answer_token_margin > 2"


def main() -> dict[str, float]:
    policy = Rule(rule=RULE)
    controller = Controller(policy, max_rounds=5)
    record = make_record("q", ["a", "b", "c", "d", "d"], margins=[1.0, 1.0, 1.0, 1.0, 3.0])
    decided: list[float] = []
    measured: list[float] = []
    for _ in range(400):
        controller.start(record.question.text)
        signals = GrowingRecord(LoopView(record.question.text, ()), policy.specs)
        for finished in record.rounds:
            started = time.perf_counter()
            controller.observe(finished)
            between = time.perf_counter()
            signals.observe(finished)
            measured.append(time.perf_counter() - between)
            decided.append(between - started)
    return {
        "live decision over three signals, p99, ms (at most 5)": float(
            np.percentile(decided, 99) * 1e3
        ),
        "live decision over three signals, median, ms": float(np.median(decided) * 1e3),
        "of which computing the signals, median, ms": float(np.median(measured) * 1e3),
    }
