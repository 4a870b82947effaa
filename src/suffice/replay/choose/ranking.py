"""What candidates lost and cost on the questions that rank them, and which one that speaks for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import rule_needs
from suffice.replay.choose.candidates import LATEST, Candidate, Candidates, Kept
from suffice.replay.choose.learn_then_test import (
    Bound,
    Certification,
    CertifySettings,
    Half,
    losses_of,
    mean_of,
)
from suffice.replay.settings import ChoiceSettings

Array = NDArray[np.float64]
LIKELY = 0.8
"""Confidence in a guess, at most: that no candidate which seems to keep what was asked breaks it."""
_DRAWS = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Means of every candidate, arrays (n_members,), the full budget at ``full``.

    ``loss`` is the full budget's score minus its own, ``cost`` that of ``axis``; ``kept`` says whether all
    that is to be proven was kept there, and ``latest`` who returns its latest answer and ``fixed``
    who is a fixed budget. ``tune`` are the questions of tune under the candidates ``unfitted`` (n_unfitted,),
    to which no label was fitted; ``None``: they rank nothing.
    """

    loss: Array
    cost: Array
    kept: NDArray[np.bool_]
    latest: NDArray[np.bool_]
    fixed: NDArray[np.bool_]
    full: int
    axis: CostAxis
    unfitted: NDArray[np.intp]
    tune: Half | None


def estimated(
    rank: Half,
    fit: Measures,
    everyone: Candidates,
    axis: CostAxis,
    settings: ChoiceSettings,
    bounds: Sequence[Bound] = (),
) -> Estimates:
    """On the questions that rank and, of what no label was fitted to, on those of tune too.

    More questions tell more than the slight favour that rules have where they were listed takes away: on
    populations with known truth that regrets less than either part alone (docs/benchmarks.md).
    """
    wanted = (Bound(of="signed", most=0.0), Bound(of="cost", most=0.0), *bounds)
    means = [_mean(rank, bound) for bound in wanted]
    unfitted = np.flatnonzero([_unfitted(member) for member in everyone.members])
    tune = None
    if fit.seen is None and everyone.full in unfitted:
        members = [everyone.members[number] for number in unfitted.tolist()]
        tuned = Kept.of(fit, members, replace(settings, cost=axis.name))
        tune = tuned.half(np.arange(len(tuned.last)))
        share = len(tune) / (len(tune) + len(rank))
        for of_bound, bound in zip(means, wanted, strict=True):
            of_bound[unfitted] = share * _mean(tune, bound) + (1.0 - share) * of_bound[unfitted]
    loss, cost, *bounded = means
    kept = [mean <= bound.most for mean, bound in zip(bounded, bounds, strict=True)]
    return Estimates(
        loss=loss,
        cost=cost,
        kept=np.all(kept, axis=0) if kept else np.ones(len(loss), np.bool_),
        latest=np.array([member.answer == LATEST for member in everyone.members]),
        fixed=np.array([member.group == "fixed" for member in everyone.members]),
        full=everyone.full,
        axis=axis,
        unfitted=unfitted,
        tune=tune,
    )


def likely(
    estimates: Estimates, halves: Sequence[Half], promise: CertifySettings, seed: int
) -> NDArray[np.bool_]:
    """Who is cheaper than the full budget and keeps what was asked by all there is, (n_members,).

    Once nothing was proven the questions that prove may be looked at: a guess by those that rank alone is the
    luckiest of many. Each mean loss is taken at its upper bound, ``c`` standard errors above it, ``c`` being
    the quantile of the greatest of all candidates' standardised means, drawn from the normal with their
    correlations (as White 2000, with Gaussian draws): so how many were looked at, and how alike they
    are, is counted. To the error belongs one question more that is lost. Those of tune count for fixed
    budgets alone: rules were looked for on them. Of a cost the mean where candidates were ranked must do.
    """
    cheaper = estimates.latest & (estimates.cost < estimates.cost[estimates.full])
    losing = [bound for bound in promise.bounds if bound.of != "cost"]
    level = 1.0 - (1.0 - min(LIKELY, promise.confidence)) / len(losing)
    random = np.random.default_rng(seed)
    keeps: NDArray[np.bool_] = cheaper.copy()
    columns = estimates.fixed[estimates.unfitted]
    fixed = estimates.unfitted[columns]
    for bound in losing if cheaper.any() else ():
        losses = np.concatenate([losses_of(half, bound) for half in halves])
        count = np.full(len(cheaper), len(losses))
        sums, squares = losses.sum(axis=0), np.square(losses).sum(axis=0)
        if estimates.tune is not None:
            of_tune = losses_of(estimates.tune, bound)[:, columns]
            count[fixed] += len(of_tune)
            sums[fixed] += of_tune.sum(axis=0)
            squares[fixed] += np.square(of_tune).sum(axis=0)
        means = sums / count
        errors = np.sqrt((squares / count - np.square(means)).clip(0.0) / count + 1.0 / count**2)
        spread = losses[:, cheaper & (losses.std(axis=0) > 0.0)]
        alike = np.atleast_2d(np.corrcoef(spread.T)) if spread.shape[1] else np.zeros((1, 1))
        drawn = random.multivariate_normal(np.zeros(len(alike)), alike, _DRAWS, method="eigh")
        keeps &= means + np.quantile(drawn.max(axis=1), level) * errors <= bound.most
    return keeps


