"""Answers that say nothing."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.signals.abstained import ABSTAINED, ABSTENTION_PHRASES, abstained_signal
from suffice.trace.rounds.records import LoopView, Round


def view(answer: str) -> LoopView:
    return LoopView("q", (Round(answer=answer),))


@pytest.mark.parametrize(
    "answer",
    ["", "  ", "the", "...", "Unknown", "Not mentioned.", "N/A", "None", "NOT  provided"],
)
def test_abstentions(answer: str) -> None:
    assert ABSTAINED(view(answer)) == 1.0


@pytest.mark.parametrize("answer", ["no", "No.", "yes", "0", "unknown soldier", "not", "nan"])
def test_answers(answer: str) -> None:
    assert ABSTAINED(view(answer)) == 0.0


def test_low_means_stop() -> None:
    assert ABSTAINED.direction == "low"
    assert ABSTAINED.binary


def test_the_list_can_be_another() -> None:
    own = abstained_signal(["I do not know!"])
    assert own.name == "abstained"
    assert [own(view(each)) for each in ("I do not know", "none", "")] == [1.0, 0.0, 1.0]
    without_none = abstained_signal(phrase for phrase in ABSTENTION_PHRASES if phrase != "none")
    assert without_none(view("None")) == 0.0
    assert without_none(view("N/A")) == 1.0


@pytest.mark.parametrize("phrase", ["no", "No.", "the no"])
def test_no_is_refused(phrase: str) -> None:
    with pytest.raises(UsageError, match='"no"'):
        abstained_signal([phrase])
    with pytest.raises(UsageError, match='"no"'):
        abstained_signal(["unknown", phrase])


def test_the_usual_list_is_normalised_and_without_no() -> None:
    assert "no" not in ABSTENTION_PHRASES
    assert all(ABSTAINED(view(phrase)) == 1.0 for phrase in ABSTENTION_PHRASES)
    assert abstained_signal(ABSTENTION_PHRASES)(view(ABSTENTION_PHRASES[0])) == 1.0
