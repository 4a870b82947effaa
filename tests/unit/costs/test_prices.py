"""Prices against the price list's own arithmetic, and prices by hand."""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from suffice.costs.prices import Prices, parse_prices, prices_of
from suffice.costs.usage import CostModel, cost_matrix
from suffice.errors import MissingExtra, UsageError
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Round, Usage

DAY = date(2026, 6, 1)


def ours(prices: Prices, prompt: int, cached: int, completion: int) -> float:
    usage = Usage(
        llm_calls=1, prompt_tokens=prompt, cached_tokens=cached, completion_tokens=completion
    )
    record = dataclasses.replace(make_record("q", ["x"]), rounds=(Round(answer="x", usage=usage),))
    return float(cost_matrix(to_trace_set([record]), "usd", model=CostModel(prices=prices))[0, 0])


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("gpt-5-mini", None),
        ("gpt-4o-mini", "openai"),
        ("openai:gpt-4o-mini", None),
        ("gemini-2.5-pro", "google"),  # more for prompts above 200,000 tokens
        ("claude-sonnet-4-5", "anthropic"),
        ("sonar", "perplexity"),  # by the request as well
        ("deepseek-chat", "deepseek"),
    ],
)
@pytest.mark.parametrize(
    "tokens",
    [(0, 0, 0), (10_000, 6_000, 200), (10_000, 0, 0), (7, 7, 1), (200_000, 9, 5), (200_001, 9, 5)],
)
def test_a_request_costs_what_the_list_says(
    model: str, provider: str | None, tokens: tuple[int, int, int]
) -> None:
    genai_prices = pytest.importorskip("genai_prices")
    prompt, cached, completion = tokens
    theirs = genai_prices.calc_price(
        genai_prices.Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=completion),
        model_ref=model.removeprefix("openai:"),
        provider_id="openai" if model.startswith("openai:") else provider,
        genai_request_timestamp=datetime(2026, 6, 1, 12, tzinfo=UTC),
    )
    found = prices_of(model, provider, on=DAY)
    assert ours(found, *tokens) == pytest.approx(float(theirs.total_price), rel=1e-12, abs=1e-18)
    assert found.date == DAY
    assert f"{theirs.provider.id}:{theirs.model.id}" in found.source
    assert genai_prices.__version__ in found.source


def test_two_models_by_the_figures_of_their_makers() -> None:
    """USD per million tokens, as published: gpt-4o-mini 0.15, 0.075 and 0.60; gpt-5-mini 0.25, 0.025, 2."""
    pytest.importorskip("genai_prices")
    small = prices_of("openai:gpt-4o-mini", on=DAY)
    assert (small.input, small.cached, small.output, small.tiers) == (0.15, 0.075, 0.60, ())
    newer = prices_of("gpt-5-mini", on=DAY)
    assert (newer.input, newer.cached, newer.output) == (0.25, 0.025, 2.0)
    assert ours(newer, 10_000, 6_000, 200) == pytest.approx(0.00155)


def test_the_list_decides_by_day() -> None:
    """Prices that changed: the entry of the list with the most dated prices, before and after one."""
    snapshot = pytest.importorskip("genai_prices.data_snapshot").get_snapshot()
    dated = [
        (seller.id, entry.id, change.constraint.start_date)
        for seller in snapshot.providers
        for entry in seller.models
        if isinstance(entry.prices, list)
        for change in entry.prices
        if hasattr(change.constraint, "start_date")
        and entry.prices[0].prices.output_mtok != change.prices.output_mtok
        and isinstance(entry.prices[0].prices.output_mtok, Decimal)
        and change.prices.output_mtok is not None
    ]
    seller, model, start = dated[0]
    before = prices_of(model, seller, on=date(2000, 1, 1))
    after = prices_of(model, seller, on=start)
    assert before.output != after.output


@pytest.mark.parametrize(
    ("model", "provider", "said"),
    [
        ("gpt-5-mnii", None, "'gpt-5-mnii'"),
        ("openai:gpt-5-mnii", None, "'gpt-5-mnii'"),
        ("zzzzzz", None, "--prices"),
        ("gpt-5-mini", "nobody", "'nobody'"),
        ("whisper-large-v3", "groq", "output"),  # has no price of tokens
    ],
)
def test_a_model_without_prices_is_refused(model: str, provider: str | None, said: str) -> None:
    pytest.importorskip("genai_prices")
    with pytest.raises(UsageError, match=said):
        prices_of(model, provider)


def test_without_the_package_the_message_is_the_install_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    with pytest.raises(MissingExtra, match="suffice"):
        prices_of("gpt-5-mini")


def test_by_hand() -> None:
    found = parse_prices("input=0.15, cached=0.075, output=0.60")
    assert found == Prices(input=0.15, cached=0.075, output=0.60)
    assert ours(found, 10_000, 6_000, 200) == pytest.approx(
        (4_000 * 0.15 + 6_000 * 0.075 + 200 * 0.60) / 1e6
    )
    assert parse_prices("input=0.15,output=0.60").cached == 0.15
    extra = parse_prices("input=1,output=2,call=0.01,retrieval=0.005,rerank=0.002")
    assert (extra.call, extra.retrieval, extra.rerank) == (0.01, 0.005, 0.002)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cached=1", "--prices"),
        ("input=1", "--prices lacks output"),
        ("input=1,output=2,speed=3", "found 'speed=3'"),
        ("input=-1,output=2", "'-1'"),
        ("input", "found 'input'"),
        ("input=1,input=2", "found 'input=2'"),
        ("input=much", "'much'"),
        ("input=nan", "found 'nan'"),
    ],
)
def test_what_is_not_of_the_form_is_refused(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse_prices(text)
