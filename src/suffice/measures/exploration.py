"""Whether exploration went as promised: its share, and whether what was drawn is like the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.measures.seen import Seen
from suffice.numbers.tests.tails import binomial_cdf
from suffice.results.formats import p_value, percent

_ALARM = 0.01
_DRAWS = 999
_SEED = 42


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
class Exploration:
    """How the draws of a record came out.

    ``shares`` has one entry a propensity. ``types_p_value`` is that of the hypothesis that explored
    questions are of the same types as those cut: the chi-square statistic among 999 draws as many of each
    propensity; ``None``: fewer than two types, or nothing explored. ``types`` counts, by type, the explored
    questions and all whose policy said stop.
    """

    shares: tuple[ExplorationShare, ...]
    types: dict[str, tuple[int, int]]
    types_p_value: float | None

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
        return notes


_WRONG = (
    "; weights of 1/propensity are wrong here: look for questions that are missing from the record, or for "
    "a propensity that is not the one drawn with"
)


def exploration(seen: Seen, types: Sequence[str | None]) -> Exploration:
    """Checks of the draws, given the type of every question (n_questions,)."""
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
    )


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
