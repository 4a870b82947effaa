"""What was replayed is what runs: one definition of every policy, held by generated traces."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.typing import NDArray
from tests.every_policy import policies
from tests.properties import examples
from tests.question_records import question_records

from suffice.contracts import ConfidentPolicy, PolicyTable
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.evaluation.replay.answers import answer_rounds
from suffice.evaluation.replay.runner import stop_rounds
from suffice.live.controller import Controller
from suffice.live.watch import Watch
from suffice.measures.measures import Measures
from suffice.policies.policy_file import load_policy, policy_document, save_policy
from suffice.policies.unfitted import FixedPolicy
from suffice.scoring import AnswerChoice
from suffice.signals.signal_table import lack, signal_table
from suffice.testing.conformance import check_policy, incomplete_rounds
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces


@settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_first_live_stop_is_the_replayed_one(records: list[QuestionRecord]) -> None:
    for policy in policies():
        check_policy(policy, records)


EXAMPLES = Path(__file__).parents[2] / "examples" / "traces"
RECORDS = [
    file
    for folder in (EXAMPLES, Path(os.environ.get("SUFFICE_DATA", "nowhere")) / "traces")
    for file in sorted(folder.glob("*.parquet"))
]


@pytest.mark.parametrize("file", RECORDS, ids=lambda file: file.stem)
def test_replay_stops_where_live_loops_stop(file: Path) -> None:
    """Of recorded questions of real loops: the stop, the answer that most rounds gave, and what was cut."""
    record = read_traces(file)
    first_and_last = np.isin(np.arange(record.n_questions), (0, record.n_questions - 1))
    few = record.take(first_and_last)
    for policy in policies():
        if any(lack(spec, few) for spec in policy.specs):
            continue
        stops = stop_rounds(policy, few)
        majority = AnswerChoice.parse("majority")
        answers = answer_rounds(Measures.of(few), majority, policy).at(stops)
        watch = Watch(policy, mode="live", explore=0.5, answer="majority")
        cut = []
        for held, stop, answer in zip(few.records(), stops.tolist(), answers.tolist(), strict=True):
            live = watch.question(held.question.text, question_id=held.question.id)
            with incomplete_rounds(), live as loop:
                for finished in held.rounds:
                    if not loop.done:
                        loop.observe(finished)
            assert (loop.would_stop or len(held.rounds)) == stop
            assert len(loop.rounds) == (len(held.rounds) if loop.explored else stop)
            if not loop.explored and held.rounds[stop - 1].answer is not None:
                assert loop.answer_round == answer
            cut.append(replace(held, rounds=held.rounds[:stop], scores={}))
        assert stop_rounds(policy, to_trace_set(cut)).tolist() == stops.tolist()


@pytest.mark.filterwarnings("ignore:EXECUTE can never be chosen")
@settings(deadline=None, max_examples=2, suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=3))
def test_it_holds_through_files(records: list[QuestionRecord], tmp_path: Path) -> None:
    """The same for the policy and the rounds read back from disk."""
    write_traces(records, tmp_path / "traces.parquet")
    traces = read_traces(tmp_path / "traces.parquet")
    read_back = list(traces.records())
    for policy in policies():
        save_policy(policy, tmp_path / "policy.json")
        loaded = load_policy(tmp_path / "policy.json").policy
        assert policy_document(loaded) == policy_document(policy)
        check_policy(loaded, records)
        check_policy(policy, read_back)


@settings(deadline=None, max_examples=examples(20), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_confidence_is_the_same_live_and_from_a_trace(records: list[QuestionRecord]) -> None:
    traces = to_trace_set(records)
    for policy in policies():
        if not isinstance(policy, ConfidentPolicy):
            continue
        if any(lack(spec, traces) for spec in policy.specs):
            continue
        replayed = policy.confidence(signal_table(traces, policy.specs))
        for index, record in enumerate(traces.records()):
            controller = Controller(policy)
            for number, finished in enumerate(record.rounds):
                with incomplete_rounds():
                    decision = controller.observe(finished)
                wanted = None if replayed is None else float(replayed[index, number])
                live = decision.confidence
                assert live == (None if wanted is None or math.isnan(wanted) else wanted)
                if decision.stop:
                    break


@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records())
def test_replay_refuses_exactly_the_records_without_any_input(
    records: list[QuestionRecord],
) -> None:
    traces = to_trace_set(records)
    for policy in policies():
        if any(lack(spec, traces) for spec in policy.specs):
            with pytest.raises(UsageError, match="does not hold"):
                signal_table(traces, policy.specs)
        else:
            assert signal_table(traces, policy.specs).n_questions == len(records)


def test_every_policy_names_what_a_loop_of_bare_answers_does_not_give() -> None:
    bare = Round(answer="Oslo")
    for policy in policies():
        controller = Controller(policy)
        missing = [spec.name for spec in policy.specs if spec.needs or spec.recorded_only]
        if not missing:
            controller.observe(bare)
            continue
        with pytest.warns(SufficeWarning, match="round 1 of this loop") as told:
            controller.observe(bare)
        assert all(repr(name) in str(told[0].message) for name in missing)


class _LooksAhead(FixedPolicy):
    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        return np.tile(np.arange(table.n_rounds) >= table.n_rounds - 2, (table.n_questions, 1))


def test_the_check_notices_a_policy_that_looks_ahead() -> None:
    records = [make_record("q", ["a", "b", "c"])]
    with pytest.raises(DataError, match=r"after round 1 of question 'q'.*live"):
        check_policy(_LooksAhead(2), records)
