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
    signed_p_values,
    student_p_values,
)
from suffice.stats.units import Array, unit_sums

_BLOCK_CELLS = 4_000_000  # losses held at a time
_HOPELESS = 0.25
"""Student's p-value above which nothing is bet: no error that is ever asked for is as large."""


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
    independent units from 0 (``None``: questions are independent). The betting test takes units in
    ``orders`` (n, n_units), which must not depend on losses; ``anytime``: in the one order of recording, with
    stakes that do not depend on their number. With cut questions ``seen`` says how far each was seen, and
    ``reach`` is the greatest possible weight in either half.
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
    anytime: bool = False

    def __len__(self) -> int:
        return len(self.last) if self.units is None else int(self.units.max(initial=-1)) + 1

    def losses(self, members: NDArray[np.intp], of: LossName) -> Array:
        """Return the losses of some members, (n_questions, n_members), in [-reach, reach]."""
        n_questions = len(self.scores)
        places = (self.stops[members].T - 1).astype(np.intp, order="C")
        places *= n_questions
        places += np.arange(n_questions)[:, None]
        return np.asarray(np.ascontiguousarray(self._by_round(of).T).ravel().take(places))

    def _by_round(self, loss: LossName) -> Array:
        """The loss of stopping after each round, (n_questions, n_rounds)."""
        scores = self.right if loss == "wrong-stop" and self.right is not None else self.scores
        if self.seen is None:
            full = scores[np.arange(len(scores)), self.last - 1]
            return _lost(full[:, None], scores, loss)
        return np.clip(weighted_losses(scores, self.seen, loss), -self.reach, self.reach)

    def p_values(
        self,
        losses: Array,
        of: LossName,
        limits: float | Array,
        level: float,
        *,
        whole: bool = True,
    ) -> Array:
        """Return p-values of "the mean loss is above its limit", (n,), for losses (n_questions, n).

        Scores of 0 and 1 of independent questions have exact tests, but not where losses are averaged over a
        coin (not ``whole``). Other losses are bet on, and Student's test must reject too: no proof
        contradicts its own interval.
        """
        limits = np.broadcast_to(np.asarray(limits, np.float64), losses.shape[1:])
        if whole and self.counts(of) and of == "signed":
            return signed_p_values(losses, limits, delta=level)
        trivial = limits >= self.reach
        limits = np.minimum(limits, self.reach * (1.0 - 1e-9))
        values = np.clip(self._to_unit(self.of_units(losses, limits), of), 0.0, 1.0)
        most = self._to_unit(limits, of)
        if whole and self.counts(of):
            found = binomial_p_values(values, most)
        elif of == "drop" and self.reach == 1.0 and not self.anytime:
            found = hoeffding_bentkus_p_values(values, most)
        else:
            found = student_p_values(values, most)
            some = found <= max(level, _HOPELESS)
            bets = betting_p_values(
                values[:, some], most[some], delta=level, orders=self.orders, anytime=self.anytime
            )
            found[some] = np.maximum(bets, found[some])
            found[~some] = 1.0
        return np.where(trivial, 0.0, found)

    def of_units(self, losses: Array, limits: float | Array) -> Array:
        """Return losses of units, (n_units, n), whose mean is at its limit where that of questions is.

        They are the sums of a unit's losses above the limit, over the size of the largest unit.
        """
        if self.units is None or len(self) == len(losses):
            return losses
        above = unit_sums(losses - limits, self.units)
        return np.asarray(limits + above / np.bincount(self.units).max())

    def counts(self, of: LossName) -> bool:
        """Whether every loss is -1, 0 or 1, whatever the questions, and each question stands alone."""
        if self.anytime or self.seen is not None or len(self) < len(self.last):
            return False
        scores = self.right if of == "wrong-stop" and self.right is not None else self.scores
        return bool((np.isin(scores, (0.0, 1.0)) | np.isnan(scores)).all())

    def _to_unit(self, values: Array, of: LossName) -> Array:
        """Values of a loss brought to [0, 1]."""
        return (values / self.reach + 1.0) / 2.0 if of == "signed" else values / self.reach


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
    return np.asarray(losses * np.broadcast_to(seen.counts, len(losses))[:, None])


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
    losses = mean_of(learn, settings.bounds[0])
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


def mean_of(half: Half, bound: Bound) -> Array:
    """Return the mean of a bound's loss for every member, (n_members,)."""
    everyone = np.arange(len(half.costs))
    return _over_members(everyone, half, lambda part: half.losses(part, bound.of).mean(axis=0))


def _p_values(half: Half, members: NDArray[np.intp], bound: Bound, level: float) -> Array:
    def tested(part: NDArray[np.intp]) -> Array:
        return half.p_values(half.losses(part, bound.of), bound.of, bound.most, level)

    return _over_members(members, half, tested)


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

        def above(part: NDArray[np.intp], bound: Bound = bound) -> Array:
            losses, most = half.losses(part, bound.of), bound.most
            least = half.reach if bound.of == "signed" else 0.0
            spread = losses.var(axis=0) + (half.reach - most) * (most + least) / len(half)
            return np.asarray((losses.mean(axis=0) - most) / np.sqrt(spread))

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
    return f"{lose} at most {100 * most:g} {label} points on average{gains}"


def allowed_in_words(terms: Mapping[str, Any]) -> str:
    """Say the losses that the terms of a guarantee allow; empty: unknown."""
    bounds = terms.get("bounds") or [{"of": terms.get("loss"), "at_most": terms.get("max_loss")}]
    metric = str(terms.get("metric"))
    label = METRICS[metric].label if metric in METRICS else "score"
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
