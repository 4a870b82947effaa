"""Families of policies that certified choice picks from, fitted on one half and run on both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product, zip_longest
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.measures.costs import cost_reads
from suffice.numbers.maps.per_round import PerRoundCalibrator
from suffice.policies.fitting import fit_data, fit_rule
from suffice.policies.rules.columns import RuleColumns
from suffice.policies.rules.policy import rule_needs
from suffice.policies.tasr.fit import TEMPLATE
from suffice.policies.thresholds import fill, sweep_rule
from suffice.replay.choose.rules_as_bits import RuleBatch, pack, stop_rounds_of
from suffice.replay.choose.thresholded_signals import (
    Operand,
    calibrators_of,
    condition_fires,
    operands_of,
    scoring_columns,
    tuning_columns,
)
from suffice.replay.diagnose.signal_flags import UNUSABLE, refuse_unusable, signal_flags
from suffice.signals.available import given_signals
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.spec import VERDICTS, SignalSpec
from suffice.signals.table import signal_table
from suffice.trace.rounds.table import TraceSet

_FLOORS = tuple(round(0.05 * step, 2) for step in range(20))
_MOST_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySettings:
    """What is in the family.

    Parameters
    ----------
    family
        ``fixed``: every K; ``thresholds``: one rule over a grid; ``rule``: OR and AND rules.
    rule, thresholds
        Of ``thresholds``: a rule with one ``?`` and its grid (0.00, 0.05, ... 0.95).
    signals
        Of ``rule``; ``None``: every signal the trace defines without asking a model.
    levels
        Of ``rule``: thresholds a signal, evenly spaced quantiles on the first half.
    max_signals
        Of ``rule``: how many signals one rule combines at most.
    """

    family: str = "rule"
    rule: str = TEMPLATE
    thresholds: tuple[float, ...] | None = None
    signals: tuple[str, ...] | None = None
    levels: int = 9
    max_signals: int = 2

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise UsageError(f"unknown family {self.family!r}; known: {', '.join(FAMILIES)}")
        if self.levels < 1 or self.max_signals < 1:
            raise UsageError(
                f"levels and max_signals must be at least 1, found {self.levels} and {self.max_signals}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Members on both halves.

    ``rules`` are their texts, the full budget (``full``) among them; ``learn_stops`` and
    ``test_stops`` (n_members, n_questions); ``reads`` what each pays for; ``calibrators`` are fitted
    on the first half.
    """

    rules: tuple[str, ...]
    full: int
    learn_stops: NDArray[np.int16]
    test_stops: NDArray[np.int16]
    reads: tuple[CostReads, ...]
    calibrators: Mapping[str, PerRoundCalibrator]
    base_rates: tuple[float, ...]
    own_signals: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Halves:
    learn: TraceSet
    test: TraceSet
    split: str


def build_family(learn: TraceSet, test: TraceSet, split: str, settings: FamilySettings) -> Family:
    """Fit on ``learn``, run every member on both halves (calibrated values of ``learn`` out of fold).

    Raises
    ------
    UsageError
        For signals the trace lacks, a rule without exactly one ``?``, a family that is too large.
    """
    return FAMILIES[settings.family](_Halves(learn, test, split), settings)


def _fixed(halves: _Halves, settings: FamilySettings) -> Family:  # noqa: ARG001 - one signature
    budget = max(halves.learn.n_rounds, halves.test.n_rounds)
    rules = tuple(f"round >= {k}" for k in range(1, budget + 1))
    stops = [
        np.minimum(np.arange(1, budget + 1)[:, None], each.last_rounds[None, :]).astype(np.int16)
        for each in (halves.learn, halves.test)
    ]
    return Family(
        rules=rules,
        full=budget - 1,
        learn_stops=stops[0],
        test_stops=stops[1],
        reads=tuple(CostReads() for _ in rules),
        calibrators={},
        base_rates=(),
        own_signals=(),
    )


