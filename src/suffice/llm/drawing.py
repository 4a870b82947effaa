"""Draw a token from a model's logits: llama.cpp's cut-offs, and chance that depends on the seed alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BLOCK = 512
_LOWEST = float(np.finfo(np.float32).min)
_MIX = np.array([0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0x9E3779B97F4A7C15], dtype=np.uint64)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest tokens, best first: ``tokens`` and ``logprobs`` of the whole vocabulary, (k,) each."""

    tokens: NDArray[np.int32]
    logprobs: NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cutoffs:
    """What may be drawn, in llama.cpp's order: ``top_k`` (0: all), ``top_p``, ``min_p``, then temperature.

    Temperature 0 always draws the likeliest.
    """

    temperature: float
    top_k: int
    top_p: float
    min_p: float


def likeliest(logits: NDArray[np.float32], count: int) -> Candidates:
    """The ``count`` largest finite of (vocabulary,) logits; of equal ones the lower token first."""
    count = min(count, len(logits))
    chosen = np.flatnonzero(logits >= max(_lower_bound(logits, count), _LOWEST))
    if not len(chosen):
        return Candidates(chosen.astype(np.int32), np.zeros(0))
    order = np.argsort(-logits[chosen], kind="stable")[:count]
    tokens = chosen[order].astype(np.int32)
    top = float(logits[tokens[0]])
    total = top + float(np.log(np.exp(logits - np.float32(top)).sum(dtype=np.float64)))
    return Candidates(tokens, logits[tokens].astype(np.float64) - total)


def _lower_bound(logits: NDArray[np.float32], count: int) -> float:
    """A value that at least ``count`` logits reach and few more do, without sorting all."""
    blocks = len(logits) // _BLOCK
    if blocks < count:
        return float(np.partition(logits, len(logits) - count)[len(logits) - count])
    best = logits[: blocks * _BLOCK].reshape(blocks, _BLOCK).max(axis=1)
    return float(np.partition(best, blocks - count)[blocks - count])


def kept(candidates: Candidates, cutoffs: Cutoffs) -> Candidates:
    """Those that may be drawn; at least the first."""
    tokens, logprobs = candidates.tokens, candidates.logprobs
    if cutoffs.top_k:
        tokens, logprobs = tokens[: cutoffs.top_k], logprobs[: cutoffs.top_k]
    if cutoffs.top_p < 1:
        share = np.exp(logprobs - logprobs[0])
        reached = np.cumsum(share) >= cutoffs.top_p * share.sum()
        end = int(np.argmax(reached)) + 1
        tokens, logprobs = tokens[:end], logprobs[:end]
    if cutoffs.min_p > 0:
        end = max(int((logprobs >= logprobs[0] + np.log(cutoffs.min_p)).sum()), 1)
        tokens, logprobs = tokens[:end], logprobs[:end]
    return Candidates(tokens, logprobs)


def draw(candidates: Candidates, cutoffs: Cutoffs, *, seed: int, place: int) -> int:
    """The place of one of the candidates, drawn among those kept by its probability at the temperature.

    The Gumbel-max way: every token's chance is a number of its own, made of seed, place in the text and
    token, so that a rounding error in the logits (they differ a little with what else is in a batch) changes
    a draw only where two tokens are that close.
    """
    if cutoffs.temperature <= 0:
        return 0
    allowed = kept(candidates, cutoffs)
    noise = -np.log(-np.log(uniform(allowed.tokens, seed=seed, place=place)))
    return int(np.argmax(allowed.logprobs / cutoffs.temperature + noise))


def uniform(tokens: NDArray[np.int32], *, seed: int, place: int) -> NDArray[np.float64]:
    """A number in (0, 1) for every token, (k,), by splitmix64 of seed, place and token."""
    state = np.array([seed & (2**64 - 1)], dtype=np.uint64)
    for word in (np.array([place], dtype=np.uint64), tokens.astype(np.uint64)):
        state = _mixed(_mixed(state) + word * _MIX[2])
    return ((_mixed(state) >> np.uint64(11)).astype(np.float64) + 0.5) / 2.0**53


def _mixed(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    state = state + _MIX[2]
    state = (state ^ (state >> np.uint64(30))) * _MIX[0]
    state = (state ^ (state >> np.uint64(27))) * _MIX[1]
    mixed: NDArray[np.uint64] = state ^ (state >> np.uint64(31))
    return mixed
