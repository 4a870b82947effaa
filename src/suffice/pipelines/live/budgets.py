"""Limits on what answering one question may cost, and the count of what it did."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Literal

from suffice.costs.prices import Prices
from suffice.costs.tariff import Tariff
from suffice.errors import UsageError
from suffice.protocols import ChatModel, Generation, GenerationRequest
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


class Meter:
    """A model that counts what all its calls cost: answers, samples and verdicts."""

    def __init__(self, model: ChatModel, budgets: Budgets) -> None:
        self._model = model
        self._budgets = budgets
        self._tariffs = () if budgets.prices is None else budgets.prices.tariffs
        self._started = time.perf_counter()
        self._counted = True
        self.tokens = 0
        self._usd = 0.0

    @property
    def name(self) -> str:
        """The model's."""
        return self._model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        """The model's."""
        return self._model.api

    @property
    def usd(self) -> float | None:
        """Dollars so far; ``None`` without prices, or when the server does not count tokens."""
        return self._usd if self._tariffs and self._counted else None

    def generate(self, request: GenerationRequest) -> Generation:
        """Ask the model and count."""
        reply = self._model.generate(request)
        if reply.prompt_tokens is None or reply.completion_tokens is None:
            self._counted = False
        self.tokens += (reply.prompt_tokens or 0) + (reply.completion_tokens or 0)
        self._usd += self._charge(reply)
        return reply

    def add(self, usage: Usage) -> None:
        """Count what a round cost besides calls to the model."""
        if self._tariffs:
            _, tariff = self._tariffs[0]
            self._usd += (usage.retrievals or 0) * tariff.retrieval
            self._usd += (usage.rerank_calls or 0) * tariff.rerank

    def spent(self) -> str | None:
        """Which budget is spent, in words; ``None``: none is."""
        budgets = self._budgets
        seconds = time.perf_counter() - self._started
        if budgets.seconds is not None and seconds >= budgets.seconds:
            return f"the budget of {budgets.seconds:g} seconds is spent"
        wanted = {"tokens": budgets.tokens, "USD": budgets.usd}
        limited = {unit: limit for unit, limit in wanted.items() if limit is not None}
        for unit, limit in limited.items():
            if not self._counted:
                return (
                    f"the server counts no tokens, so a budget of {limit:g} {unit} cannot be kept"
                )
            if (self.tokens if unit == "tokens" else self._usd) >= limit:
                return f"the budget of {limit:g} {unit} is spent"
        return None

    def _charge(self, reply: Generation) -> float:
        prompt, completion = reply.prompt_tokens or 0, reply.completion_tokens or 0
        cached = min(reply.cached_tokens or 0, prompt)  # not reported: all of it is paid in full
        tariff: Tariff | None = None
        for above, dearer in self._tariffs:
            tariff = dearer if prompt > above else tariff
        if tariff is None:
            return 0.0
        return (
            (prompt - cached) * tariff.prompt
            + cached * tariff.cached
            + completion * tariff.completion
            + len(reply.completions) * tariff.call
        )
