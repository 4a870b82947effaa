"""Bounds on mean losses, tested together (Learn then Test; intersection-union, Berger 1982)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from suffice.evaluation.choose.rule_stops import RuleStops
from suffice.evaluation.replay.frontier import pareto_front
from suffice.evaluation.settings import USUAL_LOSS, Correction, LossName
from suffice.measures.seen import Seen
from suffice.scoring import METRICS
from suffice.stats.p_values import (
    betting_p_values,
    binomial_p_values,
    hoeffding_bentkus_p_values,
    holm,
)
from suffice.stats.units import Array, unit_means

_BLOCK_CELLS = 4_000_000  # losses held at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A bound: the mean of the loss ``of`` over questions is at most ``most``."""

    of: LossName
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A promise: bounds on a loss, on the share of wrong stops, or on both.

    ``only_front`` tests only members on the Pareto front of the first half: the tests do not see those
    data, and fewer tests have more power.
    """

    max_loss: float | None = USUAL_LOSS
    confidence: float = 0.95
    loss: LossName = "signed"
    max_wrong_stops: float | None = None
    correction: Correction = "fixed-sequence"
    only_front: bool = True

    @property
    def bounds(self) -> tuple[Bound, ...]:
        asked: tuple[tuple[LossName, float | None], ...] = (
            (self.loss, self.max_loss),
            ("wrong-stop", self.max_wrong_stops),
        )
        return tuple(Bound(of=of, most=most) for of, most in asked if most is not None)

    @property
    def delta(self) -> float:
        """Probability of a broken promise, at most."""
        return 1.0 - self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """Half of the questions under every member of the family.

    ``stops`` (n_members, n_questions) are rounds from 1, ``scores`` (n_questions, n_rounds) the score, and
    ``right`` the score for wrong stops if that is another. ``last`` (n_questions,) is each question's last
    recorded round, ``costs`` (n_members,) the mean cost a question. ``units`` (n_questions,) number
    independent units from 0; their losses are averaged first (``None``: questions are independent). The
    betting test takes units in ``orders`` (n, n_units), which must not depend on losses. With cut questions
    ``seen`` says how far each was seen, and ``reach`` is the greatest possible weight in either half.
    """

    stops: NDArray[np.int16] | RuleStops
    scores: Array
    last: NDArray[np.int16]
    costs: Array
    seen: Seen | None = None
    reach: float = 1.0
    right: Array | None = None
    units: NDArray[np.intp] | None = None
    orders: NDArray[np.intp] | None = None

    def __len__(self) -> int:
        return len(self.last) if self.units is None else int(self.units.max(initial=-1)) + 1

    def losses(self, members: NDArray[np.intp], of: LossName) -> Array:
        """Return losses in [0, 1], scaled by :func:`_scaled`, (n_units, n_members)."""
        n_questions = len(self.scores)
        by_round = _scaled(np.ascontiguousarray(self._by_round(of).T), of, self)
        places = (self.stops[members].T - 1).astype(np.intp, order="C")
        places *= n_questions
        places += np.arange(n_questions)[:, None]
        losses = np.asarray(by_round.ravel().take(places))
        return losses if self.units is None else unit_means(losses, self.units)

    def _by_round(self, loss: LossName) -> Array:
        """The loss of stopping after each round, (n_questions, n_rounds), in [-reach, reach]."""
        scores = self.right if loss == "wrong-stop" and self.right is not None else self.scores
        if self.seen is None:
            full = scores[np.arange(len(scores)), self.last - 1]
            return _lost(full[:, None], scores, loss)
        return np.clip(weighted_losses(scores, self.seen, loss), -self.reach, self.reach)


def _scaled(values: Array, of: LossName, half: Half) -> Array:
    """Values on their own scale brought to [0, 1], in place."""
    values /= half.reach
    if of == "signed":
        values += 1.0
        values /= 2.0
    return values


def limit_of(bound: Bound, half: Half) -> float:
    """Return the bound on the scale of :meth:`Half.losses`."""
    return float(_scaled(np.array([bound.most]), bound.of, half)[0])


def plain(means: Array, bound: Bound, half: Half) -> Array:
    """Undo :func:`_scaled` for means."""
    return half.reach * (2.0 * means - 1.0 if bound.of == "signed" else means)


def _lost(full: Array, stopped: Array, loss: LossName) -> Array:
    lost = full - stopped
    return lost if loss == "signed" else np.maximum(lost, 0.0)


def weighted_losses(scores: Array, seen: Seen, loss: LossName) -> Array:
    """Return the loss of every stop in a record with cut questions, (n_questions, n_rounds)."""
    if loss == "signed":
        values = seen.anchored(scores, 0.0)
        full = np.where(seen.unseen, 1.0, values[:, -1])
        losses = _lost(full[:, None], values, loss)
    else:
        plain = replace(seen, weight=np.ones_like(seen.weight)).matrix(scores, unseen=0.0)
        full = np.where(seen.unseen, 1.0, plain[:, -1])
        weight = seen.weights(np.full_like(seen.last, seen.budget))
        losses = np.where(weight > 0, weight * _lost(full[:, None], plain, loss).T, 0.0).T
    losses[:, -1] = 0.0
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedTests:
    """Members in the order of their tests, safest first, with p-values."""

    order: NDArray[np.intp]
    adjusted: Array  # (n_tested,), those that a level is compared with, in the order
    tested_at: Array  # (n_bounds, n_members), NaN where not tested


def member_tests(
    learn: Half, test: Half, full: int, settings: Promise, level: float | None = None
) -> OrderedTests:
    """Test a family at a ``level`` (``None``: the promise's delta)."""
    distinct = _cheapest_of_equals(learn, full)
    everyone = np.arange(len(test.costs))
    losses = _means(learn, everyone, settings.bounds[0])
    order = _order(learn, distinct, losses, full, settings)
    in_sequence = settings.correction == "fixed-sequence"
    level = settings.delta if level is None else level
    tested_at = np.full((len(settings.bounds), len(everyone)), np.nan)
    for row, bound in zip(tested_at, settings.bounds, strict=True):
        of = level if in_sequence else level / max(len(order), 1)
        row[order] = _p_values(test, order, bound, of)
    p_values = tested_at.max(axis=0)[order]
    if not in_sequence:
        p_values = holm(p_values)
        order = order[np.argsort(p_values, kind="stable")]
        p_values = np.sort(p_values)
    return OrderedTests(order=order, adjusted=p_values, tested_at=tested_at)


def _over_members(
    members: NDArray[np.intp], half: Half, of: Callable[[NDArray[np.intp]], Array]
) -> Array:
    """``of`` blocks of members, so that their losses fit into memory."""
    if not len(members):
        return np.empty(0)
    step = max(1, _BLOCK_CELLS // max(len(half), 1))
    parts = [of(members[start : start + step]) for start in range(0, len(members), step)]
    return np.concatenate(parts)


def _means(half: Half, members: NDArray[np.intp], bound: Bound) -> Array:
    return _over_members(members, half, lambda part: half.losses(part, bound.of).mean(axis=0))


def mean_of(half: Half, bound: Bound) -> Array:
    """Return the mean of a bound's loss for every member, on its own scale, (n_members,)."""
    return plain(_means(half, np.arange(len(half.costs)), bound), bound, half)


def _p_values(half: Half, members: NDArray[np.intp], bound: Bound, level: float) -> Array:
    return _over_members(
        members, half, lambda part: p_values_of(half, half.losses(part, bound.of), bound, level)
    )


def p_values_of(half: Half, losses: Array, bound: Bound, level: float) -> Array:
    """Return p-values of "the mean is above the bound" for scaled losses (n_units, n), (n,)."""
    limit = limit_of(bound, half)
    if bound.of == "drop" and half.reach == 1.0:
        return hoeffding_bentkus_p_values(losses, limit)
    if bound.of == "wrong-stop" and np.isin(losses, (0.0, 1.0)).all():
        return binomial_p_values(losses, limit)
    return betting_p_values(losses, limit, delta=level, orders=half.orders)


def _order(
    learn: Half, members: NDArray[np.intp], losses: Array, full: int, settings: Promise
) -> NDArray[np.intp]:
    """What is tested, safest first: members that cost less than the full budget."""
    candidates = members[learn.costs[members] < learn.costs[full]]
    danger = np.full(len(losses), np.nan)
    danger[candidates] = _danger(learn, candidates, settings)
    if settings.only_front:
        worst = losses if len(settings.bounds) == 1 else danger
        candidates = candidates[pareto_front(learn.costs[candidates], -worst[candidates])]
    return np.asarray(candidates[np.lexsort((candidates, losses[candidates], danger[candidates]))])


def _danger(half: Half, members: NDArray[np.intp], settings: Promise) -> Array:
    """How far members are above the bound they are nearest to breaking, in standard errors."""
    worst = np.full(len(members), -np.inf)
    for bound in settings.bounds:
        limit = limit_of(bound, half)

        def above(part: NDArray[np.intp], of: LossName = bound.of, limit: float = limit) -> Array:
            losses = half.losses(part, of)
            spread = losses.var(axis=0) + limit * (1.0 - limit) / len(half)
            return np.asarray((losses.mean(axis=0) - limit) / np.sqrt(spread))

        np.maximum(worst, _over_members(members, half, above), out=worst)
    return worst


def _cheapest_of_equals(learn: Half, full: int) -> NDArray[np.intp]:
    """One of the members that stop every question of the half alike: the full budget, else the cheapest."""
    stops = learn.stops
    digests = (stops if isinstance(stops, RuleStops) else RuleStops.of_array(stops)).digests()
    seen = {digests[full]: full}
    for number in np.argsort(learn.costs, kind="stable").tolist():
        seen.setdefault(digests[number], number)
    return np.sort(np.array(list(seen.values()), np.intp))


LOSES, LOSE = ("loses", "turns", "changes"), ("lose", "turn", "change")
"""What a policy does that keeps a bound, and what it is proven to do, behind "to"."""


def bound_in_words(
    of: object, most: float, label: str, verbs: Sequence[str], *, agreement: bool
) -> str:
    lose, turn, change = verbs
    if of == "wrong-stop" and agreement:
        return f"{change} the answer of at most {100 * most:g}% of the questions"
    if of == "wrong-stop":
        return f"{turn} right into wrong on at most {100 * most:g}% of the questions"
    gains = ", gains not counted" if of == "drop" else ""
    return f"{lose} at most {100 * most:g} {label} points{gains}"


def allowed_in_words(terms: Mapping[str, Any]) -> str:
    """Say the losses that the terms of a guarantee allow; empty: unknown."""
    bounds = terms.get("bounds") or [{"of": terms.get("loss"), "at_most": terms.get("max_loss")}]
    metric = str(terms.get("metric"))
    label = METRICS[metric].label if metric in METRICS else "score"  # type: ignore[index]
    agreement = metric == METRICS["agreement"].key("em")
    known = ((one["of"], one["at_most"]) for one in bounds if one["of"] in get_args(LossName))
    return joined(
        [
            bound_in_words(of, most, label, LOSES, agreement=agreement)
            for of, most in known
            if most is not None
        ]
    )


def joined(parts: Sequence[str]) -> str:
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
