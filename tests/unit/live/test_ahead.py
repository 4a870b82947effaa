"""The next round begun ahead: the plain loop's answer, errors in their place, nothing left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.live_answers import answered as answered_by

from suffice.concurrency import Aside, may_be_cut
from suffice.contracts import (
    ChatModel,
    Completion,
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
from suffice.live.budgets import Ahead, Budgets, Meter, Wasted
from suffice.live.requirements import ChosenPolicy
from suffice.llm.connect import CachedModel
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.steps import LOOPS, make_pipeline
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


def test_a_defect_in_a_round_ahead_is_raised_where_it_is_reached() -> None:
    def reply(request: GenerationRequest, sample: int) -> str:
        if "Fact 2" in str(request.prompt):
            raise ZeroDivisionError
        return by_last_fact(request, sample)

    assert asked(Reads(2), ScriptedModel(reply)).answer == "1"
    with pytest.raises(ZeroDivisionError):
        asked(Reads(3), ScriptedModel(reply))


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


def test_lookups_that_were_wasted_are_paid() -> None:
    """Three searches, of which the last was for a round that nobody reached."""
    prices = Prices(input=0.0, cached=0.0, output=0.0, retrieval=1.0)
    meter = Meter(ScriptedModel(), Budgets(prices=prices))
    example = EXAMPLES[0]
    loop = make_pipeline(meter, LOOPS["chain"](rounds=4, samples=0))
    ahead = Ahead(loop.steps(example.question, OwnParagraphs(example.passages)), meter)
    rounds = ahead.rounds()
    for step, ask in (next(rounds), next(rounds)):
        meter.add_lookups(step.finished(ask()).usage)
    ahead._begun[2].asked.result()
    assert meter.usd == 2.0
    wasted = ahead.close()
    assert (wasted.rounds, wasted.calls, wasted.cut) == (1, 3, 0)
    assert meter.usd == 3.0


def test_work_aside_that_is_cut_ends_at_its_next_block() -> None:
    reached: list[str] = []
    go = threading.Event()

    def work() -> None:
        go.wait(5)
        reached.append("before")
        with may_be_cut():
            reached.append("never")

    aside = Aside(work)
    threading.Timer(0.02, go.set).start()
    aside.cut()
    assert reached == ["before"]
    time.sleep(0.01)  # the timer's thread
    with may_be_cut(lambda: reached.append("nobody cuts this thread")):
        reached.append("after")
    assert reached == ["before", "after"]


class Kept:
    """Passes requests on and keeps the replies by what was asked, with what else was likely."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model
        self.name, self.api = model.name, model.api
        self.replies: dict[tuple[object, ...], Completion] = {}

    def generate(self, request: GenerationRequest) -> Generation:
        made = self._model.generate(replace(request, top_logprobs=5))
        asked = (request.prompt, request.max_tokens, request.temperature, request.n)
        self.replies[asked] = made.completions[0]
        return made


def lead_where_they_part(ours: Completion, theirs: Completion) -> float:
    """By how much the first token that only one of two greedy texts has was likelier than the next best."""
    for one, other in zip_longest(ours.tokens or (), theirs.tokens or ()):
        if one is None or other is None or one.token != other.token:
            best, second = (one or other).top[:2]
            return float(best.logprob - second.logprob)
    return 0.0


NEAR_TIE = 0.5  # logits of 4-bit weights differ by up to 0.25 with how a prompt is cut into batches


@pytest.mark.slow
@pytest.mark.model
def test_the_embedded_model_says_the_same_to_a_prompt_but_for_near_ties() -> None:
    pytest.importorskip("xllamacpp", reason="the extra 'embedded' is not installed")
    from suffice.llm.embedded import EmbeddedModel

    with EmbeddedModel.load() as model:
        for loop in (LOOPS["iterative"](rounds=2, samples=0),):
            kept = []
            for speculate in (False, True):
                kept.append(Kept(model))
                policy, example = RulePolicy(rule="answer_stable"), EXAMPLES[0]
                text, passages = example.question.text, example.passages
                answered_by(policy, kept[-1], loop, passages, text, speculate=speculate)
            plain, ahead = (one.replies for one in kept)
            common = plain.keys() & ahead.keys()
            assert len(common) >= 2
            leads = [lead_where_they_part(plain[asked], ahead[asked]) for asked in common]
            assert max(leads) < NEAR_TIE


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
