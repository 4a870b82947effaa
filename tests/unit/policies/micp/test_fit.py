from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.builders import with_rounds

from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.policies.micp.fit import fit_parts
from suffice.policies.micp.micp_settings import MiCPSettings
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.registry import fit_method
from suffice.stats.conformal import NEVER
from suffice.testing.traces import sampled_records, to_trace_set
from suffice.trace.rounds.records import Gold, QuestionRecord, Round
from suffice.trace.rounds.trace_set import TraceSet

RECORDS = sampled_records(300)
TRACES = to_trace_set(RECORDS)


def fit(traces: TraceSet = TRACES, preset: str = "corrected", **options: Any) -> MiCPPolicy:
    found = fit_method("micp", traces, preset, "tune", **options)  # type: ignore[arg-type]
    assert isinstance(found, MiCPPolicy)
    return found


def test_it_is_fitted_on_its_own_splits() -> None:
    policy = fit()
    assert policy.samples == 5
    assert policy.rounds == 3
    assert policy.fitted_on["splits"] == ["optimize", "calibrate"]
    assert policy.fitted_on["calibration_questions"] == 100
    assert sum(policy.fitted_on["first_round_scores"]["counts"]) == 100
    assert policy.budget["grid"] == "box"
    assert 66 < policy.budget["tried"] <= 121
    assert fit(grid="shares").budget["tried"] == 66
    # what is not in those splits has no say
    others = [replace(each, gold=Gold()) if i % 3 == 2 else each for i, each in enumerate(RECORDS)]
    assert fit(to_trace_set(others)) == policy


def test_another_split_is_divided_by_seed() -> None:
    traces = to_trace_set(sampled_records(120, splits=("tune", "eval")))
    policy = fit(traces)
    assert policy.fitted_on["splits"] == ["tune"]
    assert policy.fitted_on["optimize_questions"] == 20
    assert policy.fitted_on["calibration_questions"] == 40
    assert fit(traces, share=0.5).fitted_on["optimize_questions"] == 30
    first, second = (fit_parts(traces, "tune", MiCPSettings(seed=seed)) for seed in (1, 2))
    assert first.optimize.traces.question_ids != second.optimize.traces.question_ids
    assert not {*first.optimize.traces.question_ids} & {*first.calibrate.traces.question_ids}


def test_a_split_that_is_named_is_the_one_divided() -> None:
    policy = fit_method("micp", TRACES, "corrected", "eval")
    assert isinstance(policy, MiCPPolicy)
    assert policy.fitted_on["splits"] == ["eval"]
    with pytest.raises(UsageError, match="has no split 'other'"):
        fit_method("micp", TRACES, "corrected", "other")


@pytest.mark.parametrize("preset", ["corrected", "published"])
def test_what_is_fitted_by_default_stops_early(preset: str) -> None:
    policy = fit(preset=preset, alpha=0.2)
    assert policy.budget["objective"] == "rounds"
    assert policy.budget["on_optimize"] < policy.rounds
    assert any(stop != NEVER for stop in policy.stops)


def test_an_allocation_by_hand_is_kept_or_refused() -> None:
    policy = fit(alpha=0.2, allocation=(0.1, 0.05))
    assert policy.budget["allocation"] == "by hand"
    assert policy.budget["rounds"] == [0.1, 0.05]
    # what rounds leave goes to the answer set: n = 100, U_t as stated
    first, second = policy.budget["group_sizes"]
    spent = 0.1 * (first + 1) / 101 + 0.05 * (second + 1) / 101
    answerable = policy.budget["answerable"]
    expected = (0.2 - spent) * 101 / (answerable + 1)
    assert policy.budget["answer_set"] == pytest.approx(expected)
    with pytest.raises(UsageError, match=r"spend .* and alpha is 0.2"):
        fit(alpha=0.2, allocation=(0.9, 0.9))
    with pytest.raises(UsageError, match="for 3 rounds give 2 levels by hand, found 1"):
        fit(allocation=(0.1,))
    with pytest.raises(UsageError, match=r"lie in \[0, 1\]"):
        fit(allocation=(-0.1, 0.1))


def test_too_few_questions_are_told_and_take_the_full_budget() -> None:
    traces = to_trace_set(sampled_records(24, splits=("optimize", "calibrate")))
    with pytest.warns(SufficeWarning, match=r"too few questions for alpha = 0.05 "):
        policy = fit(traces, alpha=0.05)
    assert all(each.value == -np.inf for each in policy.stops)
    assert any("too few" in note for note in policy.notes)


