"""Certified choice: the cheapest policy of a family that provably loses little (Learn then Test).

One half of the questions fits calibrators, sets thresholds and orders the family; the other half gives
the p-values. With probability at least the asked confidence over the second half, no certified member
loses more than allowed (Angelopoulos et al. 2021), for questions drawn like the recorded ones.

Several means can be bounded together: a member is certified where each of its bounds is proven, and the
confidence is that of all of them at once. What is to be rejected of a member is "some bound b of its set B
is broken", the union of the hypotheses H_b: E[loss_b] > most_b. Its p-value is the greatest of theirs: if
it is true, some H_b is, and then P(max p <= u) <= P(p_b <= u) <= u, however the losses depend on each
other. So nothing is to be corrected for the number of bounds (the intersection-union test, Berger 1982);
the number of members is corrected for as with one bound, by a fixed sequence or Holm, both of which need
nothing but one valid p-value a member (Angelopoulos et al. 2021, propositions 2 and 3 on several risks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import InternalError, UsageError
from suffice.measures.seen import Seen
from suffice.numbers.intervals.sums import from_sums
from suffice.numbers.tests.p_values import (
    betting_p_values,
    binomial_p_values,
    fixed_sequence,
    hoeffding_bentkus_p_values,
    holm,
)
from suffice.options import Option
from suffice.replay.choose.rule_stops import RuleStops
from suffice.replay.run.frontier import pareto_front

Array = NDArray[np.float64]
Correction = Literal["fixed-sequence", "holm"]
LossName = Literal["signed", "drop", "wrong-stop"]
Bounded = Literal["signed", "drop", "wrong-stop", "cost"]
LOSSES = ("signed", "drop", "wrong-stop")
CORRECTIONS = ("fixed-sequence", "holm")
_BLOCK_CELLS = 4_000_000  # losses held at a time
_MOST_ESTIMATED = 200
_MOST_LISTED = 200
_STAKES = np.linspace(0.0, 1.0, 81)[1:-1]  # shares of what ruin would take


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One promise: the mean of ``of`` over questions is at most ``most``."""

    of: Bounded
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifySettings:
    """What to promise; what each field means stands with it.

    ``only_front`` tests only members that no other one beats in loss and cost on the first half: what is
    tested is then chosen on data that the tests do not see, and fewer tests are stronger ones. ``level`` is
    the part of 1 - ``confidence`` that is left for this certificate, see
    :mod:`suffice.replay.choose.attempts`; ``None``: an equal share of ``attempts``.
    """

    max_loss: Annotated[
        float | None,
        Option(
            help="greatest expected loss against the full budget, above 0 and below 1", metavar="E"
        ),
    ] = 0.02
    confidence: Annotated[
        float, Option(help="probability that the promise holds, above 0 and below 1", metavar="P")
    ] = 0.95
    loss: Annotated[
        LossName,
        Option(
            help="signed: full budget minus policy; drop: its positive part, so that gains on some "
            "questions pay for nothing; wrong-stop: the share of questions answered wrong although the "
            "full budget is right",
        ),
    ] = "signed"
    max_wrong_stops: Annotated[
        float | None,
        Option(
            help="also promise, with the same confidence: the greatest share of questions answered wrong "
            "although the full budget is right",
            metavar="S",
        ),
    ] = None
    max_cost: Annotated[
        float | None,
        Option(
            help="also promise, with the same confidence: the greatest mean cost a question, in --cost",
            metavar="C",
        ),
    ] = None
    attempts: Annotated[
        int,
        Option(
            help="how often this record is to be asked for a certificate with --out in this folder: each "
            "is proven at an equal share of 1 - confidence, which is then that of all together (default: 1)",
            metavar="N",
            at_least=1,
        ),
    ] = 1
    correction: Annotated[
        Correction,
        Option(help="for testing many members (default: fixed-sequence, safest first)"),
    ] = "fixed-sequence"
    only_front: bool = True
    level: float | None = None

    def __post_init__(self) -> None:
        self._refuse_bounds()
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(
                f"the confidence must lie above 0 and below 1, found {self.confidence:g}"
            )
        for value, known in ((self.loss, LOSSES), (self.correction, CORRECTIONS)):
            if value not in known:
                raise UsageError(f"unknown {value!r}; known: {', '.join(known)}")

    def _refuse_bounds(self) -> None:
        for what, most in (("loss", self.max_loss), ("share of wrong stops", self.max_wrong_stops)):
            if most is not None and not 0.0 < most < 1.0:
                why = (
                    "no sample can show that nothing at all is lost"
                    if most <= 0
                    else "every policy keeps that; there is nothing to certify"
                )
                raise UsageError(
                    f"the maximum {what} must lie above 0 and below 1, found {most:g}: {why}"
                )
        if self.max_cost is not None and not 0.0 < self.max_cost < np.inf:
            raise UsageError(
                f"the maximum cost must be a number above 0, found {self.max_cost:g}: every question "
                "costs something"
            )
        if self.max_wrong_stops is not None and self.loss == "wrong-stop":
            raise UsageError(
                "--loss wrong-stop bounds the share of wrong stops by --max-loss already; leave out "
                "--max-wrong-stops, or bound another loss beside it"
            )
        if not self.bounds:
            raise UsageError("nothing is bounded; give max_loss, max_wrong_stops or max_cost")
        if self.attempts < 1:
            raise UsageError(f"attempts must be at least 1, found {self.attempts}")

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All that is promised together."""
        asked: tuple[tuple[Bounded, float | None], ...] = (
            (self.loss, self.max_loss),
            ("wrong-stop", self.max_wrong_stops),
            ("cost", self.max_cost),
        )
        return tuple(Bound(of=of, most=most) for of, most in asked if most is not None)

    @property
    def caps_only(self) -> bool:
        """Whether nothing but a cost is bounded, so that the best is wanted and not the cheapest."""
        return all(bound.of == "cost" for bound in self.bounds)

    @property
    def delta(self) -> float:
        """Chance of a broken promise that this certificate may take."""
        return (1.0 - self.confidence) / self.attempts if self.level is None else self.level


@dataclass(frozen=True, slots=True, kw_only=True)
class Paid:
    """What questions pay, to be bounded: the mean of what each pays, up to ``most``.

    ``at`` gives what some members, by number, cost each question, (n_members, n_questions). ``most`` must not
    be read off the questions of the half that proves. On records with cut questions of reach r what is
    weighted lies in [(1 - r) most, r most].
    """

    at: Callable[[NDArray[np.intp]], Array]
    most: float

    @classmethod
    def by_round(
        cls,
        stops: NDArray[np.int16] | RuleStops,
        tables: Sequence[Array],
        of: NDArray[np.intp],
        most: float,
        seen: Seen | None = None,
    ) -> Paid:
        """By what stopping after each round costs: ``of`` (n_members,) is which of ``tables`` each pays by.

        The tables are (n_questions, n_rounds). Of cut questions what was not seen costs the most.
        """
        counted = [np.minimum(table, most) for table in tables]
        if seen is not None:
            counted = [seen.anchored(table, most) for table in counted]

        def at(members: NDArray[np.intp]) -> Array:
            paid = np.empty((len(members), len(counted[0])))
            rows = np.arange(len(counted[0]))
            for place, (kind, at_stops) in enumerate(zip(of[members], stops[members], strict=True)):
                paid[place] = counted[kind][rows, at_stops - 1]
            return paid

        return cls(at=at, most=most)

    def reordered(self, order: NDArray[np.intp]) -> Paid:
        """Of the questions in another order."""
        return replace(self, at=lambda members: self.at(members)[:, order])


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One half of the questions under every member of the family.

    Questions stand in random order: the betting test looks at one after another, and is misled by an
    order that tells losses (ids that begin with the name of a harder data set, say). ``stops``
    (n_members, n_questions) are 1-based rounds, ``scores`` (n_questions, n_rounds) what is lost,
    ``last`` (n_questions,) the full budget: each question's last recorded round. ``costs``
    (n_members,) is what a question costs on average.

    ``right`` (n_questions, n_rounds) is what wrong stops are counted by where that is not ``scores``,
    ``paid`` what a bounded cost is.

    On records with cut questions ``seen`` says how far they were seen and ``reach`` the greatest weight that
    any question, of either half, could have had: the bounds of a loss.
    """

    stops: NDArray[np.int16] | RuleStops
    scores: Array
    last: NDArray[np.int16]
    costs: Array
    seen: Seen | None = None
    reach: float = 1.0
    right: Array | None = None
    paid: Paid | None = None

    def __len__(self) -> int:
        return len(self.last)

    @property
    def rules(self) -> RuleStops:
        """The stops, of which no more is written out than is worked on."""
        return self.stops if isinstance(self.stops, RuleStops) else RuleStops.of_array(self.stops)

    @property
    def most_paid(self) -> float:
        """What a question counts at most in a bounded cost."""
        return self._bounded_cost.most

    def reordered(self, order: NDArray[np.intp]) -> Half:
        """The same questions in another order."""
        return replace(
            self,
            stops=self.rules.reordered(order),
            scores=self.scores[order],
            last=self.last[order],
            seen=None if self.seen is None else self.seen.take(order),
            right=None if self.right is None else self.right[order],
            paid=None if self.paid is None else self.paid.reordered(order),
        )

    def losses(self, members: NDArray[np.intp], of: Bounded) -> Array:
        """What is bounded, brought to [0, 1] by :func:`_scaled`, (n_questions, n_members)."""
        if of == "cost":
            paid = self._bounded_cost.at(members)
            least, most = (1.0 - self.reach) * self.most_paid, self.reach * self.most_paid
            return _scaled(np.ascontiguousarray(np.clip(paid, least, most).T), of, self)
        n_questions = len(self.scores)
        by_round = _scaled(np.ascontiguousarray(self._by_round(of).T), of, self)
        places = (self.stops[members].T - 1).astype(np.intp, order="C")
        places *= n_questions
        places += np.arange(n_questions)[:, None]
        return np.asarray(by_round.ravel().take(places))

    @property
    def _bounded_cost(self) -> Paid:
        if self.paid is None:
            raise InternalError("a cost is bounded and nobody said what questions pay")
        return self.paid

    def _by_round(self, loss: LossName) -> Array:
        """The loss of stopping after each round, (n_questions, n_rounds), in [-reach, reach]."""
        scores = self.right if loss == "wrong-stop" and self.right is not None else self.scores
        if self.seen is None:
            full = scores[np.arange(len(scores)), self.last - 1]
            return _LOSS[loss](full[:, None], scores)
        return np.clip(weighted_losses(scores, self.seen, loss), -self.reach, self.reach)


