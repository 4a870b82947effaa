"""Which signals a record gives, and why not the others."""

from __future__ import annotations

import dataclasses

import pytest
from tests.builders import of_rounds

from suffice.errors import UsageError
from suffice.signals.registry import SIGNALS, SignalSpec, resolve
from suffice.signals.table import Lack, given_signals, lack, refuse_lacking
from suffice.trace.rounds.records import Passage, Round
from suffice.trace.rounds.table import TraceSet

BARE = Round(answer="Oslo")
READ = Round(answer="Oslo", passages=(Passage(id="a", text="Oslo is a city."),))


def _why(name: str | SignalSpec, traces: TraceSet) -> Lack:
    found = lack(resolve(name) if isinstance(name, str) else name, traces)
    assert found is not None
    return found


def test_what_can_be_computed_or_is_stored_is_given_and_own_signals_come_last() -> None:
    bare = given_signals(of_rounds(BARE))
    assert "answer_stable" in bare
    assert not {"overlap", "self_consistency", "judge_support"} & set(bare)
    assert [*bare] == [name for name in SIGNALS if name in bare]
    assert set(given_signals(of_rounds(READ))) - set(bare) == {
        name
        for name, spec in SIGNALS.items()
        if spec.needs == ("passages",) and not spec.recorded_only
    }
    stored = given_signals(
        of_rounds(dataclasses.replace(BARE, signals={"mine": 1.0, "judge_support": 3.0}))
    )
    assert set(stored) - set(bare) == {"judge_support", "mine"}
    assert stored[-1] == "mine"


def test_a_policys_own_form_is_never_given_by_a_stored_value() -> None:
    stored = of_rounds(dataclasses.replace(BARE, signals={"overlap": 0.5}))
    assert lack(SIGNALS["overlap"], stored) is None
    own = dataclasses.replace(SIGNALS["overlap"], own_settings=True)
    assert _why(own, stored).columns == ("passages",)


def test_a_signal_that_is_not_given_is_refused_with_what_to_do() -> None:
    refuse_lacking([SIGNALS["answer_stable"]], of_rounds(BARE))
    with pytest.raises(
        UsageError, match=r"signal 'self_consistency' needs column samples.*; use answer_tok"
    ):
        refuse_lacking([SIGNALS["answer_stable"], SIGNALS["self_consistency"]], of_rounds(BARE))
    with pytest.raises(UsageError, match=r"needs a recorded value.*suffice signals --llm"):
        refuse_lacking([SIGNALS["judge_support"]], of_rounds(BARE))
