from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from suffice.contracts import Clusters
from suffice.errors import DataError, UsageError
from suffice.live.controller import Controller
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.policies.policy_file import load_policy, policy_hash, save_policy
from suffice.scoring import Match
from suffice.signals.signal_table import SignalTable, first_stops
from suffice.stats.conformal import NEVER, Threshold
from suffice.stats.units import lots
from suffice.trace.rounds.records import Round

POLICY = MiCPPolicy(
    alpha=0.1,
    rounds=3,
    samples=4,
    stops=(Threshold(0.5, 0.25), Threshold(0.0, 0.6)),
    final=0.5,
    preset="corrected",
)


def sampled(*answers: str) -> Round:
    return Round(answer=answers[0] if answers else "", samples=answers)


def test_lots_are_uniform_and_depend_on_seed_question_and_round() -> None:
    draws = lots("42:1", [f"q{number}" for number in range(4000)])
    assert 0.0 <= draws.min() < 0.01
    assert 0.99 < draws.max() < 1.0
    counts, _ = np.histogram(draws, bins=10, range=(0, 1))
    assert ((counts - 400) ** 2 / 400).sum() < 27.9  # chi square, 9 degrees, 0.1%
    assert (
        len(
            {
                float(lots(key, [name])[0])
                for key, name in (("42:1", "q"), ("42:2", "q"), ("43:1", "q"), ("42:1", "r"))
            }
        )
        == 4
    )


def test_rounds_below_the_threshold_stop_and_ties_stop_by_lot() -> None:
    ids = tuple(f"q{number}" for number in range(2000))
    scores = np.full((2000, 3), 0.5)
    table = SignalTable(
        values={"normalized_entropy": scores}, exists=np.ones((2000, 3), bool), question_ids=ids
    )
    stops = first_stops(POLICY, table)
    # round 2's threshold lies below, so the others run to the end
    assert set(stops.tolist()) == {1, 3}
    assert abs((stops == 1).mean() - 0.25) < 0.04
    scores[:, 0] = 0.49
    assert (first_stops(POLICY, table) == 1).all()
    scores[:] = np.nan
    assert (first_stops(POLICY, table) == 3).all()
    assert (POLICY.fired(table) == 0).all()


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        ([("x", "x", "x", "y")], "= 0.4056 < 0.5 at round 1"),
        ([("w", "x", "y", "z")], "= 1 >= 0.5 at round 1"),
        ([("", "", "", "")], "is undefined (every sample is empty after normalization) at round 1"),
        ([("w", "x", "y", "z")] * 3, "full budget of 3 rounds"),
    ],
)
def test_decisions_say_why(rounds: list[tuple[str, ...]], expected: str) -> None:
    controller = Controller(POLICY).start("q")
    decisions = [controller.observe(sampled(*each)) for each in rounds]
    assert expected in decisions[-1].reason


def test_the_answer_set_merges_rounds_and_knows_when_it_cannot_answer() -> None:
    rounds = (
        sampled("Oslo", "oslo.", "Rome", "Bergen"),
        sampled("Rome", "the Rome", "Rome", ""),
        sampled("", "", "", "x"),
    )
    early = POLICY.answer_set(rounds[:2], stopped=True)
    assert [(each.answer, each.confidence, each.round) for each in early.answers] == [
        ("Rome", 0.75, 2),
        ("Oslo", 0.5, 1),
    ]
    assert (early.cannot_answer, early.size) == (False, 2)
    late = POLICY.answer_set(rounds, stopped=True)
    assert (late.cannot_answer, late.size) == (True, 3)
    assert POLICY.answer_set(rounds[:2], stopped=False).cannot_answer
    everything = replace(POLICY, final=-math.inf).answer_set(rounds, stopped=True)
    # samples that normalise to nothing are no answer
    assert {each.answer for each in everything.answers} == {"Rome", "Oslo", "Bergen", "x"}


def test_a_penalty_lowers_the_confidence_of_disagreeing_rounds() -> None:
    policy = replace(POLICY, penalty=0.5, final=-math.inf)
    (member,) = policy.answer_set((sampled("x", "x", "x", "x"),), stopped=False).answers
    assert member.confidence == 1.0
    found = policy.answer_set((sampled("x", "x", "y", "y"),), stopped=False).answers
    assert [each.confidence for each in found] == [0.25, 0.25]


def test_clusters_by_meaning_come_from_the_record() -> None:
    policy = replace(POLICY, clusters=Clusters(by="embedding"), final=-math.inf)
    merged = Round(
        answer="a", samples=("NYC", "New York", "Boston", "nyc"), sample_clusters=(0, 0, 2, 0)
    )
    found = policy.answer_set((merged,), stopped=False).answers
    assert [(each.answer, each.confidence) for each in found] == [("NYC", 0.75), ("Boston", 0.25)]
    controller = Controller(policy).start("q")
    assert "= 0.4056 <" in controller.observe(merged).reason
    with pytest.raises(DataError, match="not clustered by meaning"):
        Controller(policy).start("q").observe(sampled("a", "b", "c", "d"))


def test_matching_by_f1() -> None:
    assert Match()("the Oslo", ["oslo"])
    assert not Match()("Oslo city", ["Oslo"])
    assert Match(f1=0.6)("Oslo city", ["Oslo"])
    with pytest.raises(UsageError, match=r"\(0, 1\]"):
        Match(f1=0.0)


def test_the_file_gives_the_policy_back(tmp_path: Path) -> None:
    chosen = RelevanceFilter(
        threshold=1.5,
        relevance="rerank_score",
        alpha=0.2,
        preset="published",
        values=7,
        question_ids=("q1", "q2"),
    )
    policy = replace(
        POLICY,
        stops=(NEVER, Threshold(0.30000000000000004, 1 / 3)),
        final=-math.inf,
        stop_on="top-confidence",
        penalty=0.1,
        clusters=Clusters(by="embedding", cosine=0.8, encoder="e"),
        match=Match(f1=0.8),
        filter=chosen,
        filtered=True,
        seed=7,
        budget={"weight": 2.0},
        fitted_on={"calibration_questions": 9},
        notes=("so",),
    )
    path = save_policy(policy, tmp_path / "policy.json", max_rounds=3)
    found = load_policy(path)
    assert found.policy == policy
    assert found.max_rounds == 3
    assert policy_hash(policy) == policy_hash(replace(policy, budget={}, fitted_on={}, notes=()))
    assert policy_hash(policy) != policy_hash(replace(policy, seed=8))