def _scaled(values: Array, of: Bounded, half: Half) -> Array:
    """Values on their own scale brought to [0, 1], in place.

    Losses are divided by the reach r, the signed one, in [-r, r], moved by 1 and halved; costs, in
    [(1 - r) M, r M] with M the most that counts, moved to begin at 0.
    """
    if of == "cost":
        values /= half.most_paid
        values += half.reach - 1.0
        values /= 2.0 * half.reach - 1.0
        return values
    values /= half.reach
    if of == "signed":
        values += 1.0
        values /= 2.0
    return values


def _limit(bound: Bound, half: Half) -> float:
    """The greatest mean on the scale of :meth:`Half.losses`."""
    return float(_scaled(np.array([bound.most]), bound.of, half)[0])


def _plain(means: Array, bound: Bound, half: Half) -> Array:
    """Means on their own scale, :func:`_scaled` undone."""
    if bound.of == "cost":
        return half.most_paid * ((2.0 * half.reach - 1.0) * means - (half.reach - 1.0))
    return half.reach * (2.0 * means - 1.0 if bound.of == "signed" else means)


def _signed(full: Array, stopped: Array) -> Array:
    return full - stopped


def _drop(full: Array, stopped: Array) -> Array:
    return np.maximum(full - stopped, 0.0)


