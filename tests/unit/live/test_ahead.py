"""The next round begun ahead: the plain loop's answer, errors in their place, nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.live_answers import answered as answered_by

from suffice.concurrency import may_be_cut
from suffice.contracts import (
    ChatModel,
    Generation,
    GenerationRequest,
    LoopNeeds,
    PolicyTable,
    StopPolicy,
)
from suffice.costs.prices import Prices
from suffice.datasets.files import Example
from suffice.datasets.registry import load
from suffice.errors import BackendError
from suffice.live.ask import Answered, AskSettings, LiveLoop
from suffice.live.budgets import Budgets, Wasted
from suffice.live.requirements import ChosenPolicy
from suffice.llm.connect import CachedModel
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.steps import LOOPS
from suffice.policies.rules.policy import RulePolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.retrieval.retrievers import OwnParagraphs
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.rounds.records import Passage, Round

EXAMPLES = load("generated", limit=3)
PASSAGES = tuple(Passage(id=f"p{n}", title=f"Page {n}", text=f"Fact {n} of six") for n in range(6))
RULES = (
    "answer_repeats and not abstained",
    "overlap > 0.15",
    "self_consistency > 0.5",
    "judge_support >= 4",
    "round >= 2",
)
AGENTS = ("llm_stop", "malformed_actions > 1 or answer_stable")


@pytest.fixture(autouse=True)
def no_thread_stays(request: pytest.FixtureRequest) -> Iterator[None]:
    before = threading.active_count()
    yield
    if request.node.get_closest_marker("slow"):
        return  # what asks the embedded model stays with the process
    assert threading.active_count() <= before  # one of another test may end meanwhile


class Reads(FixedPolicy):
    """Reads every answer, and does nothing with it."""

    needs = LoopNeeds(answers=True)


def untimed(finished: Round) -> Round:
    usage = replace(
        finished.usage,
        latency_s=None,
        answer_latency_s=None,
        sample_latency_s=None,
        judge_latency_s=None,
    )
    return replace(finished, usage=usage)


def both(
    example: Example, name: str, policy: StopPolicy
) -> tuple[Answered, Answered, ScriptedModel]:
    """The plain loop's and the other's, with the other's model."""
    certainty = {"certainty": "token_probability"} if name == "budgeted" else {}
    settings = AskSettings(pipeline=name, rounds=4, samples=3, loop=certainty)
    answered = []
    for speculate in (False, True):
        model = ScriptedModel()
        own = replace(settings, speculate=speculate)
        live = LiveLoop.of(ChosenPolicy(policy=policy), model, own, lambda _: None)
        answered.append(live.answer(example.question.text, OwnParagraphs(example.passages)))
    return answered[0], answered[1], model


@pytest.mark.parametrize("name", LOOPS)
def test_the_answer_is_the_plain_loops(name: str) -> None:
    wasted = 0
    for rule in RULES if name in ("cumulative", "budgeted") else (*RULES, *AGENTS):
        plain, ahead, model = both(EXAMPLES[len(rule) % 3], name, RulePolicy(rule=rule))
        assert list(map(untimed, ahead.rounds)) == list(map(untimed, plain.rounds)), rule
        for part in ("answer", "decisions", "stopped_by", "reason", "unasked", "saved"):
            assert getattr(ahead, part) == getattr(plain, part), (rule, part)
        assert plain.wasted is None
        assert ahead.wasted is not None
        assert ahead.wasted.cut == 0
        assert plain.spent.calls is not None
        assert ahead.spent.calls == plain.spent.calls + ahead.wasted.calls
        if not (
            name == "react" and rule == "llm_stop"
        ):  # an agent's wish may count twice in a round
            assert ahead.spent.calls == sum(request.n for request in model.requests), rule
        assert plain.spent.tokens is not None
        assert ahead.wasted.tokens is not None
        assert ahead.spent.tokens == plain.spent.tokens + ahead.wasted.tokens
        wasted += ahead.wasted.rounds
    assert wasted > 0 or name == "budgeted"  # ten passages are two rounds


def asked(policy: StopPolicy, model: Any, *, rounds: int = 5, **settings: Any) -> Answered:
    loop = CumulativeSettings(rounds=rounds)
    settings = {"speculate": True, **settings}
    return answered_by(policy, model, loop, PASSAGES, max_rounds=rounds, **settings)


