"""A stopping rule with its fitted maps: the policy of rule texts and of TASR."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from suffice.contracts import Explanation, Facts, LoopNeeds, PolicyTable
from suffice.errors import UsageError
from suffice.options import Option
from suffice.policies.method import (
    CalibratedSettings,
    Method,
    PolicyKind,
    Preset,
    loop_needs,
    read_abstention,
)
from suffice.policies.rules.language import (
    BASE_RATE,
    Calibrated,
    Number,
    Operand,
    RuleColumns,
    SignalRef,
    can_hold,
    check_reachable,
    first_round,
    operands,
    parse,
    rule_fires,
)
from suffice.scoring import AnswerChoice
from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import SignalSpec, resolve
from suffice.stats.fields import Fields, known, probability_or_none
from suffice.stats.maps import PerRoundCalibrator, calibrator_document, read_calibrator
from suffice.stats.units import Array, Mask

if TYPE_CHECKING:
    from suffice.measures.measures import Measures


_LONG_NUMBER = re.compile(r"(?<![\w.])\d*\.\d{5,}(?:e-?\d+)?")


def rounded(rule: str) -> str:
    """Round the numbers in a rule to six digits, for tables and headlines; files keep all digits.

    >>> rounded("p_true > 0.87500004 and margin_p10 > 2")
    'p_true > 0.875 and margin_p10 > 2'
    """
    return _LONG_NUMBER.sub(lambda number: f"{float(number[0]):.6g}", rule)


@dataclass(frozen=True, slots=True)
class RuleNeeds:
    """Inputs of a rule: signals to read, and parts to fit."""

    signals: tuple[str, ...]
    calibrated: tuple[Calibrated, ...]
    base_rate: bool

    @property
    def fitting(self) -> bool:
        """Whether some part must be fitted."""
        return bool(self.calibrated) or self.base_rate


def rule_needs(rule: str) -> RuleNeeds:
    """Return the rule's signals and fitted parts, each once and in reading order."""
    read = list(operands(parse(rule)))
    signals = [operand.name for operand in read if isinstance(operand, SignalRef | Calibrated)]
    calibrated = [operand for operand in read if isinstance(operand, Calibrated)]
    return RuleNeeds(
        signals=tuple(dict.fromkeys(signals)),
        calibrated=tuple(dict.fromkeys(calibrated)),
        base_rate=BASE_RATE in read,
    )


def not_before(rule: str, round_number: int) -> str:
    return rule if round_number == 1 else f"round >= {round_number} and ({rule})"


_COIN = re.compile(r"coin\(\) < ([\d.e-]+)")


def coin_sides(policy: object) -> tuple[tuple[float, Rule], ...]:
    """Return a rule under heads and under tails of its coin, with their chances; empty: it tosses not one."""
    toss = _COIN.search(policy.rule) if isinstance(policy, Rule) else None
    if not isinstance(policy, Rule) or toss is None or policy.rule.count("coin()") != 1:
        return ()
    heads, tails = (
        replace(policy, rule=_COIN.sub(side, policy.rule))
        for side in ("round >= 1", "not round >= 1")
    )
    return (float(toss[1]), heads), (1.0 - float(toss[1]), tails)


