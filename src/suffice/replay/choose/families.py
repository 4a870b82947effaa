"""Families of policies that certified choice picks from, fitted on one half and run on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.errors import UsageError, unknown_name
from suffice.measures.costs import CostAxis, CostBook, cost_reads, fixed_stops, mean_costs
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.options import Option, read_grid
from suffice.policies.defaults import TEMPLATE, CalibratorKind
from suffice.policies.fitting import FitData, fit_data, fitted_rule
from suffice.policies.rules.language import RuleColumns
from suffice.policies.rules.policy import RulePolicy, not_before, rule_needs
from suffice.policies.thresholds import fill, sweep_rule
from suffice.replay.choose.rule_stops import (
    Operand,
    PackedConditions,
    RuleStops,
    both_ways,
    calibrators_of,
    condition_fires,
    operands_of,
    over_groups,
    pack,
    scoring_columns,
    tuning_columns,
)
from suffice.replay.diagnose.signal_checks import UNUSABLE, refuse_unusable, signal_flags
from suffice.replay.settings import MinRounds
from suffice.signals.registry import VERDICTS, SignalSpec, own_among, resolve
from suffice.signals.table import first_stops, given_signals
from suffice.stats.maps import PerRoundCalibrator
from suffice.trace.rounds.table import TraceSet

KINDS = ("rule", "thresholds", "fixed")
_FLOORS = tuple(round(0.05 * step, 2) for step in range(20))
_MOST_MEMBERS = 200_000
_CELLS = 1 << 25  # truth values of conditions held at a time


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySettings:
    """What is in the family; what each field means stands with it."""

    family: Annotated[
        str,
        Option(
            choices=KINDS,
            help="rule: OR and AND rules over the trace's signals and, unless --signals are named, paths "
            "that prove on all questions; thresholds: one rule over a grid; fixed: every number of rounds "
            "(default: rule); each includes the full budget",
        ),
    ] = "rule"
    rule: Annotated[
        str,
        Option(
            help="with --family thresholds: a rule with one '?'",
            metavar="RULE",
            goes_with=("family", "thresholds"),
        ),
    ] = TEMPLATE
    thresholds: Annotated[
        tuple[float, ...] | None,
        Option(
            help="with --family thresholds (default: 0:0.95:0.05)",
            metavar="LOW:HIGH:STEP|A,B,...",
            name="grid",
            parse=read_grid,
            goes_with=("family", "thresholds"),
        ),
    ] = None
    signals: Annotated[
        tuple[str, ...] | None,
        Option(
            help="with --family rule (default: all that the trace defines without asking a model)",
            metavar="A,B,...",
            goes_with=("family", "rule"),
        ),
    ] = None
    levels: Annotated[
        int,
        Option(
            help="with --family rule: thresholds a signal, evenly spaced quantiles on the first half",
            metavar="N",
            at_least=1,
            goes_with=("family", "rule"),
        ),
    ] = 9
    max_signals: Annotated[
        int,
        Option(
            help="with --family rule: signals a rule combines at most",
            metavar="N",
            at_least=1,
            goes_with=("family", "rule"),
        ),
    ] = 2
    min_rounds: MinRounds = 1

    @property
    def with_paths(self) -> bool:
        """Whether paths are tested beside the family."""
        return self.family == "rule" and self.signals is None

    def __post_init__(self) -> None:
        if self.family not in KINDS:
            raise UsageError(unknown_name("family", self.family, KINDS))
        if self.min_rounds < 1:
            raise UsageError(f"min_rounds must be at least 1, found {self.min_rounds}")
        if self.levels < 1 or self.max_signals < 1:
            raise UsageError(
                f"levels and max_signals must be at least 1, found {self.levels} and {self.max_signals}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Members on both halves."""

    rules: tuple[str, ...]
    full: int
    learn_stops: RuleStops  # (n_members, n_questions)
    test_stops: RuleStops
    reads: tuple[CostReads, ...]
    calibrators: Mapping[str, PerRoundCalibrator]
    base_rates: tuple[float, ...]
    own_signals: tuple[str, ...]
    notes: tuple[str, ...] = ()


def paid_by_rules(
    book: CostBook, axis: CostAxis, stops: RuleStops, reads: Sequence[CostReads], seen: Seen | None
) -> NDArray[np.float64]:
    """What members that stop there and pay for ``reads`` cost a question, (n_members,)."""
    weighted = None if seen is None else seen.paid
    return np.concatenate(
        [
            mean_costs(book, axis, some, reads[rules], weighted=weighted)
            for rules, some in stops.by_rules()
        ]
    )


