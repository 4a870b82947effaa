"""Mean probability of the generated tokens."""

from __future__ import annotations

import math
import statistics

from suffice.signals.base import UNDEFINED, SignalSpec
from suffice.trace.records import LoopView

__all__ = ["TOKEN_PROBABILITY", "token_probability"]


def token_probability(view: LoopView) -> float:
    """Mean of exp(logprob) over all generated tokens, end token included (paper 2, S1), in [0, 1].

    0 when nothing was generated; undefined when tokens were not recorded.
    """
    tokens = view.current.tokens
    if tokens is None:
        return UNDEFINED
    if not tokens:
        return 0.0
    # A server may report a log-probability a hair above 0.
    return statistics.fmean(math.exp(min(token.logprob, 0.0)) for token in tokens)


TOKEN_PROBABILITY = SignalSpec(
    name="token_probability",
    summary="mean probability of the generated tokens",
    needs=("tokens",),
    low=0.0,
    high=1.0,
    compute=token_probability,
    instead="self_consistency (from samples)",
)
