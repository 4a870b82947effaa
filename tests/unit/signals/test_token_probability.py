"""Mean probability over all generated tokens."""

from __future__ import annotations

import math

import pytest

from suffice.signals.model_confidence import TOKEN_PROBABILITY
from suffice.trace.rounds.records import LoopView, Round, Token


def value(*logprobs: float) -> float:
    tokens = tuple(Token("x", logprob) for logprob in logprobs)
    return TOKEN_PROBABILITY(LoopView("q", (Round(answer="x", tokens=tokens),)))


def test_the_mean_is_of_probabilities_not_of_their_logs() -> None:
    # exp(mean log) would be 0.5; the log-probabilities carry float32's precision.
    assert value(0.0, math.log(0.25)) == pytest.approx(0.625, abs=1e-7)


def test_ends() -> None:
    assert value(0.0) == 1.0
    assert value(-math.inf) == 0.0
    assert value() == 0.0
    assert value(1e-6) == 1.0  # a server's rounding


def test_undefined_when_not_recorded() -> None:
    assert math.isnan(TOKEN_PROBABILITY(LoopView("q", (Round(answer="x"),))))
