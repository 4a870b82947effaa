"""The passage filter: what it keeps, its document, how it is calibrated and replayed."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from fractions import Fraction

import pytest

from suffice.contracts import PassageFilter
from suffice.errors import DataError
from suffice.policies.method import PRESETS
from suffice.policies.micp.relevance_filter import (
    RelevanceFilter,
    Relevances,
    fit_filter,
    retention,
)
from suffice.results.as_json import as_json
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord


def passage(name: str, score: float | None, rerank: float | None = None) -> Passage:
    return Passage(id=name, title="", text="", score=score, rerank_score=rerank)


def made(threshold: float = 2.0, **changed: object) -> RelevanceFilter:
    body: dict[str, object] = {
        "threshold": threshold,
        "relevance": "score",
        "alpha": 0.1,
        "preset": "corrected",
        "values": 30,
        "question_ids": ("q1",),
    }
    return RelevanceFilter(**{**body, **changed})  # type: ignore[arg-type]


def shown_record(
    name: str, rounds: list[list[tuple[str, float]]], gold: tuple[str, ...]
) -> QuestionRecord:
    shown = [[passage(*one) for one in found] for found in rounds]
    return make_record(name, ["x"] * len(rounds), gold=["x"], gold_passages=gold, passages=shown)


def test_it_keeps_what_is_at_least_as_relevant_in_order() -> None:
    shown = [passage("a", 3.0), passage("b", 1.9), passage("c", 2.0)]
    chosen = made()
    assert isinstance(chosen, PassageFilter)
    assert [each.id for each in chosen.keep(shown)] == ["a", "c"]
    assert chosen.keep([]) == ()
    assert made(-math.inf).keep([passage("a", None)]) == (passage("a", None),)


def test_it_reads_the_relevance_it_was_calibrated_on() -> None:
    shown = [passage("a", 9.0, -1.0), passage("b", 0.0, 5.0)]
    assert [each.id for each in made(relevance="rerank_score").keep(shown)] == ["b"]
    with pytest.raises(DataError, match="passage 'c' has none") as found:
        made(relevance="rerank_score").keep([passage("c", 3.0)])
    assert found.value.column == "passages.rerank_score"


@pytest.mark.parametrize("threshold", [2.5, -math.inf])
def test_its_document_gives_it_back(threshold: float) -> None:
    chosen = made(threshold)
    document = json.loads(json.dumps(chosen.to_json(), allow_nan=False))
    assert RelevanceFilter.from_json(document) == chosen
    assert chosen.stated() == {k: v for k, v in document.items() if k != "question_ids"}


def found_again(name: str, first: float, again: float | None) -> QuestionRecord:
    """Right passage ``a`` is added by round 1; ``again``: its score for round 2's query, if recorded."""
    one, two = shown_record(name, [[("a", first), ("x", 0.5)], [("y", 9.0)]], ("a",)).rounds
    refound = None if again is None else (Passage(id="a", score=again),)
    record = shown_record(name, [[], []], ("a",))
    rounds = (
        replace(one, query="who?", refound=None if again is None else ()),
        replace(two, query="where?", refound=refound),
    )
    return replace(record, rounds=rounds)


def test_a_right_passage_found_again_counts_with_its_best_turn() -> None:
    """Nine questions: first found at 1, ..., 9, found again at 12, 0, 13, 0, ...: Eq. 9 by hand.

    Best turns: 12, 2, 13, 4, 14, 6, 15, 8, 16; the smallest, of rank floor(0.1 (9 + 1)) = 1, is 2 and
    not 1. At threshold 5 the first of them survives, found below it and found again above; 2 and 4
    do not, since neither turn passes.
    """
    again = [12.0, 0.0, 13.0, 0.0, 14.0, 0.0, 15.0, 0.0, 16.0]
    traces = to_trace_set(
        [found_again(f"q{n}", float(n + 1), score) for n, score in enumerate(again)]
    )
    held = Relevances.read(traces, "score")
    assert held.gold.tolist() == [12.0, 2.0, 13.0, 4.0, 14.0, 6.0, 15.0, 8.0, 16.0]
    assert held.gold_question.tolist() == list(range(9))
    for preset in PRESETS:
        assert fit_filter(traces, Fraction("0.1"), preset, "score").threshold == 2.0
    kept = retention(traces, made(5.0))
    assert (kept.passages, kept.all) == (7 / 9, 7 / 9)
    assert kept.shown == (7 + 9) / 27  # a where a turn passes, every y, no x


def test_a_record_that_does_not_say_what_was_found_again_counts_what_was_added() -> None:
    old = to_trace_set([found_again(f"q{n}", float(n + 1), None) for n in range(9)])
    assert fit_filter(old, Fraction("0.1"), "corrected", "score").threshold == 1.0
    assert retention(old, made(5.0)).all == 5 / 9


def test_what_a_filter_does_to_a_record() -> None:
    traces = to_trace_set(
        [
            shown_record("q1", [[("a", 1.0), ("x", 0.0)], [("b", 3.0)]], ("a", "b")),
            shown_record("q2", [[("a", 3.0)], [("y", 2.0)]], ("a",)),
            shown_record("q3", [[("z", 0.0)], []], ("a",)),
        ]
    )
    found = retention(traces, made(2.0))
    assert as_json(found) == {"passages": 0.75, "all": 0.5, "shown": 0.5, "questions": 2}
    nothing = retention(to_trace_set([shown_record("q", [[], []], ("a",))]), made(2.0))
    assert as_json(nothing) == {"passages": None, "all": None, "shown": None, "questions": 0}
