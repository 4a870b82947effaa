"""Answering one question: what ends the loop, and what is refused before it starts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.live_answers import answered

from suffice.contracts import (
    Explanation,
    Facts,
    GenerationRequest,
    LoopNeeds,
    PolicyTable,
    StopPolicy,
)
from suffice.errors import BackendError, DataError, InternalError, SufficeError, UsageError
from suffice.live.answering import DECLINED, Answered, AskSettings
from suffice.live.requirements import LoopOutput, check_policy
from suffice.live.watching import Budgets
from suffice.loops.ranked import CumulativeSettings
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage

PASSAGES = tuple(Passage(id=f"p{n}", title=f"Page {n}", text=f"Fact {n} of five") for n in range(5))
CHANGING = [f"Answer: {word}" for word in ("a", "b", "c", "d", "e")]


class Reads(FixedPolicy):
    """Reads every answer, and does nothing with it."""

    needs = LoopNeeds(answers=True)


def ask(
    policy: StopPolicy,
    model: ScriptedModel,
    *,
    max_rounds: int | None = None,
    budgets: Budgets | None = None,
    rounds: int = 9,
) -> Answered:
    loop = CumulativeSettings(rounds=rounds)
    settings: dict[str, Any] = {"budgets": budgets or Budgets(), "max_rounds": max_rounds}
    return answered(policy, model, loop, PASSAGES, **settings)


def test_a_judge_is_asked_each_round_and_its_tokens_count() -> None:
    """Ratings 1, 1, 4: the rule stops at round 3; with the judge's tokens the budget is spent before."""
    policy = Rule(rule="judge_support >= 4")
    settings = CumulativeSettings(rounds=9, judge=True)
    check_policy(policy, LoopOutput(settings=settings))
    script = ["Answer: a", "1", "Answer: b", "1", "Answer: c", "4", "Answer: d", "5"]

    def run(budgets: Budgets) -> tuple[Answered, ScriptedModel]:
        model = ScriptedModel(script)
        return answered(policy, model, settings, PASSAGES, budgets=budgets), model

    found, model = run(Budgets())
    assert (found.answer, found.stopped_by, len(model.requests)) == ("c", "policy", 6)
    assert [each.signals["judge_support"] for each in found.rounds] == [1.0, 1.0, 4.0]
    assert [each.usage.judge_calls for each in found.rounds] == [1, 1, 1]
    answers = sum(
        (each.usage.prompt_tokens or 0) + (each.usage.completion_tokens or 0)
        for each in found.rounds[:2]
    )
    cut, _ = run(Budgets(tokens=answers + 1))
    assert (cut.stopped_by, len(cut.rounds)) == ("budget", 2)


def failing_from(number: int, error: SufficeError) -> ScriptedModel:
    calls: list[GenerationRequest] = []

    def reply(request: GenerationRequest, _sample: int) -> str:
        calls.append(request)
        if len(calls) >= number:
            raise error
        return CHANGING[len(calls) - 1]

    return ScriptedModel(reply)


@pytest.mark.parametrize(
    "error", [BackendError("down"), UsageError("prompt too long"), DataError("broken reply")]
)
def test_any_failure_after_a_round_keeps_what_was_answered(error: SufficeError) -> None:
    found = ask(Reads(5), failing_from(3, error))
    assert (found.answer, found.stopped_by, found.reason) == ("b", "error", str(error))
    assert len(found.rounds) == len(found.decisions) == 2
    with pytest.raises(type(error), match=str(error)):
        ask(Reads(5), failing_from(1, error))


def test_a_defect_is_never_an_answer() -> None:
    with pytest.raises(InternalError, match="impossible"):
        ask(Reads(5), failing_from(3, InternalError("impossible")))


