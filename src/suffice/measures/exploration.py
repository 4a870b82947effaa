"""Whether exploration went as promised, and whether what was drawn, or labelled, is like the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.measures.seen import Seen
from suffice.results.formats import p_value, percent
from suffice.stats.p_values import binomial_cdf, fisher_p_value, welch_p_value

_ALARM = 0.01
_DRAWS = 999
_SEED = 42
_FEWEST = 5
_MOST_TOLD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationShare:
    """Of ``stopped`` questions whose policy said stop how many ran on, drawn with one ``propensity``.

    ``p_value`` is that of the exact binomial test, two-sided.
    """

    propensity: float
    stopped: int
    explored: int
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Labelling:
    """How many of the ``explored`` and of the ``cut`` questions are labelled, and how many there are.

    ``p_value`` is that of Fisher's exact test, two-sided, that both are labelled at one rate.
    """

    explored: tuple[int, int]
    cut: tuple[int, int]
    p_value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlike:
    """A number whose mean differs between some questions and the others.

    ``p_value`` is Welch's, times how many numbers were looked at.
    """

    name: str
    some: float
    others: float
    p_value: float


def unlike(
    numbers: Mapping[str, NDArray[np.float64]],
    some: NDArray[np.bool_],
    others: NDArray[np.bool_],
) -> tuple[Unlike, ...]:
    """Those of some numbers of questions, by name, (n_questions,) each, whose means differ; the surest first.

    NaN is left out; of fewer than five on either side nothing is said.
    """
    found = []
    for name, values in numbers.items():
        sides = [values[side & ~np.isnan(values)] for side in (some, others)]
        if min(map(len, sides)) < _FEWEST:
            continue
        p = min(1.0, welch_p_value(*sides) * len(numbers))
        if p < _ALARM:
            means = [float(side.mean()) for side in sides]
            found.append(Unlike(name=name, some=means[0], others=means[1], p_value=p))
    return tuple(sorted(found, key=lambda one: one.p_value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """How the draws of a record came out.

    ``shares`` has one entry a propensity. ``types_p_value`` is that of the hypothesis that explored
    questions are of the same types as those cut: the chi-square statistic among 999 draws as many of each
    propensity; ``None``: fewer than two types, or nothing explored. ``types`` counts, by type, the explored
    questions and all whose policy said stop. ``labels`` says how those were labelled (``None``: all alike),
    ``unlike`` where the labelled ones differ from the others.
    """

    shares: tuple[ExplorationShare, ...]
    types: dict[str, tuple[int, int]]
    types_p_value: float | None
    labels: Labelling | None = None
    unlike: tuple[Unlike, ...] = ()

    def notes(self) -> list[str]:
        """A sentence on each check, with its numbers."""
        notes = []
        for share in self.shares:
            fits = "as promised" if share.p_value >= _ALARM else "NOT AS PROMISED"
            notes.append(
                f"exploration {fits}: {share.explored:,} of {share.stopped:,} questions whose policy said "
                f"stop ran on ({percent(share.explored / share.stopped)}%, promised "
                f"{percent(share.propensity)}%, exact binomial p {p_value(share.p_value)})"
                + (_WRONG if share.p_value < _ALARM else "")
            )
        if self.types_p_value is not None and self.types_p_value < _ALARM:
            counted = ", ".join(
                f"{kind} {explored:,} of {all_:,}" for kind, (explored, all_) in self.types.items()
            )
            notes.append(
                f"EXPLORED QUESTIONS ARE OF OTHER TYPES than those cut (p {p_value(self.types_p_value)}; "
                f"explored by type: {counted}): whether to explore was not drawn independently of the "
                "question, and no weight repairs that"
            )
        if (labels := self.labels) is not None:
            (some, ran), (others, cut) = labels.explored, labels.cut
            alike = "alike" if labels.p_value >= _ALARM else "NOT ALIKE"
            notes.append(
                f"labelled {alike}: {some:,} of {ran:,} explored questions, {others:,} of {cut:,} that their "
                f"policy cut (Fisher's exact test p {p_value(labels.p_value)}); each label counts 1 over the "
                "rate of its kind"
            )
        if self.unlike:
            told = ", ".join(
                f"{one.name} {one.some:.3g} and {one.others:.3g} (p {p_value(one.p_value)})"
                for one in self.unlike[:_MOST_TOLD]
            )
            notes.append(
                f"LABELLED QUESTIONS ARE UNLIKE THE OTHERS past their policy's stop, in means: {told}. Where "
                "labels depend on the outcome, no weight repairs that: label questions that are drawn"
            )
        return notes


_WRONG = (
    "; weights of 1/propensity are wrong here: look for questions that are missing from the record, or for "
    "a propensity that is not the one drawn with"
)


def exploration(
    seen: Seen, types: Sequence[str | None], labelled: NDArray[np.bool_]
) -> Exploration:
    """Checks of the draws, given of every question, (n_questions,), its type and whether it is labelled."""
    drawn = seen.explored | seen.stood_for
    groups = [
        drawn & (seen.propensity == propensity) for propensity in np.unique(seen.propensity[drawn])
    ]
    names = np.array([kind or "" for kind in types])
    kinds = np.unique(names[drawn])
    counts = [
        np.array(
            [
                [(rows & (names == kind)).sum() for kind in kinds]
                for rows in (group & seen.explored, group)
            ]
        )
        for group in groups
    ]
    both = sum(counts, np.zeros((2, len(kinds)), int))
    return Exploration(
        shares=tuple(
            _share(
                float(seen.propensity[group][0]), int(group.sum()), int(seen.explored[group].sum())
            )
            for group in groups
        ),
        types={
            str(kind) or "(none)": (int(explored), int(all_))
            for kind, explored, all_ in zip(kinds, *both, strict=True)
        },
        types_p_value=_types_p_value(counts) if len(kinds) > 1 and both[0].any() else None,
        labels=_labelling(seen, labelled),
        unlike=unlike(
            {**seen.signals, "the stop": seen.until.astype(np.float64)},
            drawn & labelled,
            drawn & ~labelled,
        ),
    )


def _labelling(seen: Seen, labelled: NDArray[np.bool_]) -> Labelling | None:
    arms = [(int(labelled[arm].sum()), int(arm.sum())) for arm in (seen.explored, seen.stood_for)]
    if not all(size for _, size in arms) or sum(some for some, _ in arms) in (
        0,
        sum(n for _, n in arms),
    ):
        return None
    return Labelling(explored=arms[0], cut=arms[1], p_value=fisher_p_value(*arms))


def _share(propensity: float, stopped: int, explored: int) -> ExplorationShare:
    low = float(binomial_cdf(explored, stopped, propensity))
    high = 1.0 - (float(binomial_cdf(explored - 1, stopped, propensity)) if explored else 0.0)
    return ExplorationShare(
        propensity=propensity,
        stopped=stopped,
        explored=explored,
        p_value=min(1.0, 2 * min(low, high)),
    )


def _types_p_value(counts: Sequence[np.ndarray]) -> float:
    """Of explored counts by type given as many explored, (2, n_types) a propensity: drawn and all."""
    rng = np.random.default_rng(_SEED)
    drawn = np.zeros(_DRAWS + 1)
    for explored, of_all in counts:
        expected = explored.sum() * of_all / max(of_all.sum(), 1)
        others = rng.multivariate_hypergeometric(of_all, int(explored.sum()), size=_DRAWS)
        off = (np.vstack([explored, others]) - expected) ** 2
        drawn += np.divide(off, expected, out=np.zeros_like(off), where=expected > 0).sum(axis=1)
    return float((drawn >= drawn[0] - 1e-9).mean())