_LOSS: Mapping[str, Callable[[Array, Array], Array]] = MappingProxyType(
    {"signed": _signed, "drop": _drop, "wrong-stop": _drop}
)


def weighted_losses(scores: Array, seen: Seen, loss: LossName) -> Array:
    """What stopping after each round of a record with cut questions loses, (n_questions, n_rounds).

    Its mean over questions, given what they hold, is the mean loss; a signed one is the difference of two
    columns of :meth:`suffice.measures.seen.Seen.anchored`, others count where the full budget was seen or is
    stood for. Where it is neither the worst is taken: right at the full budget, and wrong at a stop that
    was not seen.
    """
    if loss == "signed":
        values = seen.anchored(scores, 0.0)
        full = np.where(seen.unseen, 1.0, values[:, -1])
        losses = _signed(full[:, None], values)
    else:
        plain = replace(seen, weight=np.ones_like(seen.weight)).matrix(scores, unseen=0.0)
        full = np.where(seen.unseen, 1.0, plain[:, -1])
        weight = seen.weights(np.full_like(seen.last, seen.budget))
        losses = np.where(weight > 0, weight * _drop(full[:, None], plain).T, 0.0).T
    losses[:, -1] = 0.0
    return losses


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundOutcome:
    """What came of one bound, arrays (n_members,); p-values of members that were not tested are NaN."""

    bound: Bound
    p_values: Array
    learned: Array
    tested: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Certification:
    """The outcome, arrays (n_members,) in the family's order.

    ``chosen`` is the cheapest certified member (the one that loses least, where nothing but a cost is
    bounded); where only the full budget itself or nothing is
    certified it is the full budget, ``fell_back`` is true and ``reason`` says why.
    ``questions_needed`` estimates how many labelled questions, both halves together, would certify
    some member below the full budget (``None``: none looks safe enough at any size, or not asked).
    ``order`` holds the members tested, safest first; untested ones have p-value NaN. The full budget is
    never among them unless only a cost is bounded: it loses nothing by definition, and ``certified`` does
    not count it. ``p_values`` are of all bounds together, ``parts`` of each.
    """

    chosen: int
    fell_back: bool
    reason: str
    certified: NDArray[np.bool_]
    p_values: Array
    parts: tuple[BoundOutcome, ...]
    costs: Array
    order: NDArray[np.intp]
    duplicates: int
    questions_needed: int | None
    settings: CertifySettings = field(default_factory=CertifySettings)

    @property
    def learned_loss(self) -> Array:
        """What the first bound is of, on the first half, (n_members,)."""
        return self.parts[0].learned

    @property
    def tested_loss(self) -> Array:
        """The same on the second."""
        return self.parts[0].tested


