"""Who does what in a query-choosing loop beside the chooser, by doubles that say who was asked what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.loops.query import (
    COST,
    FREE,
    QUESTION,
    Scripted,
    Written,
    choice,
    found,
)

from suffice.pipelines.loops.query_loop import (
    QueryChoice,
    QueryLoop,
    QueryLoopSettings,
    QueryReading,
    Roles,
    SearchStep,
    StopVerdict,
)
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Round


@dataclass
class Reads:
    """Answers each query with its own name and what it found."""

    delay_s: float = 0.0

    def read(self, query: str, found: Sequence[Passage]) -> QueryReading:
        time.sleep(self.delay_s)
        return QueryReading(answer=f"{query}:{''.join(each.id for each in found)}", usage=COST)


@dataclass
class Asks:
    """Gives its verdicts in order, and remembers what it was shown."""

    verdicts: list[StopVerdict]
    delay_s: float = 0.0
    seen: list[tuple[SearchStep, ...]] = field(default_factory=list)

    def ask(self, question: str, steps: Sequence[SearchStep]) -> StopVerdict:
        assert question == QUESTION.text
        time.sleep(self.delay_s)
        self.seen.append(tuple(steps))
        return self.verdicts.pop(0)


def verdict(*, stops: bool, unread: bool = False) -> StopVerdict:
    return StopVerdict(stops=stops, said="STOP" if stops else "GO ON", usage=COST, unread=unread)


def loop_of(roles: Roles, model: ScriptedModel | None = None, **settings: Any) -> list[Round]:
    chosen = QueryLoopSettings(**{"rounds": 2, "step": 1, **settings})
    loop = QueryLoop(model or ScriptedModel(), chosen, roles)
    return list(loop.rounds(QUESTION, Scripted({"x": found("a", "b"), "y": found("a", "b")})))


def chooser_of(*queries: str) -> Written:
    return Written([choice(each) for each in queries])


def test_a_readers_answers_are_kept_and_paid() -> None:
    free = Written([replace(choice(each), usage=FREE) for each in "xy"])
    chooser = chooser_of("x", "y")
    rounds = loop_of(Roles(chooser=chooser, reader=Reads()), verdicts=False)
    bare = loop_of(Roles(chooser=free), verdicts=False)
    assert [each.intermediate_answer for each in rounds] == ["x:a", "y:b"]
    assert [each.intermediate_answer for each in bare] == [None, None]
    assert [each.answer for each in chooser.seen[-1]] == ["x:a"]
    for name, more in (("llm_calls", 2), ("prompt_tokens", 200), ("completion_tokens", 20)):
        assert [
            getattr(one.usage, name) - getattr(other.usage, name)
            for one, other in zip(rounds, bare, strict=True)
        ] == [more, more]


def test_who_is_asked_says_where_it_would_end_and_is_paid_as_a_judge() -> None:
    asker = Asks([verdict(stops=True), verdict(stops=False, unread=True)])
    chooser = chooser_of("x", "y")
    rounds = loop_of(Roles(chooser=chooser, asker=asker))
    assert [each.signals for each in rounds] == [
        {"llm_stop": 1.0, "malformed_actions": 0.0}, {"llm_stop": 0.0, "malformed_actions": 1.0},
    ]  # fmt: skip
    assert [each.action for each in rounds] == ["Search[x]\n\nSTOP", "Search[y]\n\nGO ON"]
    assert [[step.query for step in steps] for steps in asker.seen] == [["x"], ["x", "y"]]
    assert len(chooser.seen) == 2  # a verdict is no choice: nothing is chosen ahead
    for each in rounds:
        usage = each.usage
        judged = (usage.judge_prompt_tokens, usage.judge_cached_tokens)
        assert (usage.llm_calls, usage.judge_calls) == (2, 1)
        assert (*judged, usage.judge_completion_tokens) == (100, 40, 10)


def test_nobody_is_asked_without_verdicts() -> None:
    asker = Asks([])
    rounds = loop_of(Roles(chooser=chooser_of("x", "y"), asker=asker), verdicts=False)
    assert all("llm_stop" not in each.signals for each in rounds)
    assert [each.usage.judge_prompt_tokens for each in rounds] == [None, None]


def test_a_rating_and_a_verdict_are_paid_together() -> None:
    asker = Asks([verdict(stops=False)] * 2)
    rounds = loop_of(Roles(chooser=chooser_of("x", "y"), asker=asker), judge=True)
    assert [each.usage.judge_calls for each in rounds] == [2, 2]
    assert all((each.usage.judge_prompt_tokens or 0) > 100 for each in rounds)
    assert all({"judge_support", "llm_stop"} <= set(each.signals) for each in rounds)


def test_a_loop_may_ask_for_its_answer_in_its_own_way() -> None:
    def prompt(question: str, steps: Sequence[SearchStep]) -> str:
        return f"{question} after {'+'.join(each.query for each in steps)}"

    model = ScriptedModel(["Answer: one", "Answer: two"])
    rounds = loop_of(Roles(chooser=chooser_of("x", "y"), prompt=prompt), model, verdicts=False)
    assert [each.prompt for each in model.requests] == [
        "Who wrote it? after x", "Who wrote it? after x+y",
    ]  # fmt: skip
    assert [each.answer for each in rounds] == ["one", "two"]


@dataclass
class Slow(Written):
    """A chooser that takes its time."""

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        time.sleep(0.03)
        return Written.choose(self, question, steps, refused=refused)


def test_a_rounds_seconds_hold_everybodys() -> None:
    """Choosing 0.03, reading 0.02, answering 0.01; the verdict 0.04."""
    for verdicts, least in ((False, 0.06), (True, 0.1)):
        roles = Roles(
            chooser=Slow([choice("x"), choice("y")]),
            reader=Reads(delay_s=0.02),
            asker=Asks([verdict(stops=False)] * 2, delay_s=0.04),
        )
        rounds = loop_of(roles, ScriptedModel(delay_s=0.01), verdicts=verdicts)
        assert all((each.usage.latency_s or 0.0) >= least for each in rounds)
    # what was chosen ahead, as the verdict on the round before, counts with the round it led to
    chosen = Slow([choice("x"), choice("A", finishes=True), choice("y"), choice("z")])
    rounds = loop_of(Roles(chooser=chosen), verdicts=True)
    assert (rounds[0].usage.latency_s or 0.0) >= 0.03
    assert (rounds[1].usage.latency_s or 0.0) >= 0.06
