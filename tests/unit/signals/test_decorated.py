"""A signal of a user's own function: known to rules by its name, asked about every prefix."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import suffice
from suffice.errors import DataError
from suffice.policies.rules.policy import Rule
from suffice.signals import known_signals as registry
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import SignalSpec
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.conformance import check_policy, check_signal, live_stop
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Round

RECORDS = [make_record("p", ["a", "b", "b", "c"]), make_record("q", ["a", "a", "c"])]


@pytest.fixture(autouse=True)
def _no_other_test_sees_them() -> Iterator[None]:
    yield
    registry._OWN.clear()


def test_a_rule_reads_it_alike_in_replay_and_live() -> None:
    @suffice.signal(low=0.0, summary="answers given so far")
    def different_answers(question: str, rounds: Sequence[Round]) -> float | None:
        assert question
        return None if len(rounds) == 1 else len({held.answer for held in rounds})

    policy = Rule(rule="different_answers >= 2")
    table = signal_table(to_trace_set(RECORDS), policy.specs)
    assert table.signal("different_answers")[0].tolist()[1:] == [2.0, 2.0, 3.0]
    assert math.isnan(table.signal("different_answers")[0, 0])
    assert first_stops(policy, table).tolist() == [2, 3]
    assert [live_stop(policy, record) for record in RECORDS] == [2, 3]
    check_policy(policy, RECORDS)
    check_signal(different_answers, RECORDS)
    check_policy(Rule(rule="mean_of(different_answers, 2) >= 2.5"), RECORDS)


def gives_text(question: str, rounds: Sequence[Round]) -> Any:
    return 1.0 if len(rounds) < 2 else "text"


def gives_a_list(question: str, rounds: Sequence[Round]) -> Any:
    return 1.0 if len(rounds) < 2 else [1.0]


def raises(question: str, rounds: Sequence[Round]) -> float:
    return 1 / (2 - len(rounds))


@pytest.mark.parametrize("wrong", [gives_text, gives_a_list, raises])
def test_the_check_names_signal_question_and_round(wrong: registry.Function) -> None:
    spec = suffice.signal(wrong)
    with pytest.raises(DataError) as told:
        check_signal(spec, RECORDS)
    named = (repr(spec.name), "round 2", repr(RECORDS[0].question.text))
    assert all(part in str(told.value) for part in named)


def test_one_that_raises_is_named_and_ends_no_watched_loop() -> None:
    @suffice.signal
    def broken(question: str, rounds: Sequence[Round]) -> float:
        return 1 / (2 - len(rounds))

    with pytest.raises(DataError, match=r"'broken' at round 2.*ZeroDivisionError"):
        signal_table(to_trace_set(RECORDS), ["broken"])
    watch = suffice.Watch("broken > 5", mode="live", max_rounds=3)
    with watch.question("?") as loop:
        loop.observe(answer="a")
        with pytest.warns(suffice.SufficeWarning, match="broken"):
            loop.observe(answer="a")
        loop.observe(answer="a")
    assert (loop.stopped_by, watch.counts.failed_decisions) == ("budget", 1)


def test_the_check_notices_a_column_that_looks_ahead() -> None:
    def length(rounds: RoundColumns) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        return np.bincount(rounds.question)[rounds.question].astype(np.float64)

    with pytest.raises(DataError) as told:
        check_signal(SignalSpec(name="length", summary="", columns=length), RECORDS)
    assert all(part in str(told.value) for part in ("length", "round 1", "'q'"))
