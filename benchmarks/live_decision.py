"""What a live decision adds to computing its signals: microseconds at the 99th percentile."""

from __future__ import annotations

import time

import numpy as np

from suffice.pipelines.live.controller import Controller
from suffice.policies.rules.policy import RulePolicy
from suffice.signals.table import signal_value
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import LoopView

RULE = "answer_stable and not abstained and answer_token_margin > 2"


def main() -> dict[str, float]:
    policy = RulePolicy(rule=RULE)
    controller = Controller(policy, max_rounds=5)
    record = make_record("q", ["a", "b", "c", "d", "d"], margins=[1.0, 1.0, 1.0, 1.0, 3.0])
    beyond: list[float] = []
    for _ in range(4_000):
        controller.start(record.question.text)
        for number, finished in enumerate(record.rounds, start=1):
            started = time.perf_counter()
            controller.observe(finished)
            observed = time.perf_counter() - started
            view = LoopView(record.question.text, record.rounds[:number])
            started = time.perf_counter()
            for spec in policy.specs:
                signal_value(spec, view)
            beyond.append(observed - (time.perf_counter() - started))
    return {
        "live decision beyond its signals, p99, microseconds (under 50)": float(
            np.percentile(beyond, 99) * 1e6
        ),
        "live decision beyond its signals, median, microseconds": float(np.median(beyond) * 1e6),
    }
