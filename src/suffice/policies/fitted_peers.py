"""Fitted policies of other systems: LoopBrake's limit of rounds and EarlyEval's pair of predictions."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from suffice.errors import SufficeWarning, counted
from suffice.options import Option
from suffice.policies.defaults import CalibratorKind
from suffice.policies.method import CalibratedSettings, Method, Preset
from suffice.policies.rules.policy import Rule, RuleKind
from suffice.signals.known_signals import own_among
from suffice.stats.conformal import exact_level, lower_order_statistic, lower_rank, smallest_sample

if TYPE_CHECKING:
    from suffice.measures.measures import Measures
    from suffice.policies.fitting import FitData


# --- LoopBrake -----------------------------------------------------------------------------------
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


# --- EarlyEval -----------------------------------------------------------------------------------
_SURE = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # levels that the source tries, and the one that it uses


@dataclass(frozen=True, slots=True, kw_only=True)
class _PairSettings(CalibratedSettings):
    signal: Annotated[
        str, Option(metavar="NAME", help="signal that foretells success, such as a classifier's")
    ] = "token_probability"


@dataclass(frozen=True, slots=True, kw_only=True)
class _PublishedPairSettings(_PairSettings):
    calibrator: Annotated[
        CalibratorKind,
        Option(help="how to fit calibrated(...) (default: isotonic, published platt)"),
    ] = "platt"
    success: Annotated[float, Option(metavar="P", help="stop at this probability of success")] = (
        0.95
    )
    failure: Annotated[float, Option(metavar="P", help="stop at this probability of failure")] = (
        0.95
    )


class EarlyEval(RuleKind, Method):
    """Stops when success is almost certain, or failure is: two levels of calibrated probabilities.

    ``published`` foretells whether the last answer will be right. ``corrected`` stops for success where this
    round's is, which is returned, and takes both levels from the fitting questions.
    """

    name = "early-eval"
    summary = "stop when success is almost certain, or failure at the last round is"
    source = "EarlyEval (arXiv 2609.02783)"
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType({"p_true": {"signal": "p_true"}})

    def settings(self, preset: Preset) -> type[Any]:
        """Levels are options where they are not fitted."""
        return _PublishedPairSettings if preset == "published" else _PairSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        """Fit the maps in ``split``, and the levels unless the preset states them."""
        from suffice.policies.fitting import fit_data, fitted_rule, warn_of_rule

        data = fit_data(measures, (settings.signal,), split=split)
        end = f"calibrated({settings.signal}, end)"
        if preset == "published":
            rule = f"{end} >= {settings.success:g} or {end} <= {1 - settings.failure:g}"
        else:
            rule = _fitted_levels(f"calibrated({settings.signal})", end, data, settings.calibrator)
        own = own_among((settings.signal,), measures.traces.signal_names)
        policy = fitted_rule(rule, data, own_signals=own, calibrator=settings.calibrator)
        warn_of_rule(policy, measures.only_split(split), self.name)
        return replace(policy, kind=self.name, preset=preset)


def _fitted_levels(now: str, end: str, data: FitData, calibrator: CalibratorKind) -> str:
    """Return the cheapest rule within one standard error of the best, out of fold."""
    from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule

    templates = [f"{now} >= ? or {end} <= {1 - sure:g}" for sure in _SURE]
    opened = open_rule(templates[0], data, calibrator=calibrator)
    scores = {text: replace(opened, template=text).scores(_SURE) for text in templates}
    best = cheapest_within_one_error([score for tried in scores.values() for score in tried])
    return next(fill(text, best.threshold) for text, tried in scores.items() if best in tried)


LIMIT, EARLY_EVAL = CalibratedLimit(), EarlyEval()
