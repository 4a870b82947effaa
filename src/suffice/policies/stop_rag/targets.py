"""Training targets of Stop-RAG: the value of going on, from rewards and bootstrapped estimates.

A trajectory of T rounds has states s_1 to s_T. After round t the loop may stop and earn r(s_t, STOP), or
go on and earn nothing until its end. State s_T is terminal: the stop is forced, so it is no decision.
Rewards are (n, T) float64. Column t - 1 holds r(s_t, STOP), the mean score of the answers sampled after
round t. The column of a trajectory's last round T_i is also r(s_{T_i - 1}, CONT). Trajectories may differ
in length; columns past T_i are never read. There is no discount.

Paper 1, section 4.2 and appendix C, as published.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import torch
from suffice.policies.stop_rag.stop_rag_settings import Target
from suffice.stats.units import Array, Mask


def rounds_left(lengths: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return T_i - t for every state, (n, T): above 0 a decision, 0 the last, below 0 none."""
    return np.asarray(lengths, np.int64)[:, None] - np.arange(1, shape[1] + 1)


def monte_carlo(rewards: ArrayLike, lengths: ArrayLike) -> Array:
    """Return the best reward of any later round of the trajectory, Q^(T-t)(s_t, CONT)."""
    rewards = np.asarray(rewards, np.float64)
    left = rounds_left(lengths, rewards.shape)
    earned = np.where(left >= 0, rewards, -np.inf)
    best = np.maximum.accumulate(earned[:, ::-1], axis=1)[:, ::-1]
    targets = np.full(rewards.shape, np.nan)
    targets[:, :-1] = np.where(left[:, :-1] > 0, best[:, 1:], np.nan)
    return targets


def q_lambda(
    rewards: ArrayLike, lengths: ArrayLike, q_stop: ArrayLike, q_cont: ArrayLike, lam: float
) -> Array:
    """Return the full-width forward-view Q(λ) target of going on, Q^λ(s_t, CONT).

    λ = 1 gives :func:`monte_carlo`, to the bit. λ = 0 gives the better of the network's two estimates of
    the next state, or its reward if it is the last. The target of stopping is the reward itself.

    Paper 1, equations 9 to 12, as published. The weights of the n-step targets sum to 1.
    """
    rewards, q_stop, q_cont = (
        np.asarray(values, np.float64) for values in (rewards, q_stop, q_cont)
    )
    # round-major, so that the states t + n of all t are one block; 0 where nothing was recorded
    left = np.ascontiguousarray(rounds_left(lengths, rewards.shape).T)
    decides = left > 0
    earned = np.where(left >= 0, rewards.T, 0.0)
    # what an n-step backup ends in, and its weight over λ^(n-1)
    end = np.where(decides, np.maximum(q_stop, q_cont).T, earned)
    share = np.where(decides, 1.0 - lam, left == 0)
    best = np.full(end.shape, -np.inf)  # of the rewards between t and t + n
    target = np.zeros(end.shape)
    for n in range(1, len(end)):
        reach = len(end) - n
        step = np.maximum(best[:reach], end[n:])
        step *= share[n:]
        step *= lam ** (n - 1)
        target[:reach] += step
        np.maximum(best[:reach], earned[n:], out=best[:reach])
    target[~decides] = np.nan
    return target.T


def informative(rewards: ArrayLike, lengths: ArrayLike) -> Mask:
    """Return the states to train on: decisions, unless neither stopping nor going on earns anything."""
    going_on = monte_carlo(rewards, lengths)
    stopping = np.asarray(rewards, np.float64)
    undefined = np.isnan(going_on) | np.isnan(stopping)
    return np.asarray(~undefined & ~((stopping == 0.0) & (going_on == 0.0)))


def binary_labels(rewards: ArrayLike, lengths: ArrayLike) -> Array:
    """Return 1 where stopping earns more than the best of going on, else 0."""
    going_on = monte_carlo(rewards, lengths)
    stopping = np.asarray(rewards, np.float64)
    undefined = np.isnan(going_on) | np.isnan(stopping)
    return np.where(undefined, np.nan, stopping > going_on)


def value_loss(values: tuple[Any, Any], targets: tuple[Array, Array], known: Mask) -> Any:
    """Return the summed squared error of both heads, mean over the known states."""
    where = torch.from_numpy(known).to(values[0].device)

    def error(value: Any, target: Array) -> Any:
        wanted = torch.from_numpy(target[known]).to(value.device, value.dtype)
        return (value[where] - wanted).square()

    return sum(map(error, values, targets)).mean()