def _with_fixed(family: Family, halves: _Halves) -> Family:
    """The same with every fixed budget, the full one included."""
    fixed = _fixed(halves, FamilySettings())
    return replace(
        family,
        rules=(*family.rules, *fixed.rules),
        full=len(family.rules) + fixed.full,
        learn_stops=np.concatenate([family.learn_stops, fixed.learn_stops]),
        test_stops=np.concatenate([family.test_stops, fixed.test_stops]),
        reads=(*family.reads, *fixed.reads),
    )


# --- thresholds: one rule over a grid ------------------------------------------------------------
def _thresholds(halves: _Halves, settings: FamilySettings) -> Family:
    grid = _FLOORS if settings.thresholds is None else settings.thresholds
    grid = tuple(sorted(set(grid)))
    if not grid:
        raise UsageError("the grid holds no threshold")
    needs = rule_needs(fill(settings.rule, grid[0]))
    data = fit_data(halves.learn, needs.signals, split=halves.split)
    swept = sweep_rule(settings.rule, data, grid)
    own = _own(needs.signals, halves.learn)
    fitted = fit_rule(fill(settings.rule, grid[0]), data, own_signals=own)
    policies = [replace(fitted, rule=fill(settings.rule, each)) for each in grid]
    table = signal_table(halves.test, fitted.specs)
    family = Family(
        rules=tuple(policy.rule for policy in policies),
        full=0,
        learn_stops=np.stack([each.stops for each in swept]),
        test_stops=np.stack(
            [np.minimum(policy.stop_rounds(table), halves.test.last_rounds) for policy in policies]
        ),
        reads=tuple(cost_reads(policy.specs) for policy in policies),
        calibrators=fitted.calibrators,
        base_rates=fitted.base_rates,
        own_signals=own,
    )
    return _with_fixed(family, halves)


def _own(names: Sequence[str], traces: TraceSet) -> tuple[str, ...]:
    return tuple(each for each in names if each in traces.signal_names and each not in SIGNALS)


# --- rule: OR and AND over the trace's signals ---------------------------------------------------
def _rules(halves: _Halves, settings: FamilySettings) -> Family:
    operands, notes = _operands(halves, settings)
    data = fit_data(
        halves.learn, dict.fromkeys(each.spec.name for each in operands), split=halves.split
    )
    calibrators = calibrators_of(data, operands)
    learn = tuning_columns(data, operands)
    test = scoring_columns(signal_table(halves.test, data.table.values), calibrators)
    conditions = _conditions(operands, learn, settings)
    texts = [text for text, _ in conditions]
    packed = [pack(condition_fires(texts, operands, columns)) for columns in (learn, test)]
    rules: list[str] = []
    stops: list[list[NDArray[np.int16]]] = [[], []]
    reads: list[CostReads] = []
    for size, members in _combinations(conditions, settings).items():
        words = ("",) if size == 1 else (" and ", " or ")
        for word in words:
            batch = RuleBatch(members, (1,) * size if word == " or " else (size,))
            for index, half in enumerate((halves.learn, halves.test)):
                stops[index].append(stop_rounds_of(packed[index], batch, half.last_rounds))
            rules += [word.join(texts[each] for each in row) for row in members.tolist()]
            reads += [
                cost_reads(operands[conditions[each][1]].spec for each in row)
                for row in members.tolist()
            ]
    family = Family(
        rules=tuple(rules),
        full=0,
        learn_stops=_stacked(stops[0], halves.learn),
        test_stops=_stacked(stops[1], halves.test),
        reads=tuple(reads),
        calibrators=calibrators,
        base_rates=(),
        own_signals=_own([each.spec.name for each in operands], halves.learn),
        notes=(*notes, *_without_condition(operands, conditions)),
    )
    return _with_fixed(family, halves)


def _stacked(parts: Sequence[NDArray[np.int16]], half: TraceSet) -> NDArray[np.int16]:
    return np.concatenate([np.empty((0, half.n_questions), np.int16), *parts])