def test_a_policy_that_fails_leaves_the_rounds_it_decided_about() -> None:
    class Refuses(Reads):
        def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
            if table.n_rounds == self.refused:
                raise DataError("a signal that cannot be")
            return super().fires(table)

        refused = 3

    found = ask(Refuses(5), ScriptedModel(CHANGING))
    assert (found.answer, found.stopped_by, found.answer_round) == ("b", "error", 2)
    assert len(found.rounds) == len(found.decisions) == 2
    Refuses.refused = 1
    with pytest.raises(DataError, match="a signal that cannot be"):
        ask(Refuses(5), ScriptedModel(CHANGING))


# --- prices, confidence and declining ---------------------------------------------------------------


class Scores:
    """Stops after ``rounds``; its confidence is one number a round, ``None``: undefined."""

    kind = "scores"
    preset = None
    signals = ()
    specs = ()
    needs = LoopNeeds(answers=True)
    facts = Facts()

    def __init__(self, *values: float | None, rounds: int = 99) -> None:
        self._values = values
        self._rounds = rounds

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        return np.tile(np.arange(1, table.n_rounds + 1) >= self._rounds, (table.n_questions, 1))

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        return Explanation(reason="as scored", values={})

    def confidence(self, table: PolicyTable) -> NDArray[np.float64]:
        values = np.array(self._values[: table.n_rounds], np.float64)
        return np.tile(values, (table.n_questions, 1))


def scored(*values: float | None, **settings: Any) -> Answered:
    loop = CumulativeSettings(rounds=len(values))
    return answered(Scores(*values), ScriptedModel(CHANGING), loop, PASSAGES, **settings)


@pytest.mark.parametrize(
    ("values", "number"),
    [
        ((0.2, 0.9, 0.4), 2),
        ((0.9, 0.2, 0.9), 3),  # of equal ones the one that saw more
        ((None, 0.1, None), 2),
        ((None, None, None), 3),
    ],
)
def test_the_most_confident_answer(values: tuple[float | None, ...], number: int) -> None:
    found = scored(*values, choose="most-confident")
    assert (found.answer_round, found.answer) == (number, "abcde"[number - 1])
    assert (found.confidence, len(found.rounds)) == (values[number - 1], 3)
    assert scored(*values).answer_round == 3


@pytest.mark.parametrize(
    ("confidence", "below", "declined"),
    [(0.4, 0.5, True), (0.5, 0.5, False), (0.6, 0.5, False), (None, 0.0, True), (0.0, 0.0, False)],
)
def test_declining(confidence: float | None, below: float, *, declined: bool) -> None:
    found = scored(0.9, confidence, decline_below=below)
    assert (found.declined, found.confidence) == (declined, confidence)
    assert found.answer == (DECLINED if declined else "b")
    assert found.rounds[-1].answer == "b"


class LazyScores(Scores):
    needs = LoopNeeds()


@pytest.mark.parametrize(("confidence", "told"), [(0.4, []), (0.6, ["Answer:", " Skien"])])
def test_an_answer_is_told_as_it_comes_unless_it_is_withheld(
    confidence: float, told: list[str]
) -> None:
    pieces: list[str] = []
    policy, model = LazyScores(0.9, confidence), ScriptedModel(lambda *_: "Answer: Skien")
    settings: dict[str, Any] = {"decline_below": 0.5, "tell": pieces.append}
    found = answered(policy, model, CumulativeSettings(rounds=2), PASSAGES, **settings)
    assert found.declined == (not told)
    assert pieces == told


@pytest.mark.parametrize("settings", [{"decline_below": 0.5}, {"choose": "most-confident"}])
def test_a_policy_without_confidence_is_refused_where_it_is_gone_by(
    settings: dict[str, Any],
) -> None:
    model = ScriptedModel(CHANGING)
    for policy in (FixedPolicy(2), Rule(rule="answer_stable")):
        with pytest.raises(UsageError, match=r"use --policy ab-rag, or a fitted one"):
            answered(policy, model, CumulativeSettings(), PASSAGES, **settings)
    assert not model.requests
    with pytest.raises(UsageError, match=r"in \[0, 1\], found 1.5"):
        AskSettings(decline_below=1.5)
