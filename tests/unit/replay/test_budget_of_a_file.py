"""A policy file's budget holds in replay as it does live."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffice.pipelines.live.controller import Controller
from suffice.policies.file import save_policy
from suffice.policies.rules.policy import RulePolicy
from suffice.replay.run.engine import ReplaySettings, replay
from suffice.replay.run.named_policies import named_policies
from suffice.testing.traces import make_record, to_trace_set

ANSWERS = {"a": "xxyyy", "b": "vwxyz", "c": "vwxyy", "d": "vv"}


def test_replay_stops_at_the_budget_of_the_file(tmp_path: Path) -> None:
    records = [make_record(name, list(text), gold=[text[-1]]) for name, text in ANSWERS.items()]
    traces = to_trace_set(records)
    file = save_policy(RulePolicy(rule="answer_stable"), tmp_path / "p.json", max_rounds=3)
    built = named_policies(traces, [str(file), "fixed-3"], ["answer_stable"])
    result = replay(traces, built, ReplaySettings(baseline="fixed-3", resamples=10))
    # a repeats at round 2; b never, c at round 5: both meet the budget of 3; d repeats at 2
    np.testing.assert_array_equal(result.policies[0].stops, [2, 3, 3, 2])
    np.testing.assert_array_equal(result.policies[2].stops, [2, 5, 5, 2])
    live = []
    for record in records:
        controller = Controller.load(file)
        live.append(next(n for n, r in enumerate(record.rounds, 1) if controller.observe(r).stop))
    np.testing.assert_array_equal(result.policies[0].stops, live)
