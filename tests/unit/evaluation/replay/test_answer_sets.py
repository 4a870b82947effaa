from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.builders import with_rounds

from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.results import PolicyResult
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.policy_file import save_policy
from suffice.policies.registry import fit_method
from suffice.scoring import exact_match
from suffice.signals.signal_table import signal_table
from suffice.testing.traces import sampled_records, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet

RECORDS = sampled_records(300)
TRACES = to_trace_set(RECORDS)


def fitted(**options: Any) -> MiCPPolicy:
    policy = fit_method("micp", TRACES, "corrected", "tune", alpha=0.2, weight=1.0, **options)
    assert isinstance(policy, MiCPPolicy)
    return policy


def replayed(policy: MiCPPolicy, folder: Path, traces: TraceSet = TRACES) -> PolicyResult:
    path = save_policy(policy, folder / "policy.json", max_rounds=policy.rounds)
    return compare(traces, ComparisonSettings(policies=(str(path),))).result.policies[0]


def test_coverage_size_and_rate_are_those_of_the_sets(tmp_path: Path) -> None:
    policy = fitted()
    found = replayed(policy, tmp_path)
    assert found.sets is not None
    evaluated = TRACES.only_split("eval")
    covered, sizes = [], []
    for each, record, stop in zip(found.sets.sets, evaluated.records(), found.stops, strict=True):
        sizes.append(len(each.answers) + each.cannot_answer)
        right = any(exact_match(m.answer, record.gold.answers) for m in each.answers)
        sampled = [s for r in record.rounds for s in r.samples or ()]
        never = not any(exact_match(s, record.gold.answers) for s in sampled)
        covered.append(right or (each.cannot_answer and never))
        assert each.cannot_answer == (stop == 3)
    assert found.sets.coverage is not None
    assert found.sets.coverage.estimate == pytest.approx(np.mean(covered))
    assert found.sets.coverage.low <= np.mean(covered) <= found.sets.coverage.high
    assert found.sets.set_size.estimate == pytest.approx(np.mean(sizes))
    assert found.sets.answer_rate == pytest.approx((found.stops < 3).mean())


def test_json_names_what_the_contract_names(tmp_path: Path) -> None:
    path = save_policy(fitted(), tmp_path / "policy.json", max_rounds=3)
    result = compare(TRACES, ComparisonSettings(policies=(str(path), "fixed-2"))).result
    micp, fixed = result.to_json(per_question=True)["policies"][:2]
    assert micp["name"] == "micp"
    assert {"coverage", "set_size", "answer_rate", "objective", "sets"} <= micp.keys()
    assert "coverage" not in fixed
    assert set(micp["sets"]) == set(micp["rounds"])
    assert "sets" not in result.to_json()["policies"][0]
    json.dumps(micp, allow_nan=False)


def test_the_filter_is_replayed_on_recorded_relevance(tmp_path: Path) -> None:
    policy = fitted(alpha_retrieval=0.3)
    found = replayed(policy, tmp_path).sets
    assert found is not None
    assert found.retention is not None
    assert policy.filter is not None
    least = policy.filter.threshold
    kept = [
        [(p.score or 0.0) >= least for r in each.rounds[:2] for p in r.passages or ()]
        for each in TRACES.only_split("eval").records()
    ]
    assert found.retention.passages == pytest.approx(np.mean([np.mean(each) for each in kept]))
    assert found.retention.all == pytest.approx(np.mean([all(each) for each in kept]))
    every, some, shown = found.retention.all, found.retention.passages, found.retention.shown
    assert every is not None
    assert some is not None
    assert shown is not None
    assert every < some < 1
    assert shown < some


def test_what_breaks_the_promise_is_noted(tmp_path: Path) -> None:
    fewer = [with_rounds(each, samples=lambda one: (one.samples or ())[:3]) for each in RECORDS]
    found = replayed(fitted(), tmp_path, to_trace_set(fewer)).sets
    assert found is not None
    assert any("hold 3 samples and it was calibrated on 5" in note for note in found.notes)
    short = to_trace_set([replace(each, rounds=each.rounds[:2]) for each in RECORDS])
    found = replayed(fitted(), tmp_path, short).sets
    assert found is not None
    assert any("fewer than the 3 rounds" in note for note in found.notes)
    filtered = replace(fitted(), filtered=True)
    found = replayed(filtered, tmp_path).sets
    assert found is not None
    assert any("recorded without that filter" in note for note in found.notes)


def test_a_budget_below_the_policys_own_ends_sets_too(tmp_path: Path) -> None:
    policy = fitted(rounds=3)
    path = save_policy(policy, tmp_path / "policy.json", max_rounds=1)
    found = compare(TRACES, ComparisonSettings(policies=(str(path),))).result.policies[0]
    assert found.sets is not None
    evaluated = TRACES.only_split("eval")
    fired = policy.fired(signal_table(evaluated, policy.specs))
    assert {*fired.tolist()} > {1, 2}  # some would stop later
    covered = []
    for each, record, at in zip(found.sets.sets, evaluated.records(), fired, strict=True):
        assert {member.round for member in each.answers} <= {1}
        assert each.cannot_answer == (at != 1)
        right = any(exact_match(m.answer, record.gold.answers) for m in each.answers)
        sampled = [s for r in record.rounds for s in r.samples or ()]
        never = not any(exact_match(s, record.gold.answers) for s in sampled)
        covered.append(right or (each.cannot_answer and never))
    assert found.sets.coverage is not None
    assert found.sets.coverage.estimate == pytest.approx(np.mean(covered))
    assert found.sets.answer_rate == pytest.approx(np.mean(fired == 1))
    assert found.sets.objective is not None
    assert found.sets.objective <= found.mean_rounds + 1  # mean rounds less a gain in [-1, 1]


def test_retention_is_not_measured_where_passages_were_dropped(tmp_path: Path) -> None:
    policy = fitted()
    assert policy.filter is not None
    origin = replace(TRACES.origin, run={"passage_filter": policy.filter.stated()})
    filtered = replace(TRACES, origin=origin)
    found = replayed(policy, tmp_path, filtered).sets
    assert found is not None
    assert found.retention is None
    assert any("recorded with a filter" in note for note in found.notes)
    found = replayed(replace(policy, filtered=True), tmp_path, filtered).sets
    assert found is not None
    assert not any("its promise does not hold here" in note for note in found.notes)


def test_coverage_needs_gold_answers(tmp_path: Path) -> None:
    """Beside agreement a set may hold the full budget's answer, of which nothing was promised."""
    path = save_policy(fitted(), tmp_path / "policy.json", max_rounds=3)
    result = compare(TRACES, ComparisonSettings(policies=(str(path),), metric="agreement")).result
    found = result.policies[0]
    assert found.sets is not None
    assert (found.sets.coverage, found.sets.objective) == (None, None)
    assert any("coverage and objective need gold answers" in note for note in result.notes)