def certify(learn: Half, test: Half, full: int, settings: CertifySettings) -> Certification:
    """Choose the cheapest member all of whose bounds are proven to be kept.

    What is tested, and in which order, depends on ``learn`` alone; only the choice among certified
    members looks at both halves.

    Parameters
    ----------
    learn, test
        The two halves, of different questions.
    full
        Number of the member that always takes the full budget.
    settings
        What to promise.
    """
    _refuse_idle_cap(learn, settings)
    sizes = len(learn), len(test)
    costs = (learn.costs * sizes[0] + test.costs * sizes[1]) / sum(sizes)
    distinct = _cheapest_of_equals(learn, full)
    everyone = np.arange(len(costs))
    learned = [_means(learn, everyone, bound) for bound in settings.bounds]
    order = _order(learn, distinct, learned[0], full, settings)
    tested_at = np.full((len(settings.bounds), len(costs)), np.nan)
    for row, bound in zip(tested_at, settings.bounds, strict=True):
        row[order] = _p_values(learn, test, order, bound, settings.delta)
    p_values = tested_at.max(axis=0)
    passed = (
        fixed_sequence(p_values[order], settings.delta)
        if settings.correction == "fixed-sequence"
        else holm(p_values[order]) <= settings.delta
    )
    certified = np.zeros(len(costs), np.bool_)
    certified[order[passed]] = True
    fit = np.flatnonzero(certified & (settings.caps_only | (costs < costs[full])))
    wanted = costs
    if settings.caps_only and len(fit):
        signed = Bound(of="signed", most=0.0)
        lost = [_means(half, everyone, signed) * len(half) for half in (learn, test)]
        wanted = lost[0] + lost[1]
    chosen = int(fit[np.lexsort((fit, wanted[fit]))[0]]) if len(fit) else full
    needed = None if len(fit) else _needed(order, (learn, test), settings)
    return Certification(
        chosen=chosen,
        fell_back=not len(fit),
        reason=_reason(len(fit), len(order), needed, sum(sizes), settings),
        certified=certified,
        p_values=p_values,
        parts=tuple(
            BoundOutcome(
                bound=bound,
                p_values=p_values_of,
                learned=_plain(means, bound, learn),
                tested=mean_of(test, bound),
            )
            for bound, p_values_of, means in zip(settings.bounds, tested_at, learned, strict=True)
        ),
        costs=costs,
        order=order,
        duplicates=len(costs) - len(distinct),
        questions_needed=needed,
        settings=settings,
    )


def refuse_caps(learn: Half, settings: CertifySettings, cost: str = "cost") -> None:
    """Refuse a cap on what is called ``cost`` that every member keeps, or that none does on this half."""
    _refuse_idle_cap(learn, settings, cost)
    cheapest = float(learn.costs.min())
    if settings.max_cost is not None and settings.max_cost <= cheapest:
        raise UsageError(
            f"the maximum of {settings.max_cost:g} {cost} a question is not above what the cheapest member "
            f"costs, {cheapest:.4g}; give a higher one"
        )


