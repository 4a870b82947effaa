"""Limits on what answering one question may cost, and the count of what it did."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from suffice.concurrency import Aside, may_be_cut
from suffice.contracts import ChatModel, Generation, GenerationRequest
from suffice.costs.prices import Prices, Tariff
from suffice.errors import UsageError
from suffice.loops.calls import usage_of
from suffice.trace.rounds.records import Round, Usage

if TYPE_CHECKING:
    from suffice.loops.steps import Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Budgets:
    """Limits beside the policy; whichever is reached first ends the loop. ``None``: no limit.

    They are looked at after each round, so the last round may go past them by what it cost.

    Parameters
    ----------
    tokens
        Prompt and generated tokens of all calls.
    seconds
        Since the question was asked.
    usd
        US dollars, by ``prices``.
    prices
        What tokens, calls, retrievals and reranker calls cost.

    Raises
    ------
    UsageError
        When built: a limit that is not above 0, or ``usd`` without prices.
    """

    tokens: int | None = None
    seconds: float | None = None
    usd: float | None = None
    prices: Prices | None = None

    @property
    def limited(self) -> bool:
        """Whether there is any limit."""
        return (self.tokens, self.seconds, self.usd) != (None, None, None)

    def __post_init__(self) -> None:
        for name in ("tokens", "seconds", "usd"):
            limit = getattr(self, name)
            if limit is not None and not 0 < limit < math.inf:
                raise UsageError(f"a budget must be a number above 0, found {limit!r} {name}")
        if self.usd is not None and self.prices is None:
            raise UsageError(
                "a budget in US dollars needs prices: --price-model MODEL, or "
                "--prices input=0.15,output=0.60 (USD per million tokens)"
            )


class Spending:
    """What a question has cost so far, by what its rounds say, against its budgets."""

    ends_uncounted = (
        False  # whether a budget that cannot be kept ends the loop; else it is warned of
    )

    def __init__(self, budgets: Budgets) -> None:
        self._budgets = budgets
        self._tariffs = () if budgets.prices is None else budgets.prices.tariffs
        self._started = time.perf_counter()
        self.counted = True  # whether the tokens of all calls are known
        self.tokens = 0
        self._usd = 0.0

    @property
    def usd(self) -> float | None:
        """Dollars so far; ``None`` without prices, or when tokens were not counted."""
        return self._usd if self._tariffs and self.counted else None

    def add_calls(self, calls: Usage, *, prompts: int = 1) -> None:
        """Count calls with the tokens of all of them; ``prompts`` of them, of one length, were evaluated."""
        if calls.prompt_tokens is None or calls.completion_tokens is None:
            self.counted = False
        prompt, completion = calls.prompt_tokens or 0, calls.completion_tokens or 0
        cached = min(calls.cached_tokens or 0, prompt)  # not reported: all of it is paid in full
        self.tokens += prompt + completion
        tariff: Tariff | None = None
        for above, dearer in self._tariffs:
            tariff = dearer if prompt > above * prompts else tariff
        if tariff is not None:
            self._usd += (
                (prompt - cached) * tariff.prompt
                + cached * tariff.cached
                + completion * tariff.completion
                + (calls.llm_calls or 0) * tariff.call
            )

    def add_lookups(self, usage: Usage) -> None:
        """Count what a round cost besides calls to the model."""
        if self._tariffs:
            _, tariff = self._tariffs[0]
            self._usd += (usage.retrievals or 0) * tariff.retrieval
            self._usd += (usage.rerank_calls or 0) * tariff.rerank

    def add_round(self, usage: Usage) -> None:
        """Count everything that a round cost."""
        known = usage.llm_calls
        samples, judging = usage.sample_calls or 0, usage.judge_calls or 0
        plain = max(1, (known or 0) - samples) if known != samples else 0
        for kind, calls in (("", plain), ("sample_", samples), ("judge_", judging)):
            if calls:
                names = ("prompt_tokens", "cached_tokens", "completion_tokens")
                tokens = {name: getattr(usage, f"{kind}{name}") for name in names}
                self.add_calls(Usage(llm_calls=calls, **tokens), prompts=calls)
        self.add_lookups(usage)

    def spent(self) -> str | None:
        """Which budget is spent, in words; ``None``: none is, as far as is known."""
        budgets = self._budgets
        limits = (
            ("seconds", budgets.seconds, time.perf_counter() - self._started),
            ("tokens", budgets.tokens, self.tokens if self.counted else 0),
            ("USD", budgets.usd, self._usd if self.counted else 0.0),
        )
        for unit, limit, used in limits:
            if limit is not None and used >= limit:
                return f"the budget of {limit:g} {unit} is spent"
        return None

    @property
    def uncounted(self) -> str | None:
        """Which budget cannot be kept, in words; ``None``: all are kept."""
        for unit, limit in (("tokens", self._budgets.tokens), ("USD", self._budgets.usd)):
            if limit is not None and not self.counted:
                return (
                    f"the server counts no tokens, so a budget of {limit:g} {unit} cannot be kept"
                )
        return None


class Meter(Spending):
    """A model that counts what all its calls cost: answers, samples and verdicts; safe in several threads."""

    ends_uncounted = True

    def __init__(self, model: ChatModel, budgets: Budgets) -> None:
        super().__init__(budgets)
        self._model, self.name, self.api = model, model.name, model.api
        self._lock = threading.Lock()

    def generate(self, request: GenerationRequest) -> Generation:
        """Ask the model and count."""
        begun = _BEGUN.get()
        with may_be_cut():
            if begun is not None:
                begun.calls += request.n
            reply = self._model.generate(request)
            calls = usage_of(reply, calls=len(reply.completions))
            (self.pay if begun is None else begun.add)(calls)
        return reply

    def add_round(self, usage: Usage) -> None:
        """Count what a round cost besides the calls, which were counted as they were made."""
        self.add_lookups(usage)

    def pay(self, calls: Usage) -> None:
        """Count calls."""
        with self._lock:
            self.add_calls(calls)


# --- the next round, begun while a round is answered and decided about ----------------------------
_Made = TypeVar("_Made")
ToBeAsked = tuple["Step", Callable[[], Round]]
"""A round that the loop has come to, and what gives it with what is read of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wasted:
    """What was done for rounds that were not wanted."""

    rounds: int = 0
    calls: int = 0
    cut: int = 0
    tokens: int | None = 0


