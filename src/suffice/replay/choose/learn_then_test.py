"""Certified choice: the cheapest policy of a family that provably loses little (Learn then Test).

One half of the questions fits calibrators, sets thresholds and orders the family; the other half gives
the p-values. With probability at least the asked confidence over the second half, no certified member
loses more than allowed (Angelopoulos et al. 2021), for questions drawn like the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
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
LOSSES = ("signed", "drop", "wrong-stop")
CORRECTIONS = ("fixed-sequence", "holm")
_BLOCK_CELLS = 16_000_000  # losses held at a time
_MOST_ESTIMATED = 200
_MOST_LISTED = 200
_STAKES = np.linspace(0.0, 1.0, 81)[1:-1]  # shares of what ruin would take


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifySettings:
    """What to promise; what each field means stands with it.

    ``only_front`` tests only members that no other one beats in loss and cost on the first half: what is
    tested is then chosen on data that the tests do not see, and fewer tests are stronger ones.
    """

    max_loss: Annotated[
        float,
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
    correction: Annotated[
        Correction,
        Option(help="for testing many members (default: fixed-sequence, safest first)"),
    ] = "fixed-sequence"
    only_front: bool = True

    def __post_init__(self) -> None:
        if not 0.0 < self.max_loss < 1.0:
            why = (
                "no sample can show that nothing at all is lost"
                if self.max_loss <= 0
                else "every policy keeps that; there is nothing to certify"
            )
            raise UsageError(
                f"the maximum loss must lie above 0 and below 1, found {self.max_loss:g}: {why}"
            )
        if not 0.0 < self.confidence < 1.0:
            raise UsageError(
                f"the confidence must lie above 0 and below 1, found {self.confidence:g}"
            )
        for value, known in ((self.loss, LOSSES), (self.correction, CORRECTIONS)):
            if value not in known:
                raise UsageError(f"unknown {value!r}; known: {', '.join(known)}")

    @property
    def delta(self) -> float:
        """Chance of a broken promise."""
        return 1.0 - self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """One half of the questions under every member of the family.

    Questions stand in random order: the betting test looks at one after another, and is misled by an
    order that tells losses (ids that begin with the name of a harder data set, say). ``stops``
    (n_members, n_questions) are 1-based rounds, ``scores`` (n_questions, n_rounds) what is lost,
    ``last`` (n_questions,) the full budget: each question's last recorded round. ``costs``
    (n_members,) is what a question costs on average.

    On records with cut questions ``seen`` says how far they were seen and ``reach`` the greatest weight that
    any question, of either half, could have had: the bounds of a loss.
    """

    stops: NDArray[np.int16] | RuleStops
    scores: Array
    last: NDArray[np.int16]
    costs: Array
    seen: Seen | None = None
    reach: float = 1.0

    @property
    def rules(self) -> RuleStops:
        """The stops, of which no more is written out than is worked on."""
        return self.stops if isinstance(self.stops, RuleStops) else RuleStops.of_array(self.stops)

    def losses(self, members: NDArray[np.intp], loss: LossName) -> Array:
        """Losses in [0, 1], (n_questions, n_members): over the reach, the signed one plus 1 and halved."""
        n_questions = len(self.scores)
        by_round = np.ascontiguousarray(self._by_round(loss).T)
        by_round /= self.reach
        if loss == "signed":
            by_round += 1.0
            by_round /= 2.0
        places = (self.stops[members].T - 1).astype(np.intp, order="C")
        places *= n_questions
        places += np.arange(n_questions)[:, None]
        return np.asarray(by_round.ravel().take(places))

    def _by_round(self, loss: LossName) -> Array:
        """The loss of stopping after each round, (n_questions, n_rounds), in [-reach, reach]."""
        if self.seen is None:
            full = self.scores[np.arange(len(self.scores)), self.last - 1]
            return _LOSS[loss](full[:, None], self.scores)
        return np.clip(weighted_losses(self.scores, self.seen, loss), -self.reach, self.reach)


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
class Certification:
    """The outcome, arrays (n_members,) in the family's order.

    ``chosen`` is the cheapest certified member; where only the full budget itself or nothing is
    certified it is the full budget, ``fell_back`` is true and ``reason`` says why.
    ``questions_needed`` estimates how many labelled questions, both halves together, would certify
    some member below the full budget (``None``: none looks safe enough at any size, or not asked).
    ``order`` holds the members tested, safest first; untested ones have p-value NaN. The full budget is
    never among them: it loses nothing by definition, and ``certified`` does not count it.
    """

    chosen: int
    fell_back: bool
    reason: str
    certified: NDArray[np.bool_]
    p_values: Array
    learned_loss: Array
    tested_loss: Array
    costs: Array
    order: NDArray[np.intp]
    duplicates: int
    questions_needed: int | None
    settings: CertifySettings = field(default_factory=CertifySettings)


def certify(learn: Half, test: Half, full: int, settings: CertifySettings) -> Certification:
    """Choose the cheapest member whose expected loss is proven small.

    What is tested, and in which order, depends on ``learn`` alone; only the choice among certified
    members looks at costs of both halves.

    Parameters
    ----------
    learn, test
        The two halves, of different questions.
    full
        Number of the member that always takes the full budget.
    settings
        What to promise.
    """
    sizes = len(learn.last), len(test.last)
    costs = (learn.costs * sizes[0] + test.costs * sizes[1]) / sum(sizes)
    distinct = _cheapest_of_equals(learn, full)
    everyone = np.arange(len(costs))
    learned = _over_members(everyone, learn, lambda part: _means(learn, part, settings))
    order = _order(learn, distinct, learned, full, settings)
    p_values = np.full(len(costs), np.nan)
    p_values[order] = _over_members(
        order, test, lambda part: _p_values(learn, test, part, settings)
    )
    passed = (
        fixed_sequence(p_values[order], settings.delta)
        if settings.correction == "fixed-sequence"
        else holm(p_values[order]) <= settings.delta
    )
    certified = np.zeros(len(costs), np.bool_)
    certified[order[passed]] = True
    cheaper = np.flatnonzero(certified & (costs < costs[full]))
    chosen = int(cheaper[np.lexsort((cheaper, costs[cheaper]))[0]]) if len(cheaper) else full
    needed = None if len(cheaper) else _needed(order, (learn, test), settings)
    tested = _over_members(everyone, test, lambda part: _means(test, part, settings))
    return Certification(
        chosen=chosen,
        fell_back=not len(cheaper),
        reason=_reason(len(cheaper), len(order), needed, sum(sizes), settings),
        certified=certified,
        p_values=p_values,
        learned_loss=_plain(learned, settings, learn),
        tested_loss=_plain(tested, settings, test),
        costs=costs,
        order=order,
        duplicates=len(costs) - len(distinct),
        questions_needed=needed,
        settings=settings,
    )


def _limit(settings: CertifySettings, half: Half) -> float:
    """The greatest expected loss on the scale of :meth:`Half.losses`."""
    limit = settings.max_loss / half.reach
    return (limit + 1.0) / 2.0 if settings.loss == "signed" else limit


def _over_members(
    members: NDArray[np.intp], half: Half, of: Callable[[NDArray[np.intp]], Array]
) -> Array:
    """``of`` blocks of members, so that their losses fit into memory."""
    if not len(members):
        return np.empty(0)
    step = max(1, _BLOCK_CELLS // max(len(half.last), 1))
    parts = [of(members[start : start + step]) for start in range(0, len(members), step)]
    return np.concatenate(parts)


def _means(half: Half, members: NDArray[np.intp], settings: CertifySettings) -> Array:
    return np.asarray(half.losses(members, settings.loss).mean(axis=0))


def _p_values(
    learn: Half, test: Half, members: NDArray[np.intp], settings: CertifySettings
) -> Array:
    limit, losses = _limit(settings, test), test.losses(members, settings.loss)
    if _bets(test, settings):
        return betting_p_values(
            losses,
            limit,
            delta=settings.delta,
            prior_variance=learn.losses(members, settings.loss).var(axis=0),
            prior_weight=float(len(learn.last)),
        )
    if settings.loss == "drop":
        return hoeffding_bentkus_p_values(losses, limit)
    return binomial_p_values(losses, limit)


def _bets(half: Half, settings: CertifySettings) -> bool:
    """Whether losses are tested by betting: signed ones, and all that are weighted."""
    return settings.loss == "signed" or half.reach > 1.0


def _plain(means: Array, settings: CertifySettings, half: Half) -> Array:
    """A mean loss on its own scale."""
    return half.reach * (2.0 * means - 1.0 if settings.loss == "signed" else means)


def _order(
    learn: Half, members: NDArray[np.intp], losses: Array, full: int, settings: CertifySettings
) -> NDArray[np.intp]:
    """What is tested, safest first: members that cost less than the full budget.

    The safest is the one that the same test, run on the learning half, finds safest.
    """
    candidates = members[learn.costs[members] < learn.costs[full]]
    if settings.only_front:
        front = pareto_front(learn.costs[candidates], -losses[candidates])
        candidates = candidates[front]
    p_values = _over_members(
        candidates, learn, lambda part: _p_values(learn, learn, part, settings)
    )
    return np.asarray(candidates[np.lexsort((candidates, losses[candidates], p_values))])


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
    are about as strong as the best stake.
    """
    limit = _limit(settings, halves[1])
    stakes = _STAKES[_STAKES <= 0.75] if _bets(halves[1], settings) else _STAKES
    growth = [0.0]
    for number in order[:_MOST_ESTIMATED]:
        member = np.array([number])
        losses = np.concatenate([half.losses(member, settings.loss)[:, 0] for half in halves])
        growth.append(_growth((limit - losses) / (1.0 - limit), stakes))
    best = max(growth)
    if best <= 1e-9:
        return None
    level = settings.delta / (len(order) if settings.correction == "holm" else 1)
    questions = int(np.ceil(2.0 * -np.log(level) / best))
    return max(questions, sum(len(half.last) for half in halves) + 1)


