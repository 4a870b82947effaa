"""What is kept, what is shared and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.records import LoopView, Round


@pytest.fixture
def measures() -> Measures:
    return Measures(to_trace_set(random_records(12)))


def test_columns_are_kept_and_cannot_be_written(measures: Measures) -> None:
    first, again = (measures.signals(["overlap"]).signal("overlap") for _ in range(2))
    assert first is again
    assert measures.only_split("tune") is measures.only_split("tune")
    for column in (first, measures.score("f1"), measures.only_split("eval").score("em")):
        with pytest.raises(ValueError, match="read-only"):
            column[0, 0] = 1.0


def test_a_signal_is_refused_where_a_part_lacks_its_input() -> None:
    with_tokens = make_record("a", ["Oslo"], margins=[1.0], split="tune")
    measures = Measures(to_trace_set([with_tokens, make_record("b", ["Oslo"], split="eval")]))
    margin = "answer_token_margin"
    assert np.isnan(measures.signals([margin]).signal(margin)).tolist() == [[False], [True]]
    with pytest.raises(UsageError, match="needs column tokens"):
        measures.only_split("eval").signals([margin])


@dataclass
class Lengths:
    calls: int = 0

    def __call__(self, view: LoopView) -> float:
        self.calls += 1
        return float(len(view.current.answer_text))


def test_a_signal_that_cannot_be_compared_is_told_by_identity(measures: Measures) -> None:
    counts = Lengths(), Lengths()
    one, other = (SignalSpec(name="length", summary="", compute=each) for each in counts)
    for _ in range(2):
        measures.only_split("eval").signals([one])
        measures.signals([one])
    measures.signals([other])
    # once, and again as live loops ask: whole questions, and cut ones
    assert counts[0].calls == counts[1].calls <= 3 * 36


def test_of_two_signals_with_one_name_each_keeps_its_meaning(measures: Measures) -> None:
    usual = SIGNALS["abstained"]
    never = replace(usual, compute=lambda _: 0.5, columns=None, own_settings=True)
    assert set(measures.signals([never]).signal("abstained").ravel()) == {0.5}
    assert set(measures.signals([usual]).signal("abstained").ravel()) == {0.0}
    assert set(measures.signals([usual, never]).signal("abstained").ravel()) == {0.5}


def test_the_closed_book_is_a_record_of_its_own() -> None:
    """It is scored by gold answers, or agrees with the full budget."""
    record = make_record("a", ["Rome", "Oslo"], gold=["Rome"], closed_book=Round(answer="Oslo"))
    measures = Measures(to_trace_set([record]))
    assert measures.closed_book() is measures.closed_book()
    assert measures.closed_book().score("em").tolist() == [[0.0]]
    assert measures.score("em").tolist() == [[1.0, 0.0]]
    assert measures.by("agreement").closed_book().scores().em.tolist() == [[1]]


class TestMetric:
    """What scores are compared by, and what they are taken against."""

    def test_the_default_is_f1_where_some_question_is_labelled_else_agreement(
        self, measures: Measures
    ) -> None:
        assert measures.by(None).metric.name == "f1"
        bare = Measures(to_trace_set([make_record("a", ["x", "y"])]))
        assert bare.by(None).metric.name == "agreement"
        assert bare.by("f1").metric.name == "f1"
        assert not bare.by("f1").scores().labelled.any()
        assert bare.by("agreement").by(None).metric.name == "agreement"

    def test_parts_keep_it(self, measures: Measures) -> None:
        by_em = measures.by("em")
        part = by_em.only_split("tune").take(np.array([True] * 3 + [False] * 3))
        assert part.metric.name == "em"
        np.testing.assert_array_equal(part.scores().compared, part.scores().em)

    def test_each_question_agrees_with_its_own_last_round(self) -> None:
        """Rounds differ in number; "A" and "the" normalise to nothing and equal themselves."""
        record = [
            make_record("a", ["x", "the Oslo", "Oslo"], gold=["x"]),
            make_record("b", ["Bergen city", "Bergen"]),
            make_record("c", ["A", "B", "A"]),
        ]
        by = Measures(to_trace_set(record)).by("agreement")
        scores = by.scores()
        assert scores.em.tolist() == [
            [0, 1, 1],
            [0, 1, pytest.approx(np.nan, nan_ok=True)],
            [1, 0, 1],
        ]
        assert scores.f1[1, 0] == pytest.approx(2 / 3)
        assert scores.f1[2].tolist() == scores.acc[2].tolist() == [1, 0, 1]
        legend, short = by.notes("agreement")
        assert "not with the truth" in legend
        assert short.startswith("1 of 3 questions ended before round 3")

    def test_nothing_agrees_with_a_blank_answer(self) -> None:
        """It is left out as an unlabelled question is; an abstention in words is an answer."""
        record = [
            make_record("a", ["x", " "]),
            make_record("b", ["", "y"]),
            make_record("c", ["Unknown.", "unknown"]),
        ]
        by = Measures(to_trace_set(record)).by(None)
        assert by.scores().labelled.tolist() == [False, True, True]
        assert by.scores().em[1:].tolist() == [[0, 1], [1, 1]]
        assert by.notes(None)[0].startswith("No question has gold answers.")
        assert by.notes(None)[1].startswith("a blank answer at the full budget of 1 of 3 questions")
