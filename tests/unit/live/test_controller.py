"""The live controller: budget, stop, restart, reasons; and questions side by side."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from suffice.contracts import Decision
from suffice.errors import DataError, SufficeWarning
from suffice.live.controller import Controller
from suffice.live.requirements import choose_policy
from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.signals.known_signals import SignalSpec
from suffice.trace.rounds.records import LoopView, Passage, Round

STABLE = Rule(rule="answer_stable")


def test_the_policy_stops_the_loop() -> None:
    controller = Controller(STABLE)
    first, second = (
        controller.observe(Round(answer="Oslo")),
        controller.observe(Round(answer="oslo")),
    )
    assert (first.stop, first.stopped_by) == (False, None)
    assert (second.stop, second.stopped_by) == (True, "policy")
    assert first.reason == (
        "answer_stable does not hold at round 1: answer_stable = undefined (there is no earlier answer to "
        "repeat)"
    )
    assert first.values == {"answer_stable": None}
    assert second.values == {"answer_stable": 1.0}
    assert [each.answer for each in controller.rounds] == ["Oslo", "oslo"]


def test_the_budget_stops_it_whatever_the_policy_says() -> None:
    controller = Controller(STABLE, max_rounds=2)
    assert not controller.observe(Round(answer="a")).stop
    last = controller.observe(Round(answer="b"))
    assert (last.stop, last.stopped_by) == (True, "budget")
    assert last.reason.startswith("the budget of 2 rounds is spent; answer_stable does not hold")
    assert last.values == {"answer_stable": 0.0}


@pytest.mark.parametrize("max_rounds", [None, 1])
def test_after_the_stop_the_decision_stands(max_rounds: int | None) -> None:
    controller = Controller(FixedPolicy(1), max_rounds=max_rounds)
    last = Round(answer="a")
    decision = controller.observe(last)
    assert controller.observe(last) is decision  # a framework that repeats a step
    with pytest.warns(SufficeWarning, match=r"told to stop after round 1 and went on.*start\("):
        assert controller.observe(Round(answer="b")) is decision
    assert len(controller.rounds) == 1
    assert controller.start("next").observe(last) is not decision


@pytest.mark.parametrize("wrong", ["x", None, {"answer": "x"}])
def test_what_is_no_round_is_refused_and_not_kept(wrong: object) -> None:
    controller = Controller(Rule(rule="answer_stable"))
    with pytest.raises(DataError, match=r"takes a suffice\.Round"):
        controller.observe(wrong)  # type: ignore[arg-type]
    assert controller.rounds == ()


def test_a_round_that_could_not_be_decided_about_was_not_observed() -> None:
    def fails(view: LoopView) -> float:
        if view.current.answer == "bad":
            raise DataError("cannot be read")
        return 0.0

    class Fails(FixedPolicy):
        __slots__ = ()
        specs = (Rule(rule="abstained").specs[0], SignalSpec(name="own", summary="", compute=fails))

    controller = Controller(Fails(2))
    for _ in range(2):
        with pytest.raises(DataError, match="cannot be read"):
            controller.observe(Round(answer="bad"))
    assert not controller.observe(Round(answer="a")).stop
    assert {name: len(values) for name, values in controller.signals.items()} == {
        "abstained": 1,
        "own": 1,
    }
    assert controller.observe(Round(answer="b")).stop


def test_start_forgets_everything() -> None:
    controller = Controller(STABLE, max_rounds=3)
    controller.observe(Round(answer="Oslo"))
    assert controller.start("another question") is controller
    assert controller.rounds == ()
    assert not controller.observe(Round(answer="Oslo")).stop  # not stable: round 1 again
    assert controller.observe(Round(answer="Oslo")).stop
    controller.start()
    assert not controller.observe(Round(answer="Oslo")).stop


def test_signals_see_the_question_and_recorded_values_win() -> None:
    controller = Controller(Rule(rule="overlap > 0.5"))
    assert controller.observe(Round(answer="a", signals={"overlap": 0.75})).stop
    controller.start()
    undefined = controller.observe(Round(answer="a", signals={"overlap": math.nan}))
    assert undefined.values == {"overlap": None}


def test_a_file_brings_its_budget(tmp_path: Path) -> None:
    file = save_policy(STABLE, tmp_path / "policy.json", max_rounds=2)
    assert Controller.load(file).max_rounds == 2
    assert Controller.load(str(file), max_rounds=7).max_rounds == 7
    save_policy(STABLE, file)
    assert Controller.load(file).max_rounds is None
    with pytest.raises(DataError, match="no such policy file"):
        Controller.load(tmp_path / "missing.json")


def test_by_default_a_search_that_brings_nothing_new_ends_with_an_answer_that_stands() -> None:
    policy = choose_policy(None).policy
    same = Passage(id="a", text="Oslo is a city.")
    repeating = [Round(answer=answer, passages=(same,)) for answer in ("Rome", "Oslo", "Oslo")]
    controller = Controller(policy, max_rounds=5)
    assert [controller.observe(finished).stop for finished in repeating] == [False, False, True]
    unsure = Controller(policy, max_rounds=5)
    assert not any(unsure.observe(Round(answer="unknown", passages=(same,))).stop for _ in range(4))


# --- inputs that never come ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rule", "finished", "said"),
    [
        (
            "answer_token_margin > 2",
            Round(answer="a"),
            r"signal 'answer_token_margin' needs column tokens, which round 1 of this loop does not hold; "
            r"write suffice\.Round\(answer=\.\.\., tokens=\.\.\.\); use self_consistency",
        ),
        (
            "self_consistency > 0.5 and normalized_entropy < 0.5",
            Round(answer="a"),
            "signals 'self_consistency' and 'normalized_entropy' each need column samples, which round 1",
        ),
        (
            "error < 1",
            Round(answer="a", signals={"eror": 0.0}),
            r"'error' needs a recorded value, which round 1 of this loop does not hold: it holds 'eror'; "
            r"write suffice\.Round\(answer=\.\.\., signals=\{'error': \.\.\.\}\)",
        ),
        (
            "rerank_top_score > 1",
            Round(answer="a", passages=(Passage(id="p", text="x"),)),
            r"cannot be computed from round 1 of this loop: no passage has a reranker's score; write "
            r"suffice\.Round\(answer=\.\.\., passages=\[suffice\.Passage\(id=\.\.\., rerank_score=",
        ),
    ],
)
def test_inputs_that_never_come_are_told_at_the_first_decision(
    rule: str, finished: Round, said: str
) -> None:
    policy = Rule(rule=rule, own_signals=("error",))
    controller = Controller(policy, max_rounds=3)
    whole = f"the rule policy reads what is not given: .*{said}"
    with pytest.warns(SufficeWarning, match=whole) as told:
        controller.observe(finished)
    assert told[0].filename == __file__  # the line of the user's own loop
    controller.observe(finished)  # once, and no more in copies and later questions
    controller.start("next").observe(finished)
    controller.copy().observe(finished)


@pytest.mark.parametrize(
    ("rule", "finished"),
    [
        ("answer_stable", Round(answer="a")),
        ("overlap > 0.2", Round(answer="a", passages=(Passage(id="p", text="x"),))),
        ("overlap > 0.2", Round(answer="a", passages=())),
        ("rerank_top_score > 1", Round(answer="a", passages=())),
        ("self_consistency > 0.5", Round(answer="a", samples=())),
        ("self_consistency > 0.5", Round(answer="a", signals={"self_consistency": 1.0})),
        ("error < 1", Round(answer="a", signals={"error": math.nan})),
        ("verbalized_confidence > 3", Round(answer="a", response="a, I think")),
    ],
)
def test_what_is_undefined_in_a_first_round_only_is_no_missing_input(
    rule: str, finished: Round
) -> None:
    policy = Rule(rule=rule, own_signals=("error",))
    Controller(policy).observe(finished)


ANSWERS = {"Who?": ("Ada", "Bo", "Bo"), "Where?": ("Rome", "Oslo", "Oslo")}


def run(controller: Controller, question: str) -> Iterator[Decision]:
    controller.start(question)
    for answer in ANSWERS[question]:
        yield controller.observe(Round(answer=answer))


def test_copies_run_side_by_side() -> None:
    shared = Controller(STABLE)
    loops = {question: run(shared.copy(), question) for question in ANSWERS}
    decisions = list(zip(*loops.values(), strict=True))
    assert [[each.stop for each in pair] for pair in decisions] == [
        [False, False],
        [False, False],
        [True, True],
    ]
    assert shared.rounds == ()
