"""Query-choosing loops: a chooser whose choices are written down, and what a filter leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.loops.query import (
    FREE,
    QUESTION,
    Acting,
    AtLeast,
    Scripted,
    Written,
    choice,
    found,
    passage,
)

from suffice.loops.prompts import SearchStep
from suffice.loops.query_loop import QueryChoice, QueryLoopSettings
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Round


def run(
    choices: list[QueryChoice],
    results: dict[str, list[Passage]],
    *,
    passage_filter: Any = None,
    model: ScriptedModel | None = None,
    **settings: Any,
) -> tuple[list[Round], Written, Scripted]:
    chooser, retriever = Written(choices), Scripted(results)
    chosen = QueryLoopSettings(**{"rounds": 2, "step": 2, **settings})
    loop = Acting(chosen, chooser, model=model, passage_filter=passage_filter)
    return list(loop.rounds(QUESTION, retriever)), chooser, retriever


def ids(rounds: list[Round]) -> list[list[str]]:
    return [[each.id for each in finished.passages or ()] for finished in rounds]


def test_each_round_sends_its_query_and_adds_what_is_new() -> None:
    rounds, chooser, retriever = run(
        [choice("x"), choice("y"), choice("z")],
        {"x": found("a", "b", "c"), "y": found("b", "d", "a", "c", "e")},
        verdicts=True,
    )
    assert [each.query for each in rounds] == ["x", "y"]
    assert ids(rounds) == [["a", "b"], ["d", "c"]]
    again = [[(each.id, each.score) for each in finished.refound or ()] for finished in rounds]
    assert again == [[], [("b", 9.0), ("a", 7.0)]]  # with the scores for this query; e adds nothing
    assert [each.candidate_scores for each in rounds] == [(9, 8, 7), (9, 8, 7, 6, 5)]
    assert [each.usage.retrievals for each in rounds] == [1, 1]
    assert [k for _, k in retriever.asked] == [10, 10]
    last = chooser.seen[-1]
    assert [(each.said, each.query) for each in last] == [("Search[x]", "x"), ("Search[y]", "y")]
    assert [[p.id for p in each.found] for each in last] == [["a", "b"], ["d", "c"]]


def test_whoever_would_end_is_made_to_search() -> None:
    rounds, chooser, _ = run(
        [choice("x"), choice("A", finishes=True), choice("y"), choice("B", finishes=True)],
        {"x": found("a"), "y": found("b")},
    )
    assert [each.query for each in rounds] == ["x", "y"]
    assert [each.signals["llm_stop"] for each in rounds] == [1.0, 1.0]
    assert [each.action for each in rounds] == ["Search[x]", "Finish[A]\n\nSearch[y]"]
    assert [None if each is None else each.query for each in chooser.refused] == [
        None, None, "A", None,
    ]  # fmt: skip


def test_what_choosing_costs() -> None:
    """Rounds 1 to 4: a search; a finish and the search after it; a search; a search."""
    plain = [choice("x"), choice("A", finishes=True), choice("x"), choice("x"), choice("x")]
    rounds, _, _ = run([*plain, choice("x")], {"x": []}, rounds=4, samples=3)
    free = replace(choice("x"), usage=FREE)
    bare, _, _ = run([free] * 5, {"x": []}, rounds=4, samples=3)
    more = [
        (a.usage.llm_calls or 0) - (b.usage.llm_calls or 0)
        for a, b in zip(rounds, bare, strict=True)
    ]
    assert more == [1, 2, 1, 1]
    for name, each in (("prompt_tokens", 100), ("cached_tokens", 40), ("completion_tokens", 10)):
        assert [
            getattr(a.usage, name) - getattr(b.usage, name)
            for a, b in zip(rounds, bare, strict=True)
        ] == [each, 2 * each, each, each]
    assert [each.usage.sample_calls for each in rounds] == [3] * 4
    assert [each.usage.llm_calls for each in rounds] == [5, 6, 5, 5]
    # who reads llm_stop pays a verdict that chose nothing: a finish, and the one after the last round
    assert [each.usage.judge_calls for each in rounds] == [1, 0, 0, 1]
    assert all((each.usage.latency_s or 0) > 0 for each in rounds)


def test_without_verdicts_the_chooser_is_asked_only_when_the_loop_goes_on() -> None:
    choices = [choice("x"), choice("A", finishes=True), choice("y")]
    rounds, chooser, _ = run(choices, {"x": found("a"), "y": found("b")}, verdicts=False)
    assert not chooser.choices
    assert len(chooser.seen) == 3
    assert [each.query for each in rounds] == ["x", "y"]
    assert all("llm_stop" not in each.signals for each in rounds)
    assert [each.usage.judge_calls for each in rounds] == [0, 0]
    assert [each.usage.llm_calls for each in rounds] == [2, 3]


# --- the filter -------------------------------------------------------------------------------------
def found_of(steps: Sequence[SearchStep]) -> list[SearchStep]:
    """The steps as a chooser reads them, without what the answerer was shown."""
    return [replace(each, shown=()) for each in steps]


def test_only_the_answerer_sees_the_filter() -> None:
    results = {"x": [passage("a", 3.0), passage("b", 1.0)], "y": [passage("c", 2.5)]}
    model = ScriptedModel()
    wanted = [choice("x"), choice("y"), choice("z")]
    rounds, chooser, _ = run(list(wanted), results, passage_filter=AtLeast(2.0), model=model)
    assert ids(rounds) == [["a"], ["c"]]
    assert [each.candidate_scores for each in rounds] == [(3.0, 1.0), (2.5,)]
    _, unfiltered, _ = run(list(wanted), results)
    assert [found_of(steps) for steps in chooser.seen] == [
        found_of(steps) for steps in unfiltered.seen
    ]
    assert [[p.id for p in each.shown] for each in chooser.seen[-1]] == [["a"], ["c"]]
    assert all("Fact b" not in str(each.prompt) for each in model.requests)


def test_a_dropped_passage_may_come_back_at_a_better_score() -> None:
    results = {
        "x": [passage("a", 3.0), passage("b", 1.0)],
        "y": [passage("b", 2.5), passage("a", 2.4), passage("c", 2.2), passage("d", 2.1)],
        "z": [passage("b", 9.0), passage("e", 0.1), passage("f", 0.1)],
    }
    rounds, chooser, _ = run(
        [choice("x"), choice("y"), choice("z"), choice("w")],
        results,
        passage_filter=AtLeast(2.0),
        rounds=3,
    )
    # b is shown at its score for y, once; a is not shown again
    assert ids(rounds) == [["a"], ["b", "c", "d"], []]
    assert [each.score for each in (rounds[1].passages or ())] == pytest.approx([2.5, 2.2, 2.1])
    assert [[p.id for p in each.found] for each in chooser.seen[-1]] == [
        ["a", "b"], ["c", "d"], ["e", "f"],
    ]  # fmt: skip


@given(
    scores=st.lists(
        st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9), min_size=1),
        min_size=1,
        max_size=4,
    ),
    threshold=st.integers(0, 10),
)
def test_what_passes_live_is_what_its_best_recorded_turn_passes(
    scores: list[dict[str, int]], threshold: int
) -> None:
    """Eq. 9 and 11: the record without the filter says what the filter would have let through."""
    results = {
        str(number): [
            passage(name, float(score))
            for name, score in sorted(turn.items(), key=lambda item: -item[1])
        ]
        for number, turn in enumerate(scores)
    }

    def rounds_of(**options: Any) -> list[Round]:
        choices = [choice(query) for query in (*results, "end")]
        return run(choices, results, rounds=len(results), **options)[0]

    best: dict[str, float] = {}
    for finished in rounds_of():
        for one in (*(finished.passages or ()), *(finished.refound or ())):
            best[one.id] = max(one.score or 0.0, best.get(one.id, 0.0))
    shown = {name for names in ids(rounds_of(passage_filter=AtLeast(threshold))) for name in names}
    assert shown == {name for name, score in best.items() if score >= threshold}


def test_a_passage_returned_twice_is_shown_once() -> None:
    rounds, _, _ = run(
        [choice("x"), choice("y"), choice("z")], {"x": found("a", "a", "b"), "y": []}
    )
    assert ids(rounds) == [["a", "b"], []]