def _mean(half: Half, bound: Bound) -> Array:
    return half.costs.copy() if bound.of == "cost" else mean_of(half, bound)


def _unfitted(member: Candidate) -> bool:
    """Whether no label made it what it is."""
    if member.answer != LATEST or member.group == "method":
        return False
    return member.group == "fixed" or not rule_needs(member.policy.name).fitting


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The candidate by its number and why, the guess where nothing is proven, and all, best first."""

    number: int
    why: str
    order: NDArray[np.intp]
    guess: int | None = None


def pick(
    estimates: Estimates,
    outcome: Certification | None,
    settings: ChoiceSettings,
    keeps: NDArray[np.bool_],
) -> Pick:
    """The candidate that the estimates, and the test of what was to be proven, speak for.

    ``keeps`` (n_members,) is who can be guessed, see :func:`likely`.
    """
    if outcome is None:
        return _by_aim(estimates, settings)
    kept = estimates.kept
    loss = np.where(kept, 0.0, estimates.loss)
    order = np.lexsort((estimates.cost, loss, ~kept, ~outcome.certified))
    if outcome.fell_back:
        return _first(_unproven(estimates, order, settings, keeps))
    least = "loses least of those" if settings.max_cost is not None else "is the cheapest that is"
    why = f"It {least} proven to keep what was asked."
    return _first(Pick(number=outcome.chosen, why=why, order=order))


def _first(chosen: Pick) -> Pick:
    """The same with the one chosen, and the guess, before the others."""
    first = [chosen.number, *([] if chosen.guess is None else [chosen.guess])]
    rest = chosen.order[~np.isin(chosen.order, first)]
    return replace(chosen, order=np.array([*first, *rest], np.intp))


def _unproven(
    estimates: Estimates,
    order: NDArray[np.intp],
    settings: ChoiceSettings,
    keeps: NDArray[np.bool_],
) -> Pick:
    """The full budget with a guess, unless it costs more than is allowed and something else does not."""
    cost, full, most = estimates.cost, estimates.full, settings.max_cost
    if most is None or cost[full] <= most:
        guess = int(np.argmin(np.where(keeps, cost, np.inf))) if keeps.any() else None
        why = "Nothing cheaper is proven to keep what was asked."
        return Pick(number=full, why=why, order=order, guess=guess)
    unit = estimates.axis.per_question
    why = (
        f"Nothing is proven to keep what was asked, and the full budget costs {cost[full]:.4g} {unit}, above "
        f"the {most:g} allowed. "
    )
    within = cost <= most
    if not within.any():
        number = int(np.argmin(cost))
        return Pick(
            number=number, why=f"{why}Nothing costs so little; this costs least.", order=order
        )
    number = int(np.lexsort((cost, estimates.loss, ~estimates.kept, ~within))[0])
    why += f"Of the {int(within.sum())} candidates within it this one lost least where they were ranked."
    return Pick(number=number, why=why, order=order)


def _by_aim(estimates: Estimates, settings: ChoiceSettings) -> Pick:
    """The best by an aim without a promise."""
    loss, cost, error = estimates.loss, estimates.cost, settings.cost_per_error
    if error is not None:
        order = np.lexsort((cost, cost + error * loss))
        why = f"Its cost plus {error:g} an error was the least on the questions that rank."
        return Pick(number=int(order[0]), why=why, order=order)
    most, unit = math.inf if settings.max_cost is None else settings.max_cost, estimates.axis
    if not (cost <= most).any():
        raise UsageError(
            f"no candidate costs at most {most:g} {unit.per_question}: the least is "
            f"{cost.min():.4g}; raise --max-cost"
        )
    order = np.lexsort((cost, loss, cost > most))
    why = (
        f"It lost least of those that cost at most {most:g} {unit.label} on the questions that "
        "rank."
    )
    return Pick(number=int(order[0]), why=why, order=order)