def test_samples_must_be_there_and_equally_many() -> None:
    with pytest.raises(UsageError, match="--samples 10"):
        fit(to_trace_set([with_rounds(each, samples=None) for each in RECORDS]))
    uneven = [*RECORDS[:-2], with_rounds(RECORDS[-2], samples=("a", "b")), RECORDS[-1]]
    number = RECORDS[-2].question.id
    assert RECORDS[-2].question.split != "eval"
    with pytest.raises(DataError, match=f"of question '{number}' holds 2 samples"):
        fit(to_trace_set(uneven))


def test_all_samples_empty() -> None:
    traces = to_trace_set([with_rounds(each, samples=("", "", "")) for each in RECORDS])
    with pytest.warns(SufficeWarning, match="undefined in every round"):
        policy = fit(traces)
    assert all(each.value == -np.inf for each in policy.stops)


def test_stops_that_ties_prevent_cost_the_answer_set_nothing() -> None:
    """Every sample agrees: a strict threshold stops nobody, whatever it is given."""
    agreed = to_trace_set(
        [with_rounds(each, samples=(each.rounds[0].answer,) * 5) for each in RECORDS]
    )
    with pytest.warns(SufficeWarning, match="no division of the error budget"):
        policy = fit(agreed, "published", alpha=0.2)
    assert policy.budget["rounds"] == [0.0, 0.0]
    with pytest.warns(SufficeWarning, match="too many calibration questions tie"):
        by_hand = fit(agreed, "published", alpha=0.2, allocation=(0.1, 0.1))
    assert by_hand.budget["rounds"] == [0.0, 0.0]
    assert by_hand.final == policy.final
    assert any(note.startswith("ties") for note in policy.notes)


def test_gold_never_sampled() -> None:
    traces = to_trace_set([replace(each, gold=Gold(answers=("Paris",))) for each in RECORDS])
    with pytest.warns(SufficeWarning, match="right answer was ever sampled"):
        policy = fit(traces)
    assert policy.final == -np.inf


def test_the_same_question_in_both_parts_is_told() -> None:
    doubled = [
        replace(each, question=replace(each.question, text="The same?")) if i in (0, 1) else each
        for i, each in enumerate(RECORDS)
    ]
    with pytest.warns(SufficeWarning, match="on 1 question alike, .* 'same'"):
        fit(to_trace_set(doubled))


def test_the_filter_is_calibrated_beside_and_noted() -> None:
    policy = fit(alpha_retrieval=0.2)
    assert policy.filter is not None
    assert policy.filter.values == 100
    assert not policy.filtered
    assert any("--filter POLICY" in note for note in policy.notes)
    ids = {each.question.id for each in RECORDS if each.question.split == "calibrate"}
    assert set(policy.filter.question_ids) == ids
    bare = fit(to_trace_set([with_rounds(each, passages=()) for each in RECORDS]))
    assert bare.filter is None
    assert any("first stage was skipped" in note for note in bare.notes)


def test_a_record_made_under_a_filter_hands_it_on() -> None:
    chosen = fit(alpha_retrieval=0.2).filter
    assert chosen is not None
    origin = replace(TRACES.origin, run={"passage_filter": chosen.stated()})
    filtered = replace(TRACES, origin=origin)
    policy = fit(filtered)
    assert policy.filtered
    assert policy.filter == replace(chosen, question_ids=())
    assert fit(filtered, alpha_retrieval=0.2) == policy
    with pytest.raises(UsageError, match=r"alpha_retrieval = 0\.2, which is the policy's"):
        fit(filtered, alpha_retrieval=0.3)
    with pytest.raises(DataError, match="a passage filter is an object"):
        fit(replace(TRACES, origin=replace(TRACES.origin, run={"passage_filter": "none"})))


def clustered(records: list[QuestionRecord]) -> list[QuestionRecord]:
    """Each sample in the cluster of the first one equal to it."""

    def clusters(one: Round) -> tuple[int, ...]:
        samples = one.samples or ()
        return tuple(samples.index(each) for each in samples)

    return [with_rounds(each, sample_clusters=clusters) for each in records]


def test_published_clusters_by_meaning_where_the_record_does() -> None:
    made = to_trace_set(clustered(RECORDS))
    assert fit(made, "published", alpha=0.2).clusters.by == "embedding"
    assert fit(made, "corrected", alpha=0.2).clusters.by == "string"
    assert fit(made, "published", alpha=0.2, clusters="string").clusters.by == "string"
    unclustered = fit(preset="published", alpha=0.2)
    assert unclustered.clusters.by == "string"
    assert any("--cluster-cosine" in note for note in unclustered.notes)
    assert not any("--cluster-cosine" in note for note in fit(alpha=0.2).notes)