class Ahead:
    """The rounds of a loop: while round t is decided about, round t + 1 is searched and asked in a thread."""

    def __init__(self, steps: Iterator[Step], meter: Meter) -> None:
        self._steps = steps
        self._meter = meter
        self._begun: list[_Begun] = []
        self._reached = 0

    def rounds(self) -> Iterator[ToBeAsked]:
        """The rounds in their order; the one after each is begun when it is given."""
        self._begun.append(_Begun(self._steps, None, self._meter))
        while self._reached < len(self._begun):
            begun = self._begun[self._reached]
            self._reached += 1
            begun.take()
            step = begun.step.result()
            if step is None:
                return
            if not step.last:
                self._begun.append(_Begun(self._steps, step, self._meter))
            yield step, begun.asked.result

    def close(self) -> Wasted:
        """Cut what is under way and wait for its end; what of it was never reached."""
        for begun in self._begun:
            begun.aside.cut()
        rest = [each for each in self._begun[self._reached :] if each.calls or each.looked_up]
        replied = [calls for begun in rest for calls in begun.replied]
        tokens = [count for of in replied for count in (of.prompt_tokens, of.completion_tokens)]
        calls = sum(begun.calls for begun in rest)
        for begun in rest:  # paid all the same
            if begun.looked_up is not None:
                self._meter.add_lookups(begun.looked_up)
            begun.take()
        return Wasted(
            rounds=len(rest),
            calls=calls,
            cut=calls - sum(of.llm_calls or 0 for of in replied),
            tokens=None if None in tokens else sum(filter(None, tokens)),
        )


class _Begun:
    """A round under way: come to, then asked. Its calls are the meter's once it is taken, else wasted."""

    def __init__(self, steps: Iterator[Step], before: Step | None, meter: Meter) -> None:
        self._steps, self._before, self._meter = steps, before, meter
        self._lock = threading.Lock()
        self._taken = False
        self.replied: list[Usage] = []  # of calls that nobody took
        self.calls = 0  # those without a reply so far too
        self.step: Future[Step | None] = Future()
        self.asked: Future[Round] = Future()
        self.aside = Aside(self._run)

    def _run(self) -> None:
        step = _into(self.step, self._come_to)
        if step is not None:
            _into(self.asked, step.asked)

    def _come_to(self) -> Step | None:
        if self._before is not None and self._before.then is not None:
            self._before.then.begin()  # is asked in any case, and paid by the round before
        _BEGUN.set(self)
        return next(self._steps, None)

    def add(self, calls: Usage) -> None:
        """Count calls that were replied to."""
        with self._lock:
            if not self._taken:
                self.replied.append(calls)
                return
        self._meter.pay(calls)

    def take(self) -> None:
        """Someone wants the round: what it cost so far, and costs from now on, is the meter's."""
        with self._lock:
            self._taken = True
            replied, self.replied = self.replied, []
        for calls in replied:
            self._meter.pay(calls)

    @property
    def looked_up(self) -> Usage | None:
        """What its search cost; ``None``: there was none so far."""
        done = self.step.done() and self.step.exception() is None
        step = self.step.result() if done else None
        return None if step is None else step.found.usage


_BEGUN: ContextVar[_Begun | None] = ContextVar("suffice_begun_round", default=None)


def _into(future: Future[_Made], work: Callable[[], _Made]) -> _Made:
    """Do the work; the future has its result or its error, whatever it is: somebody may wait for it."""
    try:
        with may_be_cut():
            result = work()
    except BaseException as error:
        future.set_exception(error)
        raise
    future.set_result(result)
    return result
