"""The open number of a rule: its grid, its out-of-fold choice and its shortest form."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import UsageError
from suffice.measures.scores import Outcomes
from suffice.policies.defaults import CalibratorKind
from suffice.policies.fitting import FitData, base_rates_out_of_fold, out_of_fold
from suffice.policies.rules.language import (
    Calibrated,
    Number,
    Operand,
    RuleColumns,
    SignalRef,
    Variable,
    comparisons,
    parse,
    rule_fires,
)
from suffice.policies.rules.policy import rule_needs
from suffice.signals.known_signals import SignalSpec, resolve
from suffice.stats.units import Array, Mask

PLACEHOLDER = "?"
_STAND_IN = 0.1234567890123457  # for the open number, where a rule is read before it is chosen
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdScore:
    """A threshold's mean score and rounds over labeled questions; ``stops`` (n_questions,)."""

    threshold: float
    score: float
    standard_error: float
    mean_rounds: float
    stops: NDArray[np.int16] = field(compare=False, repr=False)


def fill(template: str, threshold: float) -> str:
    """Return the rule with its one ``?`` replaced by a number, in shortest round-trip form."""
    if template.count(PLACEHOLDER) != 1:
        raise UsageError(
            f"rule {template!r} must hold exactly one '?', the number that is swept, as in "
            "'answer_stable and calibrated(answer_token_margin) > ?'"
        )
    if not math.isfinite(threshold):
        raise UsageError(f"a threshold must be a finite number, found {threshold!r}")
    return template.replace(PLACEHOLDER, str(Number(float(threshold))))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRule:
    """A rule with one open number, and its signals on the fitting questions."""

    template: str
    data: FitData
    specs: Mapping[str, SignalSpec]
    columns: RuleColumns

    def scores(self, thresholds: Sequence[float]) -> tuple[ThresholdScore, ...]:
        data, scores = self.data, []
        ends = data.table.exists.sum(axis=1)
        for threshold in thresholds:
            fires = rule_fires(fill(self.template, threshold), self.specs, self.columns)
            stops = first_stops(fires, ends)
            scores.append(score_stops(threshold, stops, data.outcomes))
        return tuple(scores)

    def shortest(self, threshold: float) -> float:
        """Return the shortest number that decides every recorded round alike."""
        stand_in = Number(_STAND_IN)
        for comparison in comparisons(parse(fill(self.template, _STAND_IN))):
            if comparison.right == stand_in:
                operand, symbol = comparison.left, comparison.operator
            elif comparison.left == stand_in:
                operand, symbol = comparison.right, _TURNED[comparison.operator]
            else:
                continue
            if (values := self._values(operand)) is not None:
                return shortest_threshold(threshold, values, symbol)
        return threshold

    def chosen(
        self,
        thresholds: Sequence[float],
        choose: Callable[[Sequence[ThresholdScore]], ThresholdScore],
    ) -> ThresholdScore:
        """Return the chosen score, with the shortest form of its threshold."""
        score = choose(self.scores(thresholds))
        return replace(score, threshold=self.shortest(score.threshold))

    def _values(self, operand: Operand) -> Array | None:
        exists = self.data.table.exists
        match operand:
            case SignalRef(name):
                spec = self.specs[name]
                return np.append(self.columns.signals[name][exists], (spec.low, spec.high))
            case Calibrated():
                return np.append(self.columns.calibrations[operand.key][exists], (0.0, 1.0))
            case Variable("base_rate()") if self.columns.base_rates is not None:
                return np.append(self.columns.base_rates[exists], (0.0, 1.0))
            case _:
                return None


def open_rule(
    template: str,
    data: FitData,
    *,
    calibrator: CalibratorKind = "isotonic",
    undefined: float | None = None,
) -> OpenRule:
    """Return a rule whose open number is written ``?``; calibrated values are out of fold."""
    needs = rule_needs(fill(template, 0.0))
    return OpenRule(
        template=template,
        data=data,
        specs={name: resolve(name, also=data.table.values) for name in needs.signals},
        columns=RuleColumns(
            shape=(data.table.n_questions, data.table.n_rounds),
            signals={name: data.table.signal(name) for name in needs.signals},
            calibrations={
                part.key: out_of_fold(data, part.key, kind=calibrator, undefined=undefined)
                for part in needs.calibrated
            },
            base_rates=base_rates_out_of_fold(data) if needs.base_rate else None,
            question_ids=data.table.question_ids,
        ),
    )


def first_stops(fires: Mask, ends: NDArray[np.integer[Any]]) -> NDArray[np.int16]:
    """Return the first round that fires, from 1; at most, and otherwise, ``ends`` (n_questions,)."""
    first = np.where(fires.any(axis=1), fires.argmax(axis=1) + 1, ends)
    return np.asarray(np.minimum(first, ends), np.int16)


def score_stops(threshold: float, stops: NDArray[np.int16], outcomes: Outcomes) -> ThresholdScore:
    """Score the stops (n_questions,) on the labeled questions."""
    labelled = outcomes.labelled
    scores = outcomes.compared[np.arange(len(stops)), stops - 1][labelled]
    spread = float(scores.std(ddof=1)) if len(scores) > 1 else 0.0
    return ThresholdScore(
        threshold=threshold,
        score=float(scores.mean()),
        standard_error=spread / float(np.sqrt(len(scores))),
        mean_rounds=float(stops[labelled].mean()),
        stops=stops,
    )


def cheapest_within_one_error(scores: Sequence[ThresholdScore]) -> ThresholdScore:
    """Return the cheapest within one standard error of the best; ties: the better, then the lower."""
    best = max(scores, key=lambda threshold: threshold.score)
    close = [one for one in scores if one.score >= best.score - best.standard_error]
    return min(close, key=lambda one: (one.mean_rounds, -one.score, one.threshold))


# --- as short as can be --------------------------------------------------------------------------
def shortest_threshold(threshold: float, values: ArrayLike, comparison: str = ">") -> float:
    """Return the number of fewest decimals that compares with every value as the threshold does.

    Of several the nearest, then the lower. No value changes its side: after ``>`` and ``<=`` the number may
    equal the value below it, after ``<`` and ``>=`` the value above it.
    """
    if comparison not in ("<", "<=", ">", ">="):
        return threshold
    known = np.asarray(values, np.float64).ravel()
    above = comparison in (">", "<=")  # a value equal to the threshold lies below the gap
    low = known[known <= threshold if above else known < threshold].max(initial=-math.inf).item()
    high = known[known > threshold if above else known >= threshold].min(initial=math.inf).item()
    exact = Fraction(repr(float(threshold)))
    for decimals in range(-int(Decimal(repr(float(threshold))).as_tuple().exponent)):
        unit = 10**decimals
        nearest = round(exact * unit)
        near = {nearest - 1, nearest, nearest + 1}
        near |= {
            math.floor(Fraction(repr(end)) * unit) + step
            for end in (low, high)
            if math.isfinite(end)
            for step in (0, 1)
        }
        fitting = [
            number / unit
            for number in near
            if (low <= number / unit < high if above else low < number / unit <= high)
        ]
        if fitting:
            return float(
                min(fitting, key=lambda number: (abs(Fraction(repr(number)) - exact), number))
            )
    return threshold
