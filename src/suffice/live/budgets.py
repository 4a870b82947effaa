"""Limits on what answering one question may cost, and the count of what it did."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from suffice.concurrency import may_be_cut
from suffice.contracts import ChatModel, Generation, GenerationRequest
from suffice.costs.prices import Prices, Tariff
from suffice.errors import UsageError
from suffice.loops.calls import usage_of
from suffice.trace.rounds.records import Usage


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
        False  # whether a budget that cannot be kept ends the loop; else a warning says so
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
    """A model that counts what all its calls cost: answers, samples and verdicts."""

    ends_uncounted = True

    def __init__(self, model: ChatModel, budgets: Budgets) -> None:
        super().__init__(budgets)
        self._model, self.name, self.api = model, model.name, model.api

    def generate(self, request: GenerationRequest) -> Generation:
        """Ask the model and count."""
        with may_be_cut():
            reply = self._model.generate(request)
            self.add_calls(usage_of(reply, calls=len(reply.completions)))
        return reply

    def add_round(self, usage: Usage) -> None:
        """Count what a round cost besides the calls, which were counted as they were made."""
        self.add_lookups(usage)
