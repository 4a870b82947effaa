"""Signals that no rule should rest on: without a value, without variation, or knowing later rounds.

What a record can show about look-ahead is limited, and nothing beyond it is claimed:

- A recorded value of a signal that can be computed is computed again from rounds 1..t. A difference
  is a fact; whether later rounds or another definition caused it, the record does not say.
- A value computed elsewhere (the user's own signal, or one that asks a model) is compared with what
  *later* rounds give: a computed signal's next or last value, or its maximum, minimum or mean over
  all rounds. Equality in every round, many of which differ from what rounds 1..t give, is no
  coincidence. Any other use of later rounds leaves no trace that could be found here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.signals.registry import SIGNALS, SignalSpec
from suffice.signals.table import declared, lack
from suffice.trace.rounds.table import TraceSet

FlagKind = Literal[
    "undefined",
    "constant",
    "constant_over_rounds",
    "look_ahead",
    "look_ahead_unchecked",
    "equals_exact_match",
]
UNUSABLE: frozenset[FlagKind] = frozenset({"undefined", "constant", "look_ahead"})

_TOLERANCE = 1e-5  # inputs are float32, and a z-score subtracts large ones
_ENOUGH = 10  # rounds that tell later rounds from earlier ones
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """What was found, and in words what it means and what to do."""

    kind: FlagKind
    message: str


def signal_flags(
    traces: TraceSet | Measures,
    names: Iterable[str],
    *,
    tune_split: str = FIT_SPLIT,
) -> dict[str, tuple[Flag, ...]]:
    """What speaks against each of the named signals."""
    names = tuple(dict.fromkeys(names))
    measures = Measures.of(traces)
    record, table = measures.traces, measures.signals(names)
    chosen, where = record.in_split(tune_split), f"split {tune_split}"
    if not chosen.any():
        chosen, where = np.ones(record.n_questions, bool), "the whole record"
    recorded = [name for name in names if name in record.signal_names]
    again = _computed(measures, [name for name in recorded if name in SIGNALS])
    elsewhere = [name for name in recorded if name not in again]
    others = [name for name in SIGNALS if name not in record.signal_names]
    honest = {**_computed(measures, others), **again} if elsewhere else {}
    flags_of: dict[str, tuple[Flag, ...]] = {}
    for name in names:
        values = table.signal(name)
        flags = [*_variation(values, chosen, where)]
        if name in again:
            flags += _differs(name, values, again[name], record)
        elif name in elsewhere:
            flags += _from_elsewhere(values, honest, record, name)
            flags += _equals_gold(values, measures.score("em"))
        flags_of[name] = tuple(flags)
    return flags_of


def refuse_unusable(
    traces: TraceSet | Measures, names: Iterable[str], *, tune_split: str = FIT_SPLIT
) -> None:
    """Refuse signals that are undefined or constant on the tune split, or know later rounds."""
    flags = signal_flags(traces, names, tune_split=tune_split)
    told = [
        f"signal {name!r} {flag.message}"
        for name, against in flags.items()
        for flag in against
        if flag.kind in UNUSABLE
    ]
    if told:
        raise UsageError("; ".join(told))


def _variation(values: Array, chosen: NDArray[np.bool_], where: str) -> Iterator[Flag]:
    defined = values[chosen]
    defined = defined[~np.isnan(defined)]
    if len(defined) == 0:
        yield Flag(
            kind="undefined",
            message=f"is undefined in every round of {where}: no rule on it can fire; leave it out",
        )
        return
    if (defined == defined[0]).all():
        yield Flag(
            kind="constant",
            message=f"is {defined[0]:g} in every round of {where} where it is defined: "
            "no threshold on it can be chosen; leave it out",
        )
        return
    several = (~np.isnan(values)).sum(axis=1) > 1
    changing = values[several]
    if (
        len(changing)
        and (np.fmax.reduce(changing, axis=1) == np.fmin.reduce(changing, axis=1)).all()
    ):
        yield Flag(
            kind="constant_over_rounds",
            message=f"never changes within a question ({int(several.sum())} questions with several "
            "values): a rule on it alone fires at its first opportunity or never",
        )


def _computed(measures: Measures, names: Sequence[str]) -> dict[str, Array]:
    """Those that the record allows to compute, from rounds 1..t and never read from the map."""
    specs = [declared(name, measures.traces) for name in names if not SIGNALS[name].recorded_only]
    specs = [
        replace(spec, own_settings=True) if spec.name in measures.traces.signal_names else spec
        for spec in specs
    ]
    computable = [spec for spec in specs if lack(spec, measures.traces) is None]
    return dict(measures.signals(computable).values)


def _equal(first: Array, second: Array) -> NDArray[np.bool_]:
    """Equal up to float32; false where either is undefined."""
    size = np.fmax(1.0, np.fmax(np.abs(first), np.abs(second)))
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        close = np.abs(first - second) <= _TOLERANCE * size
    return np.asarray(close | (first == second))


def _differs(name: str, recorded: Array, computed: Array, traces: TraceSet) -> Iterator[Flag]:
    both = ~np.isnan(recorded) & ~np.isnan(computed)
    differs = both & ~_equal(recorded, computed)
    if not differs.any():
        return
    question, number = (int(places[0]) for places in np.nonzero(differs))
    later = sum(
        (differs[:, t] & _equal(recorded[:, t : t + 1], computed[:, t + 1 :]).any(axis=1)).sum()
        for t in range(recorded.shape[1] - 1)
    )
    yield Flag(
        kind="look_ahead",
        message=f"was recorded with values that rounds 1..t do not give in {int(differs.sum())} of "
        f"{int(both.sum())} rounds (first: question {traces.question_ids[question]!r}, round "
        f"{number + 1}, recorded {recorded[question, number]:.6g}, computed "
        f"{computed[question, number]:.6g}); {int(later)} of them equal its value of a later round. It "
        "looks ahead or means something else: leave it out of the signals map, so that it is computed "
        f"from the record, or record it under a name other than {name}",
    )


def _running_mean(values: Array) -> Array:
    defined = ~np.isnan(values)
    counts = np.cumsum(defined, axis=1)
    sums = np.cumsum(np.where(defined, values, 0.0), axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _last_defined(values: Array) -> Array:
    """The newest defined value of rounds 1..t."""
    newest = values.copy()
    for t in range(1, values.shape[1]):
        newest[:, t] = np.where(np.isnan(values[:, t]), newest[:, t - 1], values[:, t])
    return newest


_OVER_ALL_ROUNDS: Mapping[str, Callable[[Array], Array]] = {
    "last value": _last_defined,
    "maximum over all rounds": lambda values: np.fmax.accumulate(values, axis=1),
    "minimum over all rounds": lambda values: np.fmin.accumulate(values, axis=1),
    "mean over all rounds": _running_mean,
}


def _later_statistics(values: Array) -> Iterator[tuple[str, Array, Array]]:
    """(name, what later rounds give, what rounds 1..t give), each (n_questions, n_rounds)."""
    after = np.pad(values[:, 1:], ((0, 0), (0, 1)), constant_values=np.nan)
    yield "next value", after, values
    for name, running in _OVER_ALL_ROUNDS.items():
        so_far = running(values)
        yield name, np.broadcast_to(so_far[:, -1:], values.shape), so_far


def _from_elsewhere(
    values: Array, honest: Mapping[str, Array], traces: TraceSet, name: str
) -> Iterator[Flag]:
    for other, computed in honest.items():
        for statistic, later, so_far in _later_statistics(computed):
            both = traces.exists & ~np.isnan(values) & ~np.isnan(later)
            telling = both & ~_equal(later, so_far)
            count = int(telling.sum())
            if count < _ENOUGH or (values[telling] == values[telling][0]).all():
                continue  # a constant equals too much by chance
            if _equal(values, later)[both].all():
                yield Flag(
                    kind="look_ahead",
                    message=f"equals the {statistic} of {other} in all {int(both.sum())} rounds that "
                    f"can be compared, {count} of which rounds 1..t do not give: it knows later "
                    "rounds and cannot run live; record what is known after round t",
                )
                return
    spec: SignalSpec | None = SIGNALS.get(name)
    why = (
        "the record does not hold what it is computed from"
        if spec is not None and not spec.recorded_only
        else "it was computed elsewhere"
    )
    yield Flag(
        kind="look_ahead_unchecked",
        message=f"is read from the record ({why}): whether it uses rounds 1..t only cannot be checked",
    )


def _equals_gold(values: Array, em: Array) -> Iterator[Flag]:
    both = ~np.isnan(values) & ~np.isnan(em)
    right = int((em[both] == 1.0).sum())
    wrong = int(both.sum()) - right
    if min(right, wrong) >= _ENOUGH and (values[both] == em[both]).all():
        yield Flag(
            kind="equals_exact_match",
            message=f"equals exact match in all {int(both.sum())} labelled rounds: a signal that reads "
            "gold answers cannot run live",
        )