def _refuse_idle_cap(learn: Half, settings: CertifySettings, cost: str = "cost") -> None:
    if settings.max_cost is not None and settings.max_cost >= learn.most_paid:
        raise UsageError(
            f"the maximum of {settings.max_cost:g} {cost} a question is kept by every policy: none counts "
            f"more than {learn.most_paid:.4g}; give a lower one"
        )


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
    """What a bound is of, on its own scale, of every member, (n_members,)."""
    return _plain(_means(half, np.arange(len(half.costs)), bound), bound, half)


def losses_of(half: Half, bound: Bound) -> Array:
    """What a bound is of, on its own scale, of every member, (n_questions, n_members)."""
    return _plain(half.losses(np.arange(len(half.costs)), bound.of), bound, half)


def _p_values(
    learn: Half, test: Half, members: NDArray[np.intp], bound: Bound, delta: float
) -> Array:
    """Of "the mean is above the bound", (n_members,)."""
    limit = _limit(bound, test)

    def of(part: NDArray[np.intp]) -> Array:
        losses = test.losses(part, bound.of)
        if _bets(test, bound):
            return betting_p_values(
                losses,
                limit,
                delta=delta,
                prior_variance=learn.losses(part, bound.of).var(axis=0),
                prior_weight=float(len(learn)),
            )
        if bound.of == "drop":
            return hoeffding_bentkus_p_values(losses, limit)
        return binomial_p_values(losses, limit)

    return _over_members(members, test, of)


def _bets(half: Half, bound: Bound) -> bool:
    """Whether it is tested by betting: signed losses, costs, and all that is weighted."""
    return bound.of in ("signed", "cost") or half.reach > 1.0


def _order(
    learn: Half,
    members: NDArray[np.intp],
    losses: Array,
    full: int,
    settings: CertifySettings,
) -> NDArray[np.intp]:
    """What is tested, safest first: members that cost less than the full budget.

    The safest is the one that the same test, run on the learning half, finds safest. ``losses`` are of the
    first bound; of several the one that is nearest to being broken tells.
    """
    candidates = members
    if not settings.caps_only:
        candidates = members[learn.costs[members] < learn.costs[full]]
    danger = losses
    if len(settings.bounds) > 1:
        danger = np.full(len(losses), np.nan)
        danger[candidates] = _danger(learn, candidates, settings)
    if settings.only_front and not settings.caps_only:
        front = pareto_front(learn.costs[candidates], -danger[candidates])
        candidates = candidates[front]
    p_values = np.zeros(len(candidates))
    for bound in settings.bounds:
        of_bound = _p_values(learn, learn, candidates, bound, settings.delta)
        np.maximum(p_values, of_bound, out=p_values)
    return np.asarray(candidates[np.lexsort((candidates, danger[candidates], p_values))])


def _danger(half: Half, members: NDArray[np.intp], settings: CertifySettings) -> Array:
    """How far members are above the bound they are nearest to breaking, in standard errors."""
    worst = np.full(len(members), -np.inf)
    for bound in settings.bounds:
        limit = _limit(bound, half)

        def above(part: NDArray[np.intp], of: Bounded = bound.of, limit: float = limit) -> Array:
            losses = half.losses(part, of)
            spread = losses.var(axis=0) + limit * (1.0 - limit) / len(half)
            return np.asarray((losses.mean(axis=0) - limit) / np.sqrt(spread))

        np.maximum(worst, _over_members(members, half, above), out=worst)
    return worst


def _cheapest_of_equals(learn: Half, full: int) -> NDArray[np.intp]:
    """One of the members that stop every question of the half alike: the full budget, else the cheapest."""
    digests = learn.rules.digests()
    seen = {digests[full]: full}
    for number in np.argsort(learn.costs, kind="stable").tolist():
        seen.setdefault(digests[number], number)
    return np.sort(np.array(list(seen.values()), np.intp))


def _needed(
    order: NDArray[np.intp], halves: tuple[Half, Half], settings: CertifySettings
) -> int | None:
    """Questions after which a bet at the best constant stake would be expected to be won.

    More than there are, which were not enough. The betting test never risks more than 3/4; the others
    are about as strong as the best stake. Of several bounds the slowest tells.
    """
    best = 0.0
    for number in order[:_MOST_ESTIMATED]:
        member = np.array([number])
        growth = min(_growth_of(member, halves, bound) for bound in settings.bounds)
        best = max(best, growth)
    if best <= 1e-9:
        return None
    level = settings.delta / (len(order) if settings.correction == "holm" else 1)
    questions = int(np.ceil(2.0 * -np.log(level) / best))
    return max(questions, sum(len(half) for half in halves) + 1)


