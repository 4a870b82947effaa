"""Rounds in which the loop was not asked for an answer: undefined throughout, never wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import of_rounds, with_rounds
from tests.properties import examples

from suffice.costs.usage import CostReads, stop_costs
from suffice.errors import UsageError
from suffice.evaluation.choose.search import search
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.live.controller import Controller
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import Rule
from suffice.signals.known_signals import SIGNALS, why_undefined
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.records import LoopView, Passage, QuestionRecord, Round, Usage
from suffice.trace.rounds.trace_set import TraceSet


def without_answer(finished: Round) -> Round:
    """The same round of a loop that is asked at its end; it made one call to go on."""
    usage = Usage(llm_calls=1, prompt_tokens=40, cached_tokens=0, completion_tokens=5)
    return replace(finished, answer=None, tokens=None, response=None, usage=usage)


def asked_at_the_end(count: int = 40) -> list[QuestionRecord]:
    """Three rounds, of which the last one answers; ``own`` rises to .5 in round 2 of every other question."""
    records = []
    for number, record in enumerate(random_records(count)):
        *before, last = record.rounds
        usage = Usage(
            llm_calls=2,
            answer_calls=1,
            prompt_tokens=100,
            answer_prompt_tokens=60,
            cached_tokens=0,
            answer_cached_tokens=0,
            completion_tokens=10,
            answer_completion_tokens=5,
        )
        rounds = [*map(without_answer, before), replace(last, usage=usage)]
        rises = (0.0, (number // 2 % 2) / 2, 1.0)
        told = (
            replace(finished, signals={"own": value})
            for finished, value in zip(rounds, rises, strict=True)
        )
        records.append(replace(record, rounds=tuple(told)))
    return records


@pytest.fixture(scope="module")
def traces() -> TraceSet:
    return to_trace_set(asked_at_the_end())


def test_scores_and_signals_that_read_answers_are_undefined_there(traces: TraceSet) -> None:
    measures = Measures(traces)
    scored = measures.scores()
    for values in (scored.em, scored.f1, scored.acc):
        assert np.isnan(values[:, :2]).all()
        assert not np.isnan(values[:, 2]).any()
    read = ["abstained", "answer_in_evidence", "answer_stable", "answer_repeats"]
    table = measures.signals([*read, "new_passages"])
    for name in read:
        assert np.isnan(table.signal(name)[:, :2]).all()
    # the round before gave no answer that this one could repeat
    assert np.isnan(table.signal("answer_repeats")).all()
    assert (table.signal("abstained")[:, 2] == 0).all()
    assert (table.signal("new_passages") == 1).all()  # reads no answer
    first = next(traces.records()).rounds[0]
    why = why_undefined(SIGNALS["abstained"], LoopView("?", (first,)))
    assert why is not None
    assert why.why == "this round has no answer"


def test_a_policy_that_stops_there_has_costs_and_no_score(traces: TraceSet) -> None:
    settings = ComparisonSettings(
        policies=("fixed-1", "fixed-3"), rules=("own >= 0.5", "own >= 1", "abstained == 0")
    )
    comparison = compare(traces, settings)
    by_name = {policy.name: policy for policy in comparison.result.policies}
    one, early = by_name["fixed-1"], by_name["own >= 0.5"]
    for policy in (one, early):
        scores = (policy.em, policy.f1, policy.acc, policy.interval, policy.delta)
        assert scores == (None,) * 5
        assert policy.frontier_gain is None
        assert policy.against_fixed == ()
    assert early.mean_rounds == 2.5
    assert one.at_stops.ranges == {}  # nothing is known
    low, high = (getattr(early.at_stops.ranges["f1"], end) for end in ("low", "high"))
    assert high - low == pytest.approx(0.5)  # half of the questions score anything
    assert early.to_json()["range"]["f1"] == {"low": low, "high": high, "interval": None}
    assert (one.costs["llm_calls"], early.costs["llm_calls"]) == (1.0, 3.0)
    for name in ("own >= 1", "abstained == 0"):  # reads on: undefined never fires
        assert by_name[name].f1 == by_name["fixed-3"].f1
        assert by_name[name].delta is not None
    frontier = comparison.result.frontier
    assert frontier is not None
    assert frontier.scores[:2] == (None, None)
    assert [number for number, _, _ in frontier.known] == [3]
    (note,) = [note for note in comparison.result.notes if note.startswith("no score is known")]
    assert "fixed-1 (20), own >= 0.5 (10): in so many of 20 questions with gold answers" in note
    assert "record an answer in every round" in note
    assert note.endswith("suffice probe TRACES --llm URL --out NEW")
    assert comparison.to_json()["frontier"]["f1"][0] is None


def test_a_round_without_an_answer_spends_nothing_on_one(traces: TraceSet) -> None:
    paid = stop_costs(traces, reads=CostReads())
    calls, tokens = paid["llm_calls"], paid["prompt_tokens"]
    assert calls is not None
    assert tokens is not None
    np.testing.assert_array_equal(calls[0], [1, 2, 4])
    np.testing.assert_array_equal(tokens[0], [40, 80, 180])


def test_costs_are_known_without_answer_calls_where_a_round_answers_or_goes_on() -> None:
    """One call a round: it answers where there is an answer, else it is the loop's."""
    usage = Usage(llm_calls=1, prompt_tokens=10)
    records = [with_rounds(record, usage=usage) for record in asked_at_the_end(4)]
    paid = stop_costs(to_trace_set(records), reads=CostReads())
    for name, each in (("llm_calls", 1), ("prompt_tokens", 10)):
        costs = paid[name]
        assert costs is not None
        np.testing.assert_array_equal(costs[0], [each, 2 * each, 3 * each])


def test_what_is_chosen_by_scores_needs_them_throughout(traces: TraceSet) -> None:
    with pytest.raises(
        UsageError, match="20 of 20 questions with gold answers have rounds"
    ) as caught:
        search(traces, SearchSettings(signals=("own",)))
    assert "the first: round 1 of question 'q01'" in str(caught.value)
    assert "record an answer in every round" in str(caught.value)


@given(
    answers=st.lists(st.sampled_from([None, "", "Oslo", "Rome"]), min_size=1, max_size=5),
    rule=st.sampled_from(["answer_stable", "answer_repeats or abstained", "not abstained"]),
)
@settings(max_examples=examples(60))
def test_a_live_loop_stops_where_replay_says(answers: list[str | None], rule: str) -> None:
    record = of_rounds(
        *(
            Round(answer=answer, passages=(Passage(id=str(number), text="x"),))
            for number, answer in enumerate(answers)
        )
    )
    policy = Rule(rule=rule)
    (stop,) = Measures(record).wanted_rounds(policy).tolist()
    controller = Controller(policy, max_rounds=len(answers)).start("Where?")
    live = next(
        number
        for number, finished in enumerate(next(record.records()).rounds, 1)
        if controller.observe(finished).stop
    )
    assert live == min(stop, len(answers))


def test_unlabelled_questions_need_no_answer() -> None:
    """Of a probed sample: the questions that nobody labelled are not in the way."""
    probed = random_records(20)
    unlabelled = [
        replace(
            record,
            gold=replace(record.gold, answers=()),
            question=replace(record.question, id=f"u{n}"),
        )
        for n, record in enumerate(asked_at_the_end(20))
    ]
    with_all = to_trace_set([*probed, *unlabelled])
    settings = SearchSettings(signals=("answer_token_margin",), resamples=5)
    found, alone = (search(one, settings).rules for one in (with_all, to_trace_set(probed)))
    assert [rule.rule for rule in found] == [rule.rule for rule in alone]