def build_family(
    learn: TraceSet | Measures, test: TraceSet | Measures, split: str, settings: FamilySettings
) -> Family:
    """Fit on ``learn``, run every member on both halves (calibrated values of ``learn`` out of fold)."""
    halves = Measures.of(learn), Measures.of(test)
    budget = max(part.traces.n_rounds for part in halves)
    if settings.min_rounds > budget:
        raise UsageError(
            f"min_rounds is {settings.min_rounds} and the full budget of {halves[0].traces.origin.source} "
            f"{budget} rounds; at most {budget} can be asked for"
        )
    fixed = _fixed(halves, budget, settings)
    if settings.family == "fixed":
        return fixed
    build = _rules if settings.family == "rule" else _thresholds
    family = build(*halves, split, settings)
    return replace(
        family,
        rules=(*family.rules, *fixed.rules),
        full=len(family.rules) + fixed.full,
        learn_stops=RuleStops.joined([family.learn_stops, fixed.learn_stops]),
        test_stops=RuleStops.joined([family.test_stops, fixed.test_stops]),
        reads=(*family.reads, *fixed.reads),
    )


def _fixed(halves: Sequence[Measures], budget: int, settings: FamilySettings) -> Family:
    first = settings.min_rounds
    rules = tuple(f"round >= {k}" for k in range(first, budget + 1))
    learn_stops, test_stops = (
        RuleStops.of_array(fixed_stops(part.ends, budget).T[first - 1 :]) for part in halves
    )
    return Family(
        rules=rules,
        full=budget - first,
        learn_stops=learn_stops,
        test_stops=test_stops,
        reads=tuple(CostReads() for _ in rules),
        calibrators={},
        base_rates=(),
        own_signals=(),
    )


# --- thresholds: one rule over a grid ------------------------------------------------------------
def policies_at(
    template: str,
    thresholds: Sequence[float],
    data: FitData,
    held_out: Measures,
    calibrator: CalibratorKind = "isotonic",
) -> tuple[list[RulePolicy], list[NDArray[np.int16]]]:
    """The rule with each of these numbers, its maps fitted on ``data``, and its stops on other questions."""
    first = fill(template, thresholds[0])
    own = own_among(rule_needs(first).signals, held_out.traces.signal_names)
    fitted = fitted_rule(first, data, own_signals=own, calibrator=calibrator)
    policies = [replace(fitted, rule=fill(template, threshold)) for threshold in thresholds]
    table, ends = held_out.signals(fitted.specs), held_out.ends
    return policies, [np.minimum(first_stops(policy, table), ends) for policy in policies]


def _thresholds(learn: Measures, test: Measures, split: str, settings: FamilySettings) -> Family:
    grid = _FLOORS if settings.thresholds is None else settings.thresholds
    grid = tuple(sorted(set(grid)))
    if not grid:
        raise UsageError("the grid holds no threshold")
    template = not_before(settings.rule, settings.min_rounds)
    needs = rule_needs(fill(template, grid[0]))
    data = fit_data(learn, needs.signals, split=split, fits=needs.fitting)
    swept = sweep_rule(template, data, grid, ends=learn.ends)
    policies, stops = policies_at(template, grid, data, test)
    return Family(
        rules=tuple(policy.rule for policy in policies),
        full=0,
        learn_stops=RuleStops.of_array(np.stack([score.stops for score in swept])),
        test_stops=RuleStops.of_array(np.stack(stops)),
        reads=tuple(cost_reads(policy.specs) for policy in policies),
        calibrators=policies[0].calibrators,
        base_rates=policies[0].base_rates,
        own_signals=policies[0].own_signals,
    )


