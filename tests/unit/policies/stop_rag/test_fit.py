"""Fitting end to end on a small encoder: division, provenance, checkpoints, what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the extra 'learn' is missing")

from tests.stop_rag_traces import stop_rag_records

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.method import FitRun
from suffice.policies.policy_file import load_policy, policy_hash, save_policy
from suffice.policies.stop_rag.fit import fit_stop_rag
from suffice.policies.stop_rag.stop_rag_settings import StopRAGSettings
from suffice.policies.stop_rag.training import TrainingProgress
from suffice.signals.signal_table import first_stops
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.trace_set import TraceSet

QUICK = StopRAGSettings(features="signals", min_steps=20, epochs=0.1)


def single_world(count: int = 30, *, validation: int = 0) -> TraceSet:
    records = stop_rag_records("single", count, rounds=4, split="tune", seed=1)
    records += stop_rag_records("single", validation, rounds=4, split="validation", seed=2)
    return to_trace_set(records)


def test_a_fifth_of_the_split_validates() -> None:
    policy = fit_stop_rag(single_world(), "corrected", "tune", QUICK)
    assert policy.rounds == 4
    training, validation = policy.fitted_on["training"], policy.fitted_on["validation"]
    assert (training["questions"], validation["questions"]) == (24, 6)
    assert training["decisions"] == 72
    assert validation["split"] == "20% of tune"
    assert "splits" not in policy.fitted_on
    assert any("6 validation questions" in note for note in policy.notes)
    same = fit_stop_rag(single_world(), "corrected", "tune", QUICK)
    assert policy_hash(same) == policy_hash(policy)
    other = fit_stop_rag(single_world(), "corrected", "tune", replace(QUICK, seed=7))
    assert policy_hash(other) != policy_hash(policy)


def test_a_split_of_that_name_validates() -> None:
    policy = fit_stop_rag(single_world(validation=10), "corrected", "tune", QUICK)
    assert policy.fitted_on["training"]["questions"] == 30
    assert policy.fitted_on["validation"]["questions"] == 10
    assert policy.fitted_on["splits"] == ["tune", "validation"]


def test_text_is_learned_from_and_survives_its_file(tiny: Path, tmp_path: Path) -> None:
    seen: list[TrainingProgress] = []
    run = FitRun(progress=seen.append)
    settings = StopRAGSettings(encoder=str(tiny), min_steps=6, epochs=0.1, layers=0)
    policy = fit_stop_rag(single_world(), "corrected", "tune", settings, run)
    assert {each.label for each in seen} == {"read texts", "trained steps"}
    assert seen[-1].done == seen[-1].total == policy.fitted_on["training"]["steps"]
    assert policy.fitted_on["truncation"]["states"] == 30 * 3
    loaded = load_policy(save_policy(policy, tmp_path / "p")).policy
    assert policy_hash(loaded) == policy_hash(policy)


def without_samples(*, scores: bool) -> TraceSet:
    """Rounds with an own signal and no samples; with ``scores`` of their own instead of gold answers."""
    records = []
    for record in stop_rag_records("single", 30, rounds=3, split="tune", seed=1):
        rounds = tuple(
            replace(one, samples=None, signals={"own": float(number)})
            for number, one in enumerate(record.rounds)
        )
        own = {1: 0.25, 2: 1.0, 3: 0.5} if scores else {}
        gold = Gold() if scores else record.gold
        records.append(replace(record, rounds=rounds, scores=own, gold=gold))
    return to_trace_set(records)


@pytest.mark.parametrize("scores", [False, True])
def test_rounds_without_samples_are_learned_from_by_their_own_scores(
    tmp_path: Path, scores: bool
) -> None:
    measures = Measures(without_samples(scores=scores)).by(None)
    policy = fit_stop_rag(measures, "corrected", "tune", replace(QUICK, inputs=("all",)))
    assert "own" in policy.signals
    assert policy.fitted_on["reward"] == ("score" if scores else "f1")
    whose = "the record's own scores" if scores else "the f1 of each round's own answer"
    assert f"rewards are {whose}, one draw a round" in policy.notes[0]
    assert ("record with suffice record --samples 8" in policy.notes[0]) is not scores
    loaded = load_policy(save_policy(policy, tmp_path / "p")).policy
    table = measures.signals(policy.specs)
    assert (first_stops(loaded, table) == first_stops(policy, table)).all()
    with pytest.raises(UsageError, match="stop-rag is fitted on gold answers only"):
        fit_stop_rag(measures.by("agreement"), "corrected", "tune", QUICK)
