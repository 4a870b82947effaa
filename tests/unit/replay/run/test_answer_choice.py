"""Which answer is returned after the stop, against plain loops and on recorded traces."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from suffice.costs.usage import CostReads, cost_matrix
from suffice.errors import UsageError
from suffice.measures.costs import paid_together
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import RulePolicy
from suffice.protocols import PolicyTable
from suffice.replay.choose.certified import CertifiedSettings, fit_certified
from suffice.replay.choose.families import FamilySettings
from suffice.replay.choose.search import search
from suffice.replay.run.answer_choice import answer_rounds, running_best
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.macro import macro_means
from suffice.replay.run.results import PolicyResult
from suffice.replay.settings import ComparisonSettings, SearchSettings
from suffice.scoring import AnswerChoice
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.table import TraceSet


def recorded() -> TraceSet:
    """Two questions right in one round alone: "a" in round 2 of 4, "b" in round 1 of 2."""
    return to_trace_set(
        [
            make_record(
                "a",
                ["x", "Oslo", "y", "z"],
                gold=["Oslo"],
                signals=[{"error": 3.0}, {"error": 1.0}, {}, {"error": 2.0}],
            ),
            make_record(
                "b", ["Oslo", "x"], gold=["Oslo"], signals=[{"error": 1.0}, {"error": 1.0}]
            ),
        ]
    )


def replayed(traces: TraceSet, answer: str, *names: str, rules: tuple[str, ...] = ()) -> Comparison:
    return compare(
        traces,
        ComparisonSettings(
            policies=names, rules=rules, answer=answer, resamples=20, baseline="fixed-1"
        ),
    )


def policy(comparison: Comparison, name: str) -> PolicyResult:
    return next(result for result in comparison.result.policies if result.name == name)


def twin(values: list[float], stop: int) -> int:
    """The last of the greatest defined values up to the stop, from 1; the stop where none is defined."""
    defined = [
        (value, number)
        for number, value in enumerate(values[:stop], start=1)
        if not math.isnan(value)
    ]
    return max(defined)[1] if defined else stop


@given(
    st.integers(1, 6).flatmap(
        lambda rounds: st.lists(
            st.lists(st.sampled_from([math.nan, 0.0, 0.5, 1.0]), min_size=rounds, max_size=rounds),
            min_size=1,
            max_size=4,
        )
    )
)
def test_the_best_round_up_to_each_stop(values: list[list[float]]) -> None:
    assert running_best(np.array(values)).tolist() == [
        [twin(row, stop) for stop in range(1, len(row) + 1)] for row in values
    ]


def test_scores_are_those_of_the_answer_returned_and_rounds_those_of_the_stop() -> None:
    full = policy(replayed(recorded(), "lowest:error", "fixed-4"), "fixed-4")
    assert (full.stops.tolist(), full.answers.tolist()) == ([4, 2], [2, 2])  # of equals the latest
    assert (full.em, full.mean_rounds) == (0.5, 3.0)
    assert policy(replayed(recorded(), "highest:error", "fixed-4"), "fixed-4").em == 0.0
    latest = policy(replayed(recorded(), "latest", "fixed-4"), "fixed-4")
    assert (latest.answers.tolist(), latest.em) == ([4, 2], 0.0)


def test_a_choice_pays_for_every_answer_up_to_the_stop_and_says_so() -> None:
    traces = recorded()
    chosen, latest = (replayed(traces, answer, "fixed-4") for answer in ("lowest:error", "latest"))
    paid = policy(chosen, "fixed-4").costs["prompt_tokens"]
    every = cost_matrix(traces, "prompt_tokens", reads=CostReads(answers=True))
    assert paid == every[[0, 1], [3, 1]].mean() == 650.0
    assert policy(latest, "fixed-4").costs["prompt_tokens"] == 300.0
    assert chosen.result.full_costs["prompt_tokens"] == 650.0
    assert any("pays for the answers" in note for note in chosen.result.notes)
    document = chosen.result.to_json(per_question=True)
    assert document["answer"] == "lowest:error"
    entry = next(entry for entry in document["policies"] if entry["name"] == "fixed-4")
    assert entry["answer_rounds"] == {"a": 2, "b": 2}
    assert latest.result.to_json()["answer"] == "latest"


def test_the_fixed_frontier_and_the_means_over_sets_return_chosen_answers_too() -> None:
    comparison = replayed(recorded(), "lowest:error", "fixed-4")
    frontier = comparison.result.frontier
    assert frontier is not None
    assert frontier.scores == (0.5, 0.5, 0.5, 0.5)
    mean = macro_means([comparison, comparison]).policies
    assert {one.name: one.score.estimate for one in mean}["fixed-4"] == 0.5


def test_the_policys_own_confidence_chooses_and_a_policy_without_one_returns_the_latest() -> None:
    class Sure(RulePolicy):
        def confidence(self, table: PolicyTable) -> NDArray[np.float64] | None:
            return np.array([[0.1, 0.9, math.nan, 0.4], [0.6, 0.6, math.nan, math.nan]])

    measures = Measures(recorded()).by("em")
    sure = answer_rounds(measures, AnswerChoice.parse("most-confident"), Sure(rule="round == 4"))
    assert sure.rounds[:, :2].tolist() == [[1, 2], [1, 2]]
    assert sure.rounds[0].tolist() == [1, 2, 2, 2]
    assert sure.reads is not None
    assert paid_together(CostReads(), sure.reads).answers
    comparison = replayed(recorded(), "most-confident", "fixed-4")
    assert policy(comparison, "fixed-4").answers.tolist() == [4, 2]
    assert policy(comparison, "fixed-4").costs["prompt_tokens"] == 300.0
    assert any("no confidence is known of fixed-4" in note for note in comparison.result.notes)


@pytest.mark.parametrize("text", ["best", "lowest", "highest:", "latest:error", ""])
def test_an_unknown_choice_is_refused_with_what_to_type(text: str) -> None:
    with pytest.raises(UsageError, match=r"type latest, most-confident, highest:NAME or lowest"):
        replayed(recorded(), text, "fixed-4")


def test_an_unknown_signal_and_agreement_are_refused() -> None:
    with pytest.raises(UsageError, match="nonesuch"):
        replayed(recorded(), "lowest:nonesuch", "fixed-4")
    unlabelled = to_trace_set([make_record("a", ["x", "y"], signals=[{"error": 1.0}] * 2)])
    with pytest.raises(UsageError, match="leave out --answer"):
        replayed(unlabelled, "lowest:error", "fixed-2")


def test_a_round_without_an_answer_is_not_chosen() -> None:
    errors = [{"error": 2.0}, {"error": 1.0}, {"error": 3.0}]
    record = make_record("a", ["Oslo", "x", "y"], gold=["Oslo"], signals=errors)
    first, second, third = record.rounds
    silent = replace(
        record, rounds=(first, replace(second, answer=None, response=None, tokens=None), third)
    )
    full = policy(replayed(to_trace_set([silent]), "lowest:error", "fixed-3"), "fixed-3")
    assert (full.answers.tolist(), full.em) == ([1], 1.0)


def shared(name: str) -> Path:
    root = os.environ.get("SUFFICE_DATA")
    if root is None:
        pytest.skip("needs recorded traces: set SUFFICE_DATA to the folder that holds traces/")
    return Path(root) / "traces" / f"{name}.parquet"


def test_where_loops_get_worse_the_answer_of_least_error_beats_the_latest() -> None:
    best, latest = (
        compare(
            shared("loopgain_w5"),
            ComparisonSettings(policies=("fixed-20",), answer=answer, metric="score", resamples=20),
        )
        for answer in ("lowest:error", "latest")
    )
    scores = [policy(comparison, "fixed-20").score for comparison in (best, latest)]
    assert scores == [pytest.approx(0.7604, abs=5e-5), pytest.approx(0.3375)]


@pytest.mark.parametrize(
    ("log", "latest", "most_confident"), [("ollama", 0.45, 0.48), ("local", 0.345, 0.345)]
)
def test_the_most_confident_answers_of_the_confidence_studys_logs(
    log: str, latest: float, most_confident: float
) -> None:
    traces = shared(f"abrag_hotpotqa_{log}")
    for answer, em in (("latest", latest), ("most-confident", most_confident)):
        comparison = compare(
            traces, ComparisonSettings(policies=("ab-rag",), answer=answer, resamples=20)
        )
        assert policy(comparison, "ab-rag").em == pytest.approx(em)


def test_a_search_finds_what_a_replay_of_its_rules_finds() -> None:
    settings = SearchSettings(
        signals=("error",), metric="score", answer="lowest:error", resamples=20, cost="llm_calls"
    )
    (rule,) = (found := search(shared("loopgain_w5"), settings)).rules
    comparison = compare(
        shared("loopgain_w5"),
        ComparisonSettings(
            rules=(rule.rule,),
            metric="score",
            answer="lowest:error",
            resamples=20,
            cost="llm_calls",
        ),
    )
    replayed_rule = policy(comparison, rule.rule)
    assert rule.interval.estimate == pytest.approx(replayed_rule.score)
    assert rule.cost == pytest.approx(replayed_rule.costs["llm_calls"])
    assert found.to_json()["answer"] == "lowest:error"


def test_certified_choice_gains_nothing_by_stopping_where_the_best_answer_is_returned() -> None:
    found = {
        answer: fit_certified(
            shared("loopgain_w5"),
            CertifiedSettings(metric="score", answer=answer, family=FamilySettings(family="fixed")),
        ).policy.guarantee
        for answer in ("latest", "lowest:error")
    }
    assert found["latest"]["loss_on_testing_half"] == pytest.approx(-0.43125)
    assert found["lowest:error"]["loss_on_testing_half"] >= 0.0
    assert [guarantee.get("answer") for guarantee in found.values()] == [None, "lowest:error"]
    with pytest.raises(UsageError, match="confidence is each policy's own"):
        fit_certified(shared("loopgain_w5"), CertifiedSettings(answer="most-confident"))
