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
from suffice.replay.choose.learn_then_test import Bound, Certification, Half, mean_of
from suffice.replay.settings import ChoiceSettings

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Means of every candidate, arrays (n_members,), the full budget at ``full``.

    ``loss`` is the full budget's score minus its own, ``cost`` that of ``axis``; ``kept`` says whether all
    that is to be proven was kept there, and ``latest`` who returns its latest answer.
    """

    loss: Array
    cost: Array
    kept: NDArray[np.bool_]
    latest: NDArray[np.bool_]
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
    alike = np.flatnonzero([_unfitted(member) for member in everyone.members])
    if fit.seen is None and everyone.full in alike:
        members = [everyone.members[number] for number in alike.tolist()]
        tuned = Kept.of(fit, members, replace(settings, cost=axis.name))
        tune = tuned.half(np.arange(len(tuned.last)))
        share = len(tune) / (len(tune) + len(rank))
        for of_bound, bound in zip(means, wanted, strict=True):
            of_bound[alike] = share * _mean(tune, bound) + (1.0 - share) * of_bound[alike]
    loss, cost, *bounded = means
    kept = [mean <= bound.most for mean, bound in zip(bounded, bounds, strict=True)]
    return Estimates(
        loss=loss,
        cost=cost,
        kept=np.all(kept, axis=0) if kept else np.ones(len(loss), np.bool_),
        latest=np.array([member.answer == LATEST for member in everyone.members]),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """The candidate by its number and why, the guess where nothing is proven, and all, best first."""

    number: int
    why: str
    order: NDArray[np.intp]
    guess: int | None = None


def pick(estimates: Estimates, outcome: Certification | None, settings: ChoiceSettings) -> Pick:
    """The candidate that the estimates, and the test of what was to be proven, speak for."""
    if outcome is None:
        return _by_aim(estimates, settings)
    kept = estimates.kept
    loss = np.where(kept, 0.0, estimates.loss)
    order = np.lexsort((estimates.cost, loss, ~kept, ~outcome.certified))
    if outcome.fell_back:
        return _first(_unproven(estimates, order, settings))
    least = "loses least of those" if settings.max_cost is not None else "is the cheapest that is"
    why = f"It {least} proven to keep what was asked."
    return _first(Pick(number=outcome.chosen, why=why, order=order))


def _first(chosen: Pick) -> Pick:
    """The same with the one chosen, and the guess, before the others."""
    first = [chosen.number, *([] if chosen.guess is None else [chosen.guess])]
    rest = chosen.order[~np.isin(chosen.order, first)]
    return replace(chosen, order=np.array([*first, *rest], np.intp))


def _unproven(estimates: Estimates, order: NDArray[np.intp], settings: ChoiceSettings) -> Pick:
    """The full budget, unless it costs more than is allowed and something else does not.

    The guess is the cheapest candidate that kept all that was asked, cheaper than the full budget.
    """
    cost, full, most = estimates.cost, estimates.full, settings.max_cost
    if most is None or cost[full] <= most:
        able = np.flatnonzero(estimates.kept & estimates.latest & (cost < cost[full]))
        guess = int(able[np.argmin(cost[able])]) if len(able) else None
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
