"""TASR (paper 0, Eq. 1), and its controls: simpler rules that it must beat.

``published`` is the rule AS_m25 as the paper's code ran it. The floor is 0.25, stability uses the code's
own normalizer, and a round without log-probabilities counts as calibrated margin 0.5. Thresholds of
controls are fixed at 0.25, or have the best tune F1 of 40 evenly spaced ones at no more than 3 rounds.
``corrected`` uses the official normalizer and never fires on an undefined margin or a stable abstention.
It takes the cheapest threshold within one standard error of the best out-of-fold tune F1.

The fifth control, a random mix of fixed budgets at equal cost, is ``frontier_gain`` of a replay.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from suffice.errors import SufficeWarning, UsageError
from suffice.options import Option
from suffice.policies.defaults import (
    FLOORS,
    MARGIN,
    PUBLISHED_FLOOR,
    PUBLISHED_RULE,
    PUBLISHED_UNDEFINED,
    TEMPLATE,
    CalibratorKind,
)
from suffice.policies.fitting import FitData, fit_data, fitted_rule, right_abstentions, warn_of_rule
from suffice.policies.method import PRESETS, CalibratedSettings, Method, Preset
from suffice.policies.rules.policy import Rule, RuleKind
from suffice.policies.thresholds import cheapest_within_one_error, fill, open_rule
from suffice.scoring import F1Kind

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


_F1 = Annotated[
    F1Kind,
    Option(
        name="f1", help="F1 to choose by. hotpotqa: a wrong yes or no scores 0. squad: plain F1."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _NoSettings:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class _ChosenSettings:
    f1_kind: _F1 = "hotpotqa"


@dataclass(frozen=True, slots=True, kw_only=True)
class _CalibratedChoiceSettings(CalibratedSettings):
    f1_kind: _F1 = "hotpotqa"


@dataclass(frozen=True, slots=True, kw_only=True)
class _How:
    preset: Preset
    calibrator: CalibratorKind = "isotonic"
    f1_kind: F1Kind = "hotpotqa"

    @property
    def undefined(self) -> float | None:
        return PUBLISHED_UNDEFINED if self.preset == "published" else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _RuleMethod(RuleKind, Method):
    """TASR or a control: the signals of each preset, and how its rule is found on tune."""

    name: str
    summary: str
    source: str = "paper 0"
    signals: Mapping[Preset, tuple[str, ...]]
    rule: Callable[[FitData, _How], str]
    chosen_by_f1: frozenset[Preset] = frozenset()

    def settings(self, preset: Preset) -> type[Any]:
        if preset in self.chosen_by_f1:
            return _CalibratedChoiceSettings if preset == "corrected" else _ChosenSettings
        return CalibratedSettings if preset == "corrected" else _NoSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        how = _How(preset=preset, **asdict(settings))
        questions = measures.only_split(split)
        data = fit_data(
            measures,
            self.signals[preset],
            split=split,
            f1_kind=how.f1_kind,
            abstention=right_abstentions(questions),
        )
        text = self.rule(data, how)
        policy = fitted_rule(text, data, calibrator=how.calibrator, undefined=how.undefined)
        if preset in self.chosen_by_f1:
            policy = replace(policy, fitted_on={**data.chosen_by, **policy.fitted_on})
        warn_of_rule(policy, questions, self.name)
        return policy


class _TASR(_RuleMethod):
    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        policy = super().fit(measures, preset, settings, split)
        fitted_on = dict(policy.fitted_on)
        if preset == "corrected":
            floor = float(policy.rule.rpartition(" ")[2])
            fitted_on |= {"floors": [FLOORS[0], FLOORS[-1]], "floor": floor}
        return replace(policy, kind="tasr", preset=preset, fitted_on=fitted_on)


# --- rules ---------------------------------------------------------------------------------------
_COST_CAP = 3.0
_GRID = 40
_FIRST_ROUND = tuple(round(0.05 * step, 2) for step in range(1, 20))


def _choose(template: str, data: FitData, thresholds: tuple[float, ...], how: _How) -> str:
    swept = open_rule(template, data, calibrator=how.calibrator, undefined=how.undefined)
    if how.preset == "corrected":
        return fill(template, swept.chosen(thresholds, cheapest_within_one_error).threshold)
    scores = swept.scores(thresholds)
    under = [score for score in scores if score.mean_rounds <= _COST_CAP]
    if not under:
        budget = data.table.n_rounds
        warnings.warn(
            f"no threshold of {template!r} costs at most {_COST_CAP:g} rounds on the fitting questions: "
            f"the rule never fires before round {budget}",
            SufficeWarning,
            stacklevel=2,
        )
        return f"round >= {budget}"
    best = max(under, key=lambda score: (score.score, -score.threshold))
    return fill(template, swept.shortest(best.threshold))


def _tasr(data: FitData, how: _How) -> str:
    if how.preset == "published":
        return PUBLISHED_RULE
    return _choose(TEMPLATE, data, FLOORS, how)


def _margin_alone(data: FitData, how: _How) -> str:
    template = f"calibrated({MARGIN}) > ?"
    if how.preset == "published":
        return fill(template, PUBLISHED_FLOOR)
    return _choose(template, data, FLOORS, how)


def _overlap_alone(data: FitData, how: _How) -> str:
    values = data.table.signal("overlap")
    finite = values[np.isfinite(values)]
    if not finite.size or finite.min() == finite.max():
        raise UsageError(
            "overlap takes fewer than two values on the fitting questions: no threshold on it can "
            "be chosen"
        )
    grid = np.linspace(finite.min(), finite.max(), _GRID)[:-1]  # nothing passes the greatest
    return _choose("overlap > ?", data, tuple(grid.tolist()), how)


def _stable_base_rate(data: FitData, how: _How) -> str:
    del data  # the gate is the paper's, the rates are fitted with the rule
    stable = "answer_stable_published" if how.preset == "published" else "answer_stable"
    return f"{stable} and base_rate() > {PUBLISHED_FLOOR}"


def _early_stop(data: FitData, how: _How) -> str:
    template = f"(round == 1 and calibrated({MARGIN}) > ?) or ({_tasr(data, how)})"
    return _choose(template, data, _FIRST_ROUND, how)


_STABLE = ("answer_stable", "answer_stable_published")
METHOD = _TASR(
    name="tasr",
    summary="stop when the answer repeats and its calibrated margin is high enough",
    source="paper 0, Eq. 1",
    signals={
        "published": ("answer_stable_published", MARGIN),
        "corrected": ("answer_stable", "abstained", MARGIN),
    },
    rule=_tasr,
    chosen_by_f1=frozenset({"corrected"}),
)
MARGIN_ALONE = _RuleMethod(
    name="margin-alone",
    summary="stop when the calibrated margin is high enough, stable or not",
    signals=dict.fromkeys(PRESETS, (MARGIN,)),
    rule=_margin_alone,
    chosen_by_f1=frozenset({"corrected"}),
)
OVERLAP_ALONE = _RuleMethod(
    name="overlap-alone",
    summary="stop when the new passage repeats the earlier ones",
    signals=dict.fromkeys(PRESETS, ("overlap",)),
    rule=_overlap_alone,
    chosen_by_f1=frozenset(PRESETS),
)
STABLE_BASE_RATE = _RuleMethod(
    name="stable-base-rate",
    summary="stop when the answer repeats in a round whose mean tune EM is above 0.25",
    signals=dict.fromkeys(PRESETS, _STABLE),
    rule=_stable_base_rate,
)
EARLY_STOP = _RuleMethod(
    name="early-stop",
    summary="TASR that may also stop in round 1 at a high calibrated margin",
    signals=dict.fromkeys(PRESETS, (*_STABLE, "abstained", MARGIN)),
    rule=_early_stop,
    chosen_by_f1=frozenset(PRESETS),
)