# --- rule: OR and AND over the trace's signals ---------------------------------------------------
def _rules(learn: Measures, test: Measures, split: str, settings: FamilySettings) -> Family:
    operands, notes = _operands(learn, split, settings)
    names = tuple(dict.fromkeys(operand.spec.name for operand in operands))
    fits = any(operand.calibrated for operand in operands)
    data = fit_data(learn, names, split=split, fits=fits)
    calibrators = calibrators_of(data, operands)
    on_learn = tuning_columns(data, operands)
    on_test = scoring_columns(test.signals(names), calibrators)
    conditions = [
        (text, operand) for operand in operands for text in _conditions(operand, on_learn, settings)
    ]
    groups: dict[str, list[int]] = {}
    for number, (_, operand) in enumerate(conditions):
        groups.setdefault(operand.text, []).append(number)
    _check_size([*groups.values()], settings.max_signals)
    formulas = tuple(over_groups([*groups.values()], settings.max_signals))
    texts = [text for text, _ in conditions]
    learn_stops, test_stops = (
        RuleStops.of_formulas(
            _packed(texts, operands, columns).silent_before(settings.min_rounds),
            formulas,
            half.ends,
        )
        for columns, half in ((on_learn, learn), (on_test, test))
    )
    used = [operand for _, operand in conditions]
    return Family(
        rules=tuple(not_before(formula.text(texts), settings.min_rounds) for formula in formulas),
        full=0,
        learn_stops=learn_stops,
        test_stops=test_stops,
        reads=tuple(
            cost_reads(
                conditions[number][1].spec for clause in formula.clauses for number in clause
            )
            for formula in formulas
        ),
        calibrators=calibrators,
        base_rates=(),
        own_signals=own_among(names, learn.traces.signal_names),
        notes=(
            *notes,
            *(
                f"left out: no quantile of {operand.text} on the first half is a threshold that can be passed"
                for operand in operands
                if operand not in used
            ),
        ),
    )


def _packed(
    texts: Sequence[str], operands: Sequence[Operand], columns: RuleColumns
) -> PackedConditions:
    """The conditions bit by bit; few enough at a time are held otherwise."""
    step = max(1, _CELLS // max(columns.shape[0] * columns.shape[1], 1))
    packed = [
        pack(condition_fires(texts[start : start + step], operands, columns))
        for start in range(0, max(len(texts), 1), step)
    ]
    words = np.concatenate([part.words for part in packed])
    return PackedConditions(words, packed[0].n_questions, packed[0].n_rounds)


def _operands(
    learn: Measures, split: str, settings: FamilySettings
) -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Signals to combine, and what a reader must know of those left out."""
    record = learn.traces
    if settings.signals is not None:
        operands = operands_of(settings.signals, record)
        named = (operand.spec.name for operand in operands)
        refuse_unusable(learn, named, tune_split=split)
        return both_ways(operands), ()
    names = [name for name in given_signals(record) if not _left_out(resolve(name, also=(name,)))]
    flags = signal_flags(learn, names, tune_split=split)
    unusable = {name: [flag for flag in flags[name] if flag.kind in UNUSABLE] for name in names}
    varied = [name for name in names if not unusable[name]]
    if not varied:
        raise UsageError(
            f"{record.origin.source} defines no signal that varies; choose --family fixed"
        )
    notes = tuple(
        f"left out: signal {name!r} {flag.message}"
        for name, against in unusable.items()
        for flag in against
        if flag.kind == "look_ahead"
    )
    return both_ways(operands_of(varied, record)), notes


def _left_out(spec: SignalSpec) -> bool:
    """Verdicts, which ask a model in every round, and what is another signal but for its details."""
    return VERDICTS in spec.charges or bool(spec.variant_of)


def _conditions(operand: Operand, learn: RuleColumns, settings: FamilySettings) -> Iterator[str]:
    if operand.binary:
        yield operand.condition()
        return
    values = operand.values(learn)
    values = values[np.isfinite(values)]
    if not values.size:
        return
    shares = np.arange(1, settings.levels + 1) / (settings.levels + 1)
    quantiles = np.unique(np.quantile(values, shares)).tolist()
    thresholds = {operand.shortest(one, learn) for one in quantiles if operand.can_hold(one)}
    yield from map(operand.condition, sorted(thresholds))


def _check_size(groups: Sequence[Sequence[int]], max_signals: int) -> None:
    """Count the members before they are listed: choices of conditions over different signals."""
    choices = [1]  # by size
    for count in map(len, groups):
        longer = [0, *(count * shorter for shorter in choices)]
        choices = [a + b for a, b in zip_longest(choices, longer, fillvalue=0)]
    total = sum(choices[1:2]) + 2 * sum(choices[2 : max_signals + 1])
    if total > _MOST_MEMBERS:
        raise UsageError(
            f"the family has {total} members, more than {_MOST_MEMBERS}; name fewer --signals, or lower "
            "--levels or --max-signals"
        )