def _without_condition(
    operands: Sequence[Operand], conditions: Sequence[tuple[str, int]]
) -> list[str]:
    used = {number for _, number in conditions}
    return [
        f"left out: no quantile of {operand.text} on the first half is a threshold that can be passed"
        for number, operand in enumerate(operands)
        if number not in used
    ]


def _operands(
    halves: _Halves, settings: FamilySettings
) -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Signals to combine, and what a reader must know of those left out."""
    if settings.signals is not None:
        operands = operands_of(settings.signals, halves.learn)
        named = (each.spec.name for each in operands)
        refuse_unusable(halves.learn, named, tune_split=halves.split)
        return operands, ()
    names = [
        name for name in given_signals(halves.learn) if not _left_out(resolve(name, also=(name,)))
    ]
    flags = signal_flags(halves.learn, names, tune_split=halves.split)
    unusable = {name: [each for each in flags[name] if each.kind in UNUSABLE] for name in names}
    varied = [name for name in names if not unusable[name]]
    if not varied:
        raise UsageError(
            f"{halves.learn.origin.source} defines no signal that varies; choose --family fixed"
        )
    notes = tuple(
        f"left out: signal {name!r} {flag.message}"
        for name, found in unusable.items()
        for flag in found
        if flag.kind == "look_ahead"
    )
    return operands_of(varied, halves.learn), notes


def _left_out(spec: SignalSpec) -> bool:
    """Verdicts, which ask a model in every round, and what is another signal but for its details."""
    return VERDICTS in spec.charges or bool(spec.variant_of)


def _conditions(
    operands: Sequence[Operand], learn: RuleColumns, settings: FamilySettings
) -> list[tuple[str, int]]:
    """Each condition's text with the number of its operand."""
    found = []
    for number, operand in enumerate(operands):
        if operand.binary:
            found.append((operand.condition(), number))
            continue
        values = operand.values(learn)
        values = values[np.isfinite(values)]
        if not values.size:
            continue
        shares = np.arange(1, settings.levels + 1) / (settings.levels + 1)
        found += [
            (operand.condition(threshold), number)
            for threshold in np.unique(np.quantile(values, shares)).tolist()
            if operand.can_hold(threshold)
        ]
    return found


def _combinations(
    conditions: Sequence[tuple[str, int]], settings: FamilySettings
) -> dict[int, NDArray[np.intp]]:
    """By size, every choice of conditions over different signals, (n, size)."""
    chosen: dict[int, NDArray[np.intp]] = {}
    _check_size(conditions, settings.max_signals)
    of_signal: dict[int, list[int]] = {}
    for number, (_, operand) in enumerate(conditions):
        of_signal.setdefault(operand, []).append(number)
    for size in range(1, min(settings.max_signals, len(of_signal)) + 1):
        rows = [row for each in combinations(of_signal.values(), size) for row in product(*each)]
        chosen[size] = np.array(sorted(rows), np.intp)
    return chosen


def _check_size(conditions: Sequence[tuple[str, int]], max_signals: int) -> None:
    """Count the members before they are listed: choices of conditions over different signals."""
    choices = [1]  # by size
    for count in Counter(number for _, number in conditions).values():
        longer = [0, *(count * each for each in choices)]
        choices = [a + b for a, b in zip_longest(choices, longer, fillvalue=0)]
    total = sum(choices[1:2]) + 2 * sum(choices[2 : max_signals + 1])
    if total > _MOST_MEMBERS:
        raise UsageError(
            f"the family has {total} members, more than {_MOST_MEMBERS}; name fewer --signals, or lower "
            "--levels or --max-signals"
        )


FAMILIES: Mapping[str, Callable[[_Halves, FamilySettings], Family]] = MappingProxyType(
    {"rule": _rules, "thresholds": _thresholds, "fixed": _fixed}
)
