"""A limit of rounds that all but a chosen share of one's own successes needed (LoopBrake 0.5)."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from suffice.errors import SufficeWarning, counted
from suffice.options import Option
from suffice.policies.method import Method, Preset
from suffice.policies.rules.policy import Rule, RuleKind
from suffice.stats.conformal import exact_level, lower_order_statistic, lower_rank, smallest_sample

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """How many successes the limit may cost."""

    alpha: Annotated[
        float, Option(metavar="A", help="largest share of the successes that may need more rounds")
    ] = 0.05


class CalibratedLimit(RuleKind, Method):
    """Stops at the k-th smallest number of rounds that a success needed, k = ceil((n + 1)(1 - alpha)).

    A success needs the rounds up to its first exact match. Of new questions like the n fitted ones that
    succeed within the budget, at most a share ``alpha`` in expectation needs more rounds.
    """

    name = "calibrated-limit"
    summary = "stop after the rounds that all but a share of the record's successes needed"
    source = "LoopBrake 0.5, split conformal"
    presets: tuple[Preset, ...] = ("published",)
    fitted: frozenset[Preset] = frozenset({"published"})
    options = LimitSettings

    def fit(self, measures: Measures, preset: Preset, settings: LimitSettings, split: str) -> Rule:
        """Fit the limit to the successes in ``split``."""
        from suffice.policies.fitting import fit_data

        level, data = exact_level(settings.alpha), fit_data(measures, (), split=split)
        right = data.outcomes.em == 1.0
        needed = right.argmax(axis=1)[right.any(axis=1)] + 1.0
        limit = -lower_order_statistic(-needed, level)
        if math.isinf(limit):
            warnings.warn(
                f"{counted(len(needed), 'question')} of split {split!r} succeeded, and a limit at alpha "
                f"{settings.alpha:g} needs {smallest_sample(level)}: the policy never stops early",
                SufficeWarning,
                stacklevel=2,
            )
            limit = float(data.table.n_rounds)
        rank = len(needed) + 1 - lower_rank(level, len(needed))
        told: dict[str, Any] = {"alpha": settings.alpha, "successes": len(needed), "rank": rank}
        return Rule(
            rule=f"round >= {int(limit)}",
            kind=self.name,
            preset=preset,
            fitted_on={**data.provenance, **told},
        )


METHOD = CalibratedLimit()
