"""Policies that nothing fits: fixed budgets, and rules of other systems against LoopGain's own outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.contracts import StopPolicy
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.policy_file import load_policy, policy_document, save_policy
from suffice.policies.registry import unfitted_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.signals.signal_table import SignalTable, first_stops
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet


def test_it_stops_at_its_round_live_and_recorded() -> None:
    policy: StopPolicy = FixedPolicy(2)
    table = SignalTable(values={}, exists=np.ones((1, 3), bool))
    assert policy.fires(table).tolist() == [[False, True, True]]
    table = SignalTable(values={}, exists=np.ones((3, 1), bool))
    assert first_stops(policy, table).tolist() == [2, 2, 2]
    assert (policy.kind, policy.signals, policy.specs) == ("fixed", (), ())


# --- rules of other systems -----------------------------------------------------------------------
def rule_of(name: str) -> Rule:
    policy = unfitted_policy(name)
    assert isinstance(policy, Rule)
    return policy


@pytest.mark.parametrize(
    ("name", "rule", "answer"),
    [
        (
            "loopgain",
            "error <= 0 or diverging(error) or oscillating(error) or stalling(error) >= 2",
            "first-lowest:error",
        ),
        (
            "loopgain-bands:1-overlap",
            "overlap >= 1 or gain(1 - overlap) >= 0.95",
            "first-highest:overlap",
        ),
        (
            "optillm-deep-research",
            "completeness > 0.9 or (improvement < 0.03 and completeness > 0.7)",
            "latest",
        ),
        (
            "optillm-deep-research:overlap",
            "overlap > 0.9 or (change(overlap) < 0.03 and overlap > 0.7)",
            "latest",
        ),
        ("patience-2", "since_lowest(error) >= 2", "first-lowest:error"),
        (
            "patience-3:highest:self_consistency",
            "since_highest(self_consistency) >= 3",
            "first-highest:self_consistency",
        ),
    ],
)
def test_a_name_is_a_rule(name: str, rule: str, answer: str, tmp_path: Path) -> None:
    policy = rule_of(name)
    assert (policy.rule, policy.needs.returns) == (rule, answer)
    save_policy(policy, tmp_path / "policy.json")
    loaded = load_policy(tmp_path / "policy.json").policy
    assert policy_document(loaded) == policy_document(policy)
    assert loaded.needs.returns == answer


@pytest.mark.parametrize(
    "name", ["patience-x", "loopgains", "loopgain:", "loopgain-other", "patienc"]
)
def test_other_names_are_none(name: str) -> None:
    assert unfitted_policy(name) is None


def replayed(answer: str) -> tuple[list[float | None], str]:
    """Of a question that is right in round 1 alone, its error least in rounds 1 and 2."""
    signals = [{"error": error} for error in (1.0, 1.0, 3.0, 0.0)]
    record = make_record("a", ["Oslo", "x", "y", "z"], gold=["Oslo"], signals=signals)
    settings = ComparisonSettings(
        policies=("patience-2", "loopgain-bands", "fixed-2"),
        answer=answer,
        resamples=20,
        baseline="fixed-2",
        split=None,
    )
    result = compare(to_trace_set([record]), settings).result
    return [policy.em for policy in result.policies], " ".join(result.notes)


def test_a_policy_returns_its_own_answer_unless_one_is_chosen() -> None:
    scores, notes = replayed("latest")
    assert scores == [1.0, 1.0, 0.0]
    assert "patience-2 returns one of the answers up to its stop, with the lowest error" in notes
    assert replayed("lowest:error")[0] == [0.0, 0.0, 0.0]


# --- LoopGain's own runs -------------------------------------------------------------------------
Trial = dict[str, Any]


def own_run(trial: Trial) -> Trial:
    run: Trial = trial["conditions"]["LG"]
    return run


def outcomes(policy: Rule, traces: TraceSet) -> dict[str, tuple[int, int]]:
    """Of every question the round it stops at and the one whose output is returned, from 1."""
    found: dict[str, tuple[int, int]] = {}
    for split in traces.splits or (None,):
        settings = ComparisonSettings(
            policies=(policy,), resamples=2, split=split, baseline="fixed-1"
        )
        comparison = compare(traces, settings)
        (result,) = (one for one in comparison.result.policies if one.kind == policy.kind)
        rounds = zip(result.stops.tolist(), result.answers.tolist(), strict=True)
        found |= zip(comparison.traces.question_ids, rounds, strict=True)
    return found


@pytest.fixture
def trials(data_folder: Path) -> list[Trial]:
    lines = (data_folder / "data/loopgain/w4_even.jsonl").read_text().splitlines()
    return [trial for trial in map(json.loads, lines) if "conditions" in trial]


def test_loopgain_is_reproduced_on_its_own_runs(trials: list[Trial]) -> None:
    """What LoopGain itself saw decides here as it did there, in every trial."""
    records = [
        make_record(
            trial["trial_id"],
            [f"output {number}" for number in range(own_run(trial)["iters"])],
            gold=["output 0"],
            signals=[{"error": error} for error in own_run(trial)["error_history"]],
        )
        for trial in trials
    ]
    assert outcomes(rule_of("loopgain-bands"), to_trace_set(records)) == {
        trial["trial_id"]: (own_run(trial)["iters"], own_run(trial)["best_index"] + 1)
        for trial in trials
    }
    assert len(trials) == 100


def test_loopgain_is_reproduced_on_the_full_record(trials: list[Trial], data_folder: Path) -> None:
    """On the run to the full budget the model drew round 2 anew: best rounds differ in 3 of 100 trials."""
    traces = read_traces(data_folder / "traces/loopgain_w4.parquet")
    replayed = outcomes(rule_of("loopgain-bands"), traces)
    errors = dict(zip(traces.question_ids, traces.stored_signal("error")[0], strict=True))
    differ = []
    for trial in trials:
        name, run = trial["trial_id"], own_run(trial)
        stop, returned = replayed[name]
        assert stop == run["iters"]
        if returned != run["best_index"] + 1:
            differ.append(name)
            assert run["error_history"][1] != errors[name][1]
    assert len(differ) == 3
