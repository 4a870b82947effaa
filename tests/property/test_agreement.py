"""Agreement is the same scoring with the full budget's answer as the single gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from tests.properties import examples
from tests.question_records import question_records

from suffice.costs.usage import CostModel
from suffice.evaluation.choose.search import search
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.named_policies import named_policies
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.interface import choose
from suffice.measures.measures import Measures
from suffice.scoring import answer_form, normalize_answer
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.records import Gold, QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

RULES = ("answer_stable", "not abstained", "answer_stable or round >= 3")


def of_full_budget(records: Sequence[QuestionRecord]) -> TraceSet:
    """The records with each one's last answer as its only gold answer."""
    return to_trace_set(
        [
            replace(record, gold=replace(record.gold, answers=(record.rounds[-1].answer_text,)))
            for record in records
        ]
    )


def unlabelled(records: Sequence[QuestionRecord]) -> TraceSet:
    return to_trace_set([replace(record, gold=Gold()) for record in records])


@settings(max_examples=examples(50), deadline=None)
@given(records=question_records())
def test_on_gold_answers_of_the_full_budget_agreement_is_em_and_f1(
    records: list[QuestionRecord],
) -> None:
    """For every policy, with blank, abstaining and repeated answers and records of any length.

    But for the choice "A", which agrees with itself and of which official scoring leaves nothing.
    """
    answers = [played.answer_text for record in records for played in record.rounds]
    assume(all(answer_form(answer) == normalize_answer(answer) for answer in answers))
    how = ComparisonSettings(baseline="fixed-1", resamples=20, cost="rounds")
    results = []
    for traces, metric in ((to_trace_set(records), "agreement"), (of_full_budget(records), "f1")):
        measures = Measures(traces).by(metric)
        built = named_policies(measures, ("fixed-1", "fixed-2", "fixed-4"), RULES)
        results.append(replay(measures, built, how))
    by_agreement, by_gold = results
    assert by_agreement.labelled == by_gold.labelled
    for agreeing, right in zip(by_agreement.policies, by_gold.policies, strict=True):
        assert (agreeing.em, agreeing.f1, agreeing.acc) == (right.em, right.f1, right.acc)
        assert (agreeing.interval, agreeing.delta) == (right.interval, right.delta)
        assert (agreeing.retained, agreeing.frontier_gain) == (right.retained, right.frontier_gain)
        assert agreeing.stops.tolist() == right.stops.tolist()
    assert by_agreement.frontier == by_gold.frontier


@pytest.fixture(scope="module")
def records() -> list[QuestionRecord]:
    return random_records(60, seed=4)


def _searched(traces: TraceSet, metric: Any) -> Any:
    wanted = SearchSettings(
        signals=("answer_stable", "calibrated(answer_token_margin)"),
        form="and",
        grid=8,
        metric=metric,
        resamples=20,
    )
    return [(rule.rule, rule.f1, rule.em, rule.delta) for rule in search(traces, wanted).rules]


def _chosen(traces: TraceSet, metric: Any) -> Any:
    choice = choose(
        traces,
        family="rule",
        signals=("answer_stable", "answer_token_margin"),
        max_loss=0.4,
        confidence=0.6,
        loss="wrong-stop",
        metric=metric,
        cost="rounds",
        resamples=2,
    )
    ranked = {one.candidate.policy.label: (one.loss, one.cost) for one in choice.ranked}
    return choice.title, ranked


def _compared(traces: TraceSet, metric: Any) -> Any:
    wanted = ComparisonSettings(
        policies=("fixed-1", "tasr", "tasr-corrected", "margin-alone"),
        rules=("calibrated(answer_token_margin) > 0.5",),
        metric=metric,
        resamples=20,
        cost_model=CostModel(),
    )
    policies = compare(traces, wanted).result.policies
    return [(one.name, one.stops.tolist(), one.em, one.f1, one.delta) for one in policies]


@pytest.mark.parametrize("outcome", [_compared, _searched, _chosen])
def test_no_gold_answer_is_read(outcome: Any, records: list[QuestionRecord]) -> None:
    """Asked for on a labelled record, by itself on an unlabelled one, and with such gold: all one."""
    asked = outcome(to_trace_set(records), "agreement")
    assert asked == outcome(unlabelled(records), None)
    assert asked == outcome(of_full_budget(records), "f1")
    assert asked != outcome(to_trace_set(records), "f1")


@settings(max_examples=examples(50), deadline=None)
@given(records=question_records())
def test_no_score_falls_by_more_than_the_share_of_answers_changed(
    records: list[QuestionRecord],
) -> None:
    """What a bound on changed answers says of the truth, at every stop of every question.

    Of answers that official scoring tells apart as well: it takes 3.50 for another answer than 3.5.
    """
    answers = [played.answer_text for record in records for played in record.rounds]
    assume(all(answer_form(answer) == normalize_answer(answer) for answer in answers))
    measures = Measures(to_trace_set(records))
    true, agreeing = measures.scores(), measures.by("agreement").scores()
    both = true.labelled & agreeing.labelled
    last = measures.traces.last_rounds[both] - 1
    changed = 1.0 - agreeing.em[both]
    for scores in (true.em[both], true.f1[both], true.acc[both]):
        lost = scores[np.arange(len(last)), last][:, None] - scores
        assert (lost <= changed + 1e-12)[np.isfinite(lost)].all()
