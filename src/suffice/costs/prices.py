"""Prices in US dollars, from a maintained list or by hand."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, time
from typing import Any

from suffice._optional import require
from suffice.errors import UsageError, near_misses

_MILLION = 1e6
_BY_HAND = "--prices input=0.15,cached=0.075,output=0.60 (USD per million tokens)"
_HAND_NAMES = ("input", "cached", "output", "call", "retrieval", "rerank")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """A charge in USD for each token, call, retrieval and reranker call, each at least 0.

    ``prompt`` is charged for prompt tokens (uncached), ``cached`` for cached ones, ``call`` for model calls.
    Usage without a charge need not be recorded.
    """

    prompt: float
    cached: float
    completion: float
    call: float = 0.0
    retrieval: float = 0.0
    rerank: float = 0.0

    def __post_init__(self) -> None:
        for charge in fields(self):
            value = getattr(self, charge.name)
            if not 0.0 <= value < math.inf:
                raise UsageError(
                    f"the charge for {charge.name} must be at least 0, found {value!r}"
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTier:
    """Other prices, in USD per million tokens, for requests of more than ``above`` prompt tokens."""

    above: int
    input: float
    cached: float
    output: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a model in US dollars."""

    input: float
    cached: float
    output: float
    call: float = 0.0
    retrieval: float = 0.0
    rerank: float = 0.0
    tiers: tuple[PriceTier, ...] = ()
    source: str = "by hand"
    date: date | None = None

    def __post_init__(self) -> None:
        starts = [tier.above for tier in self.tiers]
        if starts != sorted(set(starts)):
            raise UsageError(f"price tiers must be in increasing order, found {starts}")
        _ = self.tariffs  # refuses what cannot be charged

    @property
    def tariffs(self) -> tuple[tuple[int, Tariff], ...]:
        """(prompt tokens above which it holds, charges in USD); the first holds for every request."""
        levels = [(-1, self.input, self.cached, self.output)]
        levels += [(tier.above, tier.input, tier.cached, tier.output) for tier in self.tiers]
        return tuple(
            (
                above,
                Tariff(
                    prompt=prompt / _MILLION,
                    cached=cached / _MILLION,
                    completion=output / _MILLION,
                    call=self.call,
                    retrieval=self.retrieval,
                    rerank=self.rerank,
                ),
            )
            for above, prompt, cached, output in levels
        )

    @property
    def summary(self) -> str:
        text = (
            f"USD per million tokens: input {self.input:g}, cached {self.cached:g}, "
            f"output {self.output:g}"
        )
        text += "".join(
            f"; above {tier.above:,} prompt tokens {tier.input:g}, {tier.cached:g}, {tier.output:g}"
            for tier in self.tiers
        )
        extra = {"call": self.call, "retrieval": self.retrieval, "reranker call": self.rerank}
        text += "".join(f"; {value:g} USD a {name}" for name, value in extra.items() if value)
        on = "" if self.date is None else f", {self.date.isoformat()}"
        return f"{text} ({self.source}{on})"


def parse_prices(text: str) -> Prices:
    """Parse prices given by hand: ``input=0.15,cached=0.075,output=0.60``, in USD per million tokens.

    ``cached`` defaults to ``input``: then every prompt token costs the same, and the record needs no cached
    tokens. ``call``, ``retrieval`` and ``rerank`` are USD each, 0 by default.

    >>> parse_prices("input=0.15,output=0.60").cached
    0.15
    """
    rates: dict[str, float] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if not equals or name not in _HAND_NAMES or name in rates:
            raise UsageError(
                f"--prices takes name=number once each, apart by commas, with the names "
                f"{', '.join(_HAND_NAMES)}; found {part.strip()!r}"
            )
        try:
            value = float(number)
        except ValueError:
            value = math.nan
        if not 0.0 <= value < math.inf:
            raise UsageError(f"--prices: {name} must be a number from 0, found {number!r}")
        rates[name] = value
    missing = [name for name in ("input", "output") if name not in rates]
    if missing:
        raise UsageError(f"--prices lacks {' and '.join(missing)}; an example: {_BY_HAND}")
    rates = {"cached": rates["input"], **rates}
    return Prices(**rates)  # type: ignore[arg-type]  # names that were checked


def prices_of(model: str, provider: str | None = None, *, on: date | None = None) -> Prices:
    """Return a model's prices from the list of the package ``genai-prices``, without a download.

    ``model`` is a name in the list, perhaps with its provider before a colon: ``openai:gpt-5-mini``. Else
    the name suggests the ``provider``. ``on`` is the day of the prices (default: today); if they change
    within it, those of noon, UTC. A model that is not in the list, or has no prices per token, is a
    UsageError.
    """
    listed = require("genai_prices", extra="prices", purpose="prices by a model's name")
    snapshot = require("genai_prices.data_snapshot", extra="prices", purpose="a price list")
    price_list = snapshot.get_snapshot()
    if provider is None:
        head, colon, rest = model.partition(":")
        if colon and any(seller.id == head.lower() for seller in price_list.providers):
            provider, model = head, rest
    try:
        seller, entry = price_list.find_provider_model(model, None, provider, None)
    except LookupError as error:
        raise UsageError(_unknown(price_list.providers, model, provider)) from error
    day = datetime.now(tz=UTC).date() if on is None else on
    rates = entry.get_prices(datetime.combine(day, time(12), tzinfo=UTC))
    source = f"genai-prices {listed.__version__}, {seller.id}:{entry.id}"
    return _prices(rates, source, day)


def _unknown(providers: Any, model: str, provider: str | None) -> str:
    sellers = [seller for seller in providers if provider is None or seller.id == provider.lower()]
    if not sellers:
        known = ", ".join(seller.id for seller in providers)
        return f"the price list has no provider {provider!r}; known: {known}"
    names = (entry.id for seller in sellers for entry in seller.models)
    near = near_misses(model, dict.fromkeys(names), most=5, likeness=0.5)
    hint = f"near: {', '.join(near)}; " if near else ""
    return (
        f"the price list has no model {model!r}"
        f"{'' if provider is None else f' of provider {provider!r}'}; {hint}"
        f"name the provider as in openai:gpt-5-mini, or give prices by hand: {_BY_HAND}"
    )


def _prices(rates: Any, source: str, day: date) -> Prices:
    """Return one level of prices for every prompt length at which any of them changes."""
    if rates.input_mtok is None or rates.output_mtok is None:
        raise UsageError(
            f"{source} has no price per input and output token; give prices by hand: {_BY_HAND}"
        )
    cached = rates.input_mtok if rates.cache_read_mtok is None else rates.cache_read_mtok
    by_name = {"input": rates.input_mtok, "cached": cached, "output": rates.output_mtok}
    call = 0.0 if rates.requests_kcount is None else _at(rates.requests_kcount, 0) / 1000
    starts = {tier.start for price in by_name.values() for tier in getattr(price, "tiers", ())}
    tiers = tuple(
        PriceTier(above=start, **{name: _at(price, start + 1) for name, price in by_name.items()})
        for start in sorted(starts)
    )
    base = {name: _at(price, 0) for name, price in by_name.items()}
    return Prices(**base, call=call, tiers=tiers, source=source, date=day)


def _at(price: Any, prompt_tokens: int) -> float:
    chosen = getattr(price, "base", price)
    for tier in getattr(price, "tiers", ()):
        if prompt_tokens > tier.start:
            chosen = tier.price
    return float(chosen)