def _growth_of(member: NDArray[np.intp], halves: tuple[Half, Half], bound: Bound) -> float:
    limit = _limit(bound, halves[1])
    stakes = _STAKES[_STAKES <= 0.75] if _bets(halves[1], bound) else _STAKES
    losses = np.concatenate([half.losses(member, bound.of)[:, 0] for half in halves])
    return _growth((limit - losses) / (1.0 - limit), stakes)


def _growth(edge: Array, stakes: Array) -> float:
    """The greatest mean growth of a bet at one of the stakes."""
    if not from_sums(len(edge)):
        return float(np.log1p(stakes[:, None] * edge[None, :]).mean(axis=1).max())
    distinct, counts = np.unique(edge, return_counts=True)
    return max(float(np.log1p(stake * distinct) @ counts) for stake in stakes) / len(edge)


def _in_words(bound: Bound) -> str:
    """``an expected signed loss of at most 0.02``."""
    if bound.of == "cost":
        return f"a mean cost of at most {bound.most:g}"
    return f"an expected {bound.of} loss of at most {bound.most:g}"


def _reason(
    certified: int, tested: int, needed: int | None, questions: int, settings: CertifySettings
) -> str:
    promise = joined([_in_words(bound) for bound in settings.bounds])
    cheaper = "" if settings.caps_only else " cheaper than the full budget"
    if certified:
        return f"{certified} of {tested} members tested keep {promise} at confidence {settings.confidence:g}"
    if not tested:
        return (
            "no member costs less than the full budget on the first half, so there was none to test"
        )
    if needed is None:
        return f"no member{cheaper} appears to keep {promise}; more questions would not help"
    return (
        f"no member{cheaper} could be shown to keep {promise} at confidence "
        f"{settings.confidence:g} with {questions} questions; about {needed} "
        "would be needed"
    )


def joined(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def describe(outcome: Certification) -> dict[str, Any]:
    """What a policy file and JSON say of the promise; of several bounds each under ``bounds`` too."""
    settings, chosen = outcome.settings, outcome.chosen
    shared = settings.attempts > 1 or settings.level is not None
    of_loss = settings.max_loss is not None
    plain = of_loss and len(outcome.parts) == 1
    return {
        "max_loss": settings.max_loss,
        "confidence": settings.confidence,
        **({"level": settings.delta} if shared else {}),
        "loss": settings.loss if of_loss else None,
        "correction": settings.correction,
        "members": len(outcome.costs),
        "duplicates": outcome.duplicates,
        "tested": len(outcome.order),
        "certified": int(outcome.certified.sum()),
        "fell_back": outcome.fell_back,
        "reason": outcome.reason,
        "questions_needed": outcome.questions_needed,
        "p_value": _known(outcome.p_values[chosen]),
        "loss_on_learning_half": float(outcome.learned_loss[chosen]) if of_loss else None,
        "loss_on_testing_half": float(outcome.tested_loss[chosen]) if of_loss else None,
        **({} if plain else {"bounds": _bounds(outcome)}),
    }


def _bounds(outcome: Certification) -> list[dict[str, Any]]:
    chosen = outcome.chosen
    return [
        {
            "of": part.bound.of,
            "at_most": part.bound.most,
            "p_value": _known(part.p_values[chosen]),
            "on_learning_half": float(part.learned[chosen]),
            "on_testing_half": float(part.tested[chosen]),
        }
        for part in outcome.parts
    ]


def _known(p_value: float) -> float | None:
    return None if np.isnan(p_value) else float(p_value)


def members_in_order(outcome: Certification, names: Sequence[str]) -> list[dict[str, Any]]:
    """The first members tested, safest first; of several bounds the means that each is of."""
    several = len(outcome.parts) > 1
    return [
        {
            "rule": names[number],
            "p_value": float(outcome.p_values[number]),
            "certified": bool(outcome.certified[number]),
            "loss": float(outcome.tested_loss[number]),
            "cost": float(outcome.costs[number]),
            **({"means": _tested_means(outcome, number)} if several else {}),
        }
        for number in outcome.order[:_MOST_LISTED]
    ]


def _tested_means(outcome: Certification, number: int) -> dict[str, float]:
    return {part.bound.of: float(part.tested[number]) for part in outcome.parts}