def by_last_fact(request: GenerationRequest, _sample: int) -> str:
    """The number of the last passage shown."""
    return f"Answer: {str(request.prompt).rpartition('Fact ')[2][0]}"


def test_an_error_is_told_where_its_round_is_reached() -> None:
    failing = Failures(containing=("Fact 2",))
    never = asked(Reads(2), ScriptedModel(by_last_fact, failures=failing))
    assert (never.answer, never.stopped_by) == ("1", "policy")
    assert never.wasted == Wasted(rounds=1, calls=1, cut=1)
    reached = asked(Reads(4), ScriptedModel(by_last_fact, failures=failing))
    assert (reached.answer, reached.stopped_by) == ("1", "error")
    assert reached.reason.startswith("scripted failure")
    with pytest.raises(BackendError, match="scripted failure"):
        asked(Reads(1), ScriptedModel(failures=Failures(first=9)))


class Waits(ScriptedModel):
    """Waits for ever where the prompt has a passage, until it is cut."""

    def __init__(self, where: str) -> None:
        super().__init__(by_last_fact)
        self._where = where
        self.waiting = threading.Event()

    def generate(self, request: GenerationRequest) -> Generation:
        if self._where in str(request.prompt):
            cut = threading.Event()
            with may_be_cut(cut.set):
                self.waiting.set()
                cut.wait()
        return super().generate(request)


class Decides(Reads):
    """Reads answers; looks at the model before it decides about round 2."""

    model: Waits
    error: BaseException | None = None

    def fires(self, table: PolicyTable) -> NDArray[np.bool_]:
        if table.n_rounds == 2:
            assert self.model.waiting.wait(5)
            if self.error is not None:
                raise self.error
        return super().fires(table)


def test_what_is_under_way_at_the_stop_is_cut() -> None:
    model = Waits("Fact 2")
    Decides.model = model
    begun = time.perf_counter()
    answered = asked(Decides(2), model)
    assert time.perf_counter() - begun < 5
    assert (answered.answer, answered.stopped_by) == ("1", "policy")
    assert answered.wasted == Wasted(rounds=1, calls=1, cut=1)
    assert answered.spent.calls == 3


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("a defect")])
def test_nothing_is_left_of_an_interrupt_or_a_defect(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Waits("Fact 2")
    Decides.model = model
    monkeypatch.setattr(Decides, "error", error)
    with pytest.raises(type(error)):
        asked(Decides(4), model)


def test_budgets_end_the_loop_where_they_end_the_plain_one() -> None:
    """2 USD an answer: what is under way counts when its round is reached; what is wasted is paid."""
    prices = Prices(input=0.0, cached=0.0, output=1e6)
    for usd in (1.0, 3.0, 5.0):
        budgets = Budgets(usd=usd, prices=prices)
        plain, ahead = (
            asked(Reads(5), ScriptedModel(by_last_fact), budgets=budgets, speculate=speculate)
            for speculate in (False, True)
        )
        assert (ahead.stopped_by, len(ahead.rounds)) == (plain.stopped_by, len(plain.rounds))
        assert plain.usd is not None
        assert ahead.wasted is not None
        assert ahead.usd == plain.usd + 2 * (ahead.wasted.calls - ahead.wasted.cut)


class Busy(ScriptedModel):
    """Keeps how many calls were under way at once."""

    under_way = most = 0

    def generate(self, request: GenerationRequest) -> Generation:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            return super().generate(request)
        finally:
            self.under_way -= 1


def test_two_rounds_run_at_a_time() -> None:
    for speculate, most in ((False, 1), (True, 2)):
        model = Busy(by_last_fact, delay_s=0.05)
        asked(Reads(6), model, rounds=6, speculate=speculate)
        assert model.most == most


@pytest.mark.parametrize("cached", [False, True])
def test_a_model_on_this_machines_processors_is_told_of(cached: bool, tmp_path: Path) -> None:
    class Here(ScriptedModel):
        computes_here = True

    def told(model: ChatModel, *, speculate: bool = True) -> list[str]:
        asked = CachedModel(model, tmp_path / "kept.sqlite") if cached else model
        said: list[str] = []
        chosen = ChosenPolicy(policy=RulePolicy(rule="round >= 2"))
        LiveLoop.of(chosen, asked, AskSettings(speculate=speculate), said.append)
        return said

    assert ["leave --speculate off" in line for line in told(Here())] == [True]
    assert told(ScriptedModel()) == told(Here(), speculate=False) == []
