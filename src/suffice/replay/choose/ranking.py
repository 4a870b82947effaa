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
from suffice.replay.choose.bounds import (
    Bound,
    Half,
    mean_of,
)
from suffice.replay.choose.candidates import LATEST, Candidate, Candidates, Kept
from suffice.replay.settings import ChoiceSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Means of every candidate, arrays (n_members,), the full budget at ``full``.

    ``loss`` is the full budget's score minus its own, ``cost`` that of ``axis``; ``kept`` says whether all
    that is to be proven was kept there.
    """

    loss: Array
    cost: Array
    kept: NDArray[np.bool_]
    full: int
    axis: CostAxis


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
        full=everyone.full,
        axis=axis,
    )


def _mean(half: Half, bound: Bound) -> Array:
    return half.costs.copy() if bound.of == "cost" else mean_of(half, bound)


def _unfitted(member: Candidate) -> bool:
    """Whether no label made it what it is."""
    if member.answer != LATEST or member.group == "method":
        return False
    return member.group == "fixed" or not rule_needs(member.policy.name).fitting


def in_order(estimates: Estimates) -> NDArray[np.intp]:
    """All candidates: those that kept what was asked first, the cheapest of them first."""
    loss = np.where(estimates.kept, 0.0, estimates.loss)
    return np.lexsort((estimates.cost, loss, ~estimates.kept))


def within_cap(estimates: Estimates, most: float) -> tuple[int, str] | None:
    """What to run where nothing is proven and the full budget costs more than is allowed, and why."""
    cost, full = estimates.cost, estimates.full
    if cost[full] <= most:
        return None
    unit = estimates.axis.per_question
    why = (
        f"Nothing is proven to keep what was asked, and the full budget costs {cost[full]:.4g} {unit}, above "
        f"the {most:g} allowed. "
    )
    within = cost <= most
    if not within.any():
        return int(np.argmin(cost)), f"{why}Nothing costs so little; this costs least."
    number = int(np.lexsort((cost, estimates.loss, ~estimates.kept, ~within))[0])
    why += f"Of the {int(within.sum())} candidates within it this one lost least where they were ranked."
    return number, why


def by_aim(estimates: Estimates, settings: ChoiceSettings) -> tuple[NDArray[np.intp], str]:
    """All candidates, the best by an aim without a promise first, and why it is."""
    loss, cost, error = estimates.loss, estimates.cost, settings.cost_per_error
    if error is not None:
        order = np.lexsort((cost, cost + error * loss))
        return order, f"Its cost plus {error:g} an error was the least on the questions that rank."
    most, unit = math.inf if settings.max_cost is None else settings.max_cost, estimates.axis
    if not (cost <= most).any():
        raise UsageError(
            f"no candidate costs at most {most:g} {unit.per_question}: the least is "
            f"{cost.min():.4g}; raise --max-cost"
        )
    why = (
        f"It lost least of those that cost at most {most:g} {unit.label} on the questions that "
        "rank."
    )
    return np.lexsort((cost, loss, cost > most)), why