def binary_loss(values: tuple[Any, Any], labels: Array, known: Mask) -> Any:
    """Return the log-loss of the difference as the logit of "stopping is better" (equation 22)."""
    logits = values[0] - values[1]
    where = torch.from_numpy(known).to(logits.device)
    wanted = torch.from_numpy(labels[known]).to(logits.device, logits.dtype)
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[where], wanted)


def check_learnable(
    rewards: Array, lengths: NDArray[np.int64], validation: NDArray[np.int64], target: Target
) -> None:
    """Refuse trajectories without anything to learn, and ``validation`` without decisions."""
    if not (lengths > 1).any():
        raise UsageError(
            "every training question has one round, so there is nothing to decide; record with "
            "--rounds 2 or more"
        )
    known = informative(rewards, lengths)
    if not known.any():
        raise UsageError(
            "no state is left to learn from: the reward is 0 in every round of every training "
            "question; check the gold answers and samples, or score by another reward"
        )
    labels = binary_labels(rewards, lengths)[known]
    if target == "binary" and len(np.unique(labels)) < 2:
        kind = "better" if labels[0] else "never better"
        raise UsageError(
            f"target 'binary' needs both classes, and stopping is {kind} in all {len(labels)} "
            "training states; use target 'q-lambda' or 'mc', which learn how much better"
        )
    if not (validation > 1).any():
        raise UsageError(
            f"none of the {len(validation)} validation questions has two rounds, so no threshold "
            "can be chosen; give more questions or a larger validation share"
        )


_TIE = 1e-12  # means less than this apart are equal: 1/3 + 2/3 is not 1 in floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The best of ``candidates`` thresholds, with its mean reward (``score``) and mean rounds."""

    threshold: float
    score: float
    mean_rounds: float
    candidates: int


def stop_rounds(differences: ArrayLike, lengths: ArrayLike, threshold: float) -> NDArray[np.int16]:
    """Return the first round whose difference exceeds ``threshold``, else the last, (n,), from 1."""
    differences = np.asarray(differences, np.float64)
    left = rounds_left(lengths, differences.shape)
    stops = (differences > threshold) | (left == 0)
    return np.asarray(stops.argmax(axis=1) + 1, np.int16)


def choose_threshold(
    differences: ArrayLike, rewards: ArrayLike, lengths: ArrayLike, *, ends: bool
) -> Choice:
    """Return the threshold of the highest mean reward, then of the fewest mean rounds.

    Candidates are midpoints of neighboring differences at t < T_i; a midpoint that rounds to the upper one
    becomes the lower. Rounds never fall as the threshold rises, so the lowest of equal candidates wins.

    Paper 1, section 5.3, tunes a threshold on validation questions without naming candidates; candidates
    and ties are ours. Cost O(n T log(n T)).
    """
    differences, rewards = (np.asarray(values, np.float64) for values in (differences, rewards))
    left = rounds_left(lengths, differences.shape)
    observed = np.unique(differences[left > 0])
    if not np.isfinite(observed).all():
        raise UsageError("the network's values are not finite; choose lower learning rates")
    low, high = observed[:-1], observed[1:]
    middle = low / 2 + high / 2  # the sum itself may overflow
    thresholds = np.where(middle < high, middle, low)
    if ends or not len(thresholds):
        below = np.minimum(observed[:1] - 1.0, np.nextafter(observed[:1], -np.inf))
        thresholds = np.concatenate([below, thresholds, observed[-1:] + 1.0])
    totals = _totals(differences, rewards, left, thresholds)
    # each raises the rounds of the one before, or changes nothing
    threshold = float(thresholds[np.flatnonzero(totals > totals.max() - _TIE * len(left))[0]])
    stops = stop_rounds(differences, lengths, threshold)
    earned = rewards[np.arange(len(stops)), stops - 1]
    return Choice(
        threshold=threshold,
        score=math.fsum(earned.tolist()) / len(stops),
        mean_rounds=float(stops.mean(dtype=np.float64)),
        candidates=len(thresholds),
    )


def _totals(
    differences: Array, rewards: Array, left: NDArray[np.int64], thresholds: Array
) -> Array:
    decides = left > 0
    known = np.where(decides, differences, -np.inf)
    highest = np.maximum.accumulate(known, axis=1)
    leads = decides.copy()
    leads[:, 1:] &= known[:, 1:] > highest[:, :-1]
    following = rewards[left == 0]
    gains = np.zeros(rewards.shape)
    for column in range(rewards.shape[1] - 1, -1, -1):
        here = leads[:, column]
        gains[here, column] = (following - rewards[:, column])[here]
        following = np.where(here, rewards[:, column], following)
    passed = known[leads]
    order = np.argsort(passed)
    total = np.cumsum(np.append(following.sum(), gains[leads][order]))
    return np.asarray(total[np.searchsorted(passed[order], thresholds, side="right")])