def _growth(edge: Array, stakes: Array) -> float:
    """The greatest mean growth of a bet at one of the stakes."""
    if not from_sums(len(edge)):
        return float(np.log1p(stakes[:, None] * edge[None, :]).mean(axis=1).max())
    distinct, counts = np.unique(edge, return_counts=True)
    return max(float(np.log1p(stake * distinct) @ counts) for stake in stakes) / len(edge)


def _reason(
    certified: int, tested: int, needed: int | None, questions: int, settings: CertifySettings
) -> str:
    promise = f"an expected {settings.loss} loss of at most {settings.max_loss:g}"
    if certified:
        return f"{certified} of {tested} members tested keep {promise} at confidence {settings.confidence:g}"
    if not tested:
        return (
            "no member costs less than the full budget on the first half, so there was none to test"
        )
    if needed is None:
        return (
            f"no member cheaper than the full budget appears to keep {promise}; more questions would "
            "not help"
        )
    return (
        f"no member cheaper than the full budget could be shown to keep {promise} at confidence "
        f"{settings.confidence:g} with {questions} questions; about {needed} "
        "would be needed"
    )


def describe(outcome: Certification) -> dict[str, Any]:
    """What a policy file and JSON say of the promise."""
    settings, chosen = outcome.settings, outcome.chosen
    p_value = outcome.p_values[chosen]
    return {
        "max_loss": settings.max_loss,
        "confidence": settings.confidence,
        "loss": settings.loss,
        "correction": settings.correction,
        "members": len(outcome.costs),
        "duplicates": outcome.duplicates,
        "tested": len(outcome.order),
        "certified": int(outcome.certified.sum()),
        "fell_back": outcome.fell_back,
        "reason": outcome.reason,
        "questions_needed": outcome.questions_needed,
        "p_value": None if np.isnan(p_value) else float(p_value),
        "loss_on_learning_half": float(outcome.learned_loss[chosen]),
        "loss_on_testing_half": float(outcome.tested_loss[chosen]),
    }


def members_in_order(outcome: Certification, names: Sequence[str]) -> list[dict[str, Any]]:
    """The first members tested, safest first."""
    return [
        {
            "rule": names[number],
            "p_value": float(outcome.p_values[number]),
            "certified": bool(outcome.certified[number]),
            "loss": float(outcome.tested_loss[number]),
            "cost": float(outcome.costs[number]),
        }
        for number in outcome.order[:_MOST_LISTED]
    ]