def check_rule(rule: str, own_signals: Collection[str] = ()) -> None:
    """Refuse a text that is no rule over known signals and those of one's own, whatever is fitted."""
    specs = {name: resolve(name, also=own_signals) for name in rule_needs(rule).signals}
    check_reachable(parse(rule), specs)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Stops at the first round at which its rule holds.

    ``rule`` is its text. ``calibrators`` hold a fitted map for every ``calibrated(...)`` of the rule, by what
    stands in the parentheses. ``base_rates`` are the mean EM of each round on the fitting split, for
    ``base_rate()``, undefined past the last. ``own_signals`` are names that you record and no registered
    signal has. ``abstention`` are the phrases that count as one; ``None``: the usual ones. ``answer`` says
    which of the answers up to its stop it returns (:class:`suffice.scoring.AnswerChoice`).

    ``kind`` and ``preset`` are what it is called: ``rule``, or the method that wrote it. ``fitted_on`` tells
    where the fitted parts come from, ``guarantee`` what certified choice promised. They decide nothing.

    Building raises a UsageError for a text that is no rule, an unknown signal, a comparison that can never
    hold, and a ``calibrated`` or ``base_rate`` that was not fitted.
    """

    rule: str = field(kw_only=False)
    calibrators: Mapping[str, PerRoundCalibrator] = field(default_factory=dict)
    base_rates: tuple[float, ...] = ()
    kind: str = "rule"
    preset: str | None = None
    own_signals: tuple[str, ...] = ()
    abstention: tuple[str, ...] | None = None
    fitted_on: Mapping[str, Any] = field(default_factory=dict)
    guarantee: Mapping[str, Any] = field(default_factory=dict)
    answer: str = "latest"

    def __post_init__(self) -> None:
        AnswerChoice.parse(self.answer)
        if isinstance(self.own_signals, str):
            object.__setattr__(self, "own_signals", (self.own_signals,))
        needs = rule_needs(self.rule)
        check_reachable(parse(self.rule), {spec.name: spec for spec in self.specs})
        unfitted = [part for part in needs.calibrated if part.key not in self.calibrators]
        if unfitted or (needs.base_rate and not self.base_rates):
            part = unfitted[0] if unfitted else BASE_RATE
            raise UsageError(
                f"rule {self.rule!r} uses {part}, which was not fitted; "
                "fit it on traces with a tune split (suffice traces split TRACES --out NEW draws one)"
            )

    def from_round(self, first: int) -> Rule:
        """See :class:`suffice.contracts.DelayedPolicy`; the new rule carries no promise."""
        return replace(self, rule=not_before(self.rule, first), guarantee={})

    @cached_property
    def signals(self) -> tuple[str, ...]:
        return rule_needs(self.rule).signals

    @cached_property
    def specs(self) -> tuple[SignalSpec, ...]:
        specs = (resolve(name, also=self.own_signals) for name in self.signals)
        if self.abstention is None:
            return tuple(specs)
        from suffice.signals.derived import with_meaning

        own = abstained_signal(self.abstention)
        return tuple(with_meaning(spec, own) for spec in specs)

    @property
    def needs(self) -> LoopNeeds:
        return loop_needs(self.specs, returns=self.answer)

    @property
    def facts(self) -> Facts:
        return Facts(
            name=f"{self.kind}-corrected" if self.preset == "corrected" else self.kind,
            summary=rounded(self.rule),
            fitted_on=self.fitted_on,
            guarantee=self.guarantee,
            earliest=first_round(parse(self.rule)),
        )

    def where_undefined(self, signal: str) -> str:
        """Say in words how the rule decides where one of its signals is undefined."""
        calibrator = self.calibrators.get(signal)
        if calibrator is not None and calibrator.absent is not None:
            return f"calibrated({signal}) counts as {calibrator.absent:g} there"
        return (
            f"where it is undefined no condition on it holds, so {self.rule!r} may never stop early"
        )

    def fires(self, table: PolicyTable) -> Mask:
        """Return where the rule holds, (n_questions, n_rounds)."""
        return self._fires(self._columns(table))

    def explain(self, table: PolicyTable, question: int, round_number: int) -> Explanation:
        """Explain whether the rule holds, with the values that it compares."""
        columns = self._columns(table, slice(question, question + 1))
        read = operands(parse(self.rule))
        shown = {str(operand): operand for operand in read if not isinstance(operand, Number)}
        at = 0, round_number - 1
        holds = self._fires(columns)[at]
        values = {
            name: known(float(columns.whole(columns.value(part))[at]))
            for name, part in shown.items()
        }

        def undefined(part: Operand) -> str:
            if isinstance(part, SignalRef | Calibrated) and np.isnan(
                columns.signals[part.name][at]
            ):
                spec = next(spec for spec in self.specs if spec.name == part.name)
                return table.undefined(spec, question, round_number)
            return f"undefined (nothing was fitted for round {round_number})"

        listed = ", ".join(
            f"{name} = {undefined(shown[name]) if value is None else f'{value:.4g}'}"
            for name, value in values.items()
        )
        verdict = "holds" if holds else "does not hold"
        return Explanation(
            reason=f"{self.rule} {verdict} at round {round_number}: {listed}", values=values
        )

    def _fires(self, columns: RuleColumns) -> Mask:
        return rule_fires(self.rule, {spec.name: spec for spec in self.specs}, columns)

    def _columns(self, table: PolicyTable, rows: slice = slice(None)) -> RuleColumns:
        signals = {name: table.signal(name)[rows] for name in self.signals}
        calibrations = {
            part.key: self.calibrators[part.key].predict_rounds(signals[part.name])
            for part in rule_needs(self.rule).calibrated
        }
        questions = len(range(table.n_questions)[rows])
        rates = np.full(table.n_rounds, math.nan)
        fitted = self.base_rates[: table.n_rounds]
        rates[: len(fitted)] = fitted
        return RuleColumns(
            shape=(questions, table.n_rounds),
            signals=signals,
            calibrations=calibrations,
            base_rates=np.broadcast_to(rates, (questions, table.n_rounds)),
            question_ids=table.question_ids[rows],
        )

    def confidence(self, table: PolicyTable) -> Array | None:
        """Return the smallest calibrated value of the round's answer, P(EM = 1), (n_questions, n_rounds).

        NaN where one of them is undefined; ``None`` for a rule without ``calibrated(signal)``.
        """
        keys = [part.key for part in rule_needs(self.rule).calibrated if not part.target]
        if not keys:
            return None
        columns = self._columns(table)
        # NaN wins: an undefined part leaves no whole
        return reduce(np.minimum, (columns.calibrations[key] for key in keys))

    def can_hold(self, table: PolicyTable) -> Mask:
        """Return where enough is defined for the rule to hold, (n_questions, n_rounds)."""
        columns = self._columns(table)
        return np.asarray(columns.whole(can_hold(parse(self.rule), columns)), np.bool_)

    def document(self) -> dict[str, Any]:
        """Return the contents of its file; empty parts are left out."""
        parts: dict[str, Any] = {
            "rule": self.rule,
            "preset": self.preset,
            "calibrators": {
                name: calibrator_document(calibrator)
                for name, calibrator in self.calibrators.items()
            }
            or None,
            "base_rates": [*map(known, self.base_rates)] or None,
            "own_signals": list(self.own_signals) or None,
            "abstention": None if self.abstention is None else list(self.abstention),
            "fitted_on": dict(self.fitted_on) or None,
            "guarantee": dict(self.guarantee) or None,
            "answer": None if self.answer == "latest" else self.answer,
        }
        return {name: part for name, part in parts.items() if part is not None}


class RuleKind(PolicyKind):
    """Rules: a user's own, those of methods, and those of a certified choice."""

    main_field = "rule"

    def read(self, document: Mapping[str, Any], file: Path) -> Rule:
        del file
        fields = Fields(document)
        fields.need("rule")
        rates = fields.of("base_rates", list, [])
        rates = [probability_or_none(rate, "base_rates") for rate in rates]
        parts = fields.of("calibrators", dict, {})
        return Rule(
            rule=fields.of("rule", str),
            calibrators={
                name: read_calibrator(part, f"calibrators.{name}") for name, part in parts.items()
            },
            base_rates=tuple(math.nan if rate is None else rate for rate in rates),
            kind=document["kind"],
            preset=fields.of("preset", str),
            own_signals=fields.strings("own_signals") or (),
            abstention=read_abstention(fields),
            fitted_on=fields.of("fitted_on", dict, {}),
            guarantee=fields.of("guarantee", dict, {}),
            answer=fields.of("answer", str, "latest"),
        )


# --- a user's own rule as a method ----------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class _RuleSettings(CalibratedSettings):
    rule: Annotated[
        str,
        Option(
            metavar="RULE",
            positional=True,
            help="the rule, as in 'answer_stable and calibrated(answer_token_margin) > 0.25'",
        ),
    ]


class _RuleMethod(RuleKind, Method):
    name = "rule"
    summary = "your own rule with its calibrated(...) and base_rate() fitted"
    presets: tuple[Preset, ...] = ("corrected",)
    options = _RuleSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        from suffice.policies.fitting import fit_rule, warn_of_rule

        del preset
        policy = fit_rule(settings.rule, measures, split=split, calibrator=settings.calibrator)
        read = measures.only_split(split) if policy.fitted_on else measures
        warn_of_rule(policy, read, self.name)
        return policy


METHOD = _RuleMethod()
