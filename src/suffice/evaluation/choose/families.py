"""Rules of a choice: over the record's signals, or one rule with each number of a grid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.evaluation.choose.rule_stops import (
    Operand,
    RuleStops,
    both_ways,
    grid_of,
    operands_of,
    over_groups,
    packed_conditions,
    tuning_columns,
)
from suffice.evaluation.diagnose.signal_checks import UNUSABLE, refuse_unusable, signal_flags
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.costs import CostAxis, CostBook, cost_reads, fixed_stops
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen
from suffice.policies.defaults import FIT_SPLIT, FLOORS, TEMPLATE
from suffice.policies.fitting import fit_data
from suffice.policies.rules.language import RuleColumns
from suffice.policies.rules.policy import not_before, rule_needs
from suffice.policies.thresholds import fill, open_rule
from suffice.signals.known_signals import VERDICTS, resolve
from suffice.signals.signal_table import given_signals
from suffice.stats.units import Array

_LEVELS = 9
"""Thresholds a signal, evenly spaced quantiles."""
_MOST_MEMBERS = 200_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    rules: tuple[str, ...]
    stops: RuleStops  # (n_rules, n_questions)
    reads: tuple[CostReads, ...]
    notes: tuple[str, ...] = ()


def paid_by_rules(
    book: CostBook, axis: CostAxis, stops: RuleStops, reads: Sequence[CostReads], seen: Seen | None
) -> Array:
    paid = {kind: book.known(axis, kind) for kind in set(reads)}
    if seen is not None:
        paid = {kind: seen.paid(costs) for kind, costs in paid.items()}
    rows = np.arange(stops.shape[1])
    return np.array(
        [
            paid[read][rows, at - 1].mean()
            for rules, some in stops.by_rules()
            for read, at in zip(reads[rules], some, strict=True)
        ]
    )


def rules_of_grid(fit: Measures, settings: ChoiceSettings) -> list[str]:
    """Return the rule with each number of its grid; default numbers are as short as possible."""
    rule = settings.rule or TEMPLATE
    template = not_before(rule, settings.min_rounds)
    needs = rule_needs(fill(template, 0.5))
    against = rule.partition("?")[0].rstrip(" <>=")
    name = re.split(r"\W+", against.rstrip(" )"))[-1]
    if name in needs.signals:
        refuse_unusable(fit, [name], tune_split=FIT_SPLIT)
    if settings.grid is not None:
        return [fill(template, number) for number in sorted(set(settings.grid))]
    if against.endswith(")"):
        return [fill(template, number) for number in FLOORS]
    if name not in needs.signals:
        raise UsageError(
            f"the signal that '?' is compared with is not clear in {rule!r}; give the grid (--grid)"
        )
    data = fit_data(fit, needs.signals, split=FIT_SPLIT, fits=needs.fitting)
    numbers = grid_of(data.table.signal(name), "quantiles")[1:-1]  # the ends never or always hold
    if not numbers.size:
        raise UsageError(f"signal {name!r} has too few values on tune; give the grid (--grid)")
    swept = open_rule(template, data)
    return [fill(template, number) for number in sorted(set(map(swept.shortest, numbers.tolist())))]


def build_family(
    fit: Measures,
    *,
    signals: Sequence[str] | None = None,
    max_signals: int = 2,
    min_rounds: int = 1,
    levels: int = _LEVELS,
) -> Family:
    """Return all fixed budgets, and ORs and ANDs of up to ``max_signals`` conditions.

    Thresholds are ``levels`` quantiles; calibrated values are out of fold.
    """
    operands, notes = _operands(fit, signals)
    names = tuple(dict.fromkeys(operand.spec.name for operand in operands))
    fits = any(operand.calibrated for operand in operands)
    columns = tuning_columns(fit_data(fit, names, split=FIT_SPLIT, fits=fits), operands)
    conditions = [
        (text, operand) for operand in operands for text in _conditions(operand, columns, levels)
    ]
    groups: dict[str, list[int]] = {}
    for number, (_, operand) in enumerate(conditions):
        groups.setdefault(operand.text, []).append(number)
    formulas = tuple(islice(over_groups([*groups.values()], max_signals), _MOST_MEMBERS + 1))
    if len(formulas) > _MOST_MEMBERS:
        raise UsageError(
            f"the family has over {_MOST_MEMBERS} rules; name fewer --signals, or lower --max-signals"
        )
    texts = [text for text, _ in conditions]
    packed = packed_conditions(texts, operands, columns).silent_before(min_rounds)
    budget = fit.traces.n_rounds
    fixed = RuleStops.of_array(fixed_stops(fit.ends, budget).T[min_rounds - 1 :])
    used = [operand for _, operand in conditions]
    idle = (operand for operand in operands if operand not in used)
    return Family(
        rules=(
            *(not_before(formula.text(texts), min_rounds) for formula in formulas),
            *(f"round >= {k}" for k in range(min_rounds, budget + 1)),
        ),
        stops=RuleStops.joined([RuleStops.of_formulas(packed, formulas, fit.ends), fixed]),
        reads=(
            *(
                cost_reads(
                    conditions[number][1].spec for clause in formula.clauses for number in clause
                )
                for formula in formulas
            ),
            *(CostReads() for _ in range(min_rounds, budget + 1)),
        ),
        notes=(
            *notes,
            *(
                f"left out: {operand.text} hardly varies on the tuning questions, so no threshold is "
                "possible"
                for operand in idle
            ),
        ),
    )


def _operands(
    fit: Measures, signals: Sequence[str] | None
) -> tuple[tuple[Operand, ...], tuple[str, ...]]:
    """Signals to combine, and what a reader must know of those left out."""
    record = fit.traces
    if signals is not None:
        operands = operands_of(signals, record)
        named = (operand.spec.name for operand in operands)
        refuse_unusable(fit, named, tune_split=FIT_SPLIT)
        return both_ways(operands), ()
    specs = {name: resolve(name, also=(name,)) for name in given_signals(record)}
    # verdicts ask a model in every round, and variants are other signals but for details
    names = [n for n, spec in specs.items() if VERDICTS not in spec.charges and not spec.variant_of]
    flags = signal_flags(fit, names, tune_split=FIT_SPLIT)
    unusable = {name: [flag for flag in flags[name] if flag.kind in UNUSABLE] for name in names}
    varied = [name for name in names if not unusable[name]]
    if not varied:
        raise UsageError(
            f"{record.origin.source} defines no signal that varies; type --family fixed"
        )
    notes = tuple(
        f"left out: signal {name!r} {flag.message}"
        for name, against in unusable.items()
        for flag in against
        if flag.kind == "look_ahead"
    )
    return both_ways(operands_of(varied, record)), notes


def _conditions(operand: Operand, columns: RuleColumns, levels: int) -> Iterator[str]:
    if operand.binary:
        yield operand.condition()
        return
    values = operand.values(columns)
    values = values[np.isfinite(values)]
    if not values.size:
        return
    shares = np.arange(1, levels + 1) / (levels + 1)
    quantiles = np.unique(np.quantile(values, shares)).tolist()
    thresholds = {operand.shortest(one, columns) for one in quantiles if operand.can_hold(one)}
    yield from map(operand.condition, sorted(thresholds))
