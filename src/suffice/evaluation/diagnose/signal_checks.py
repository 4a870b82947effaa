"""Separation of right and wrong answers by a signal, and warnings about signals."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError, counted
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import declared, lack
from suffice.stats.auroc import ResampledAuroc, auroc
from suffice.stats.intervals import from_draws, resampled_counts, undefined
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.trace_set import TraceSet

Figures = tuple[float, float]
"""Signed d and AUROC, NaN where undefined."""
_NO_SPREAD = 1e-12  # a variance below this share of all rows' variance is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labeled rounds with a defined signal, each array (n_rows,)."""

    values: Array
    right: Mask
    questions: NDArray[np.int64]
    sign: float = 1.0


class ResampledD:
    """Signed Cohen's d of the same rows under many resamples of their questions."""

    def __init__(self, rows: Rows, n_questions: int) -> None:
        values = rows.values
        usable = len(values) > 0 and bool(np.isfinite(values).all())
        # d does not change with shift and scale, and squares of centred values lose no digits
        spread = float(values.std()) if usable else 0.0
        scaled = (values - values.mean()) / spread if spread > 0 else np.zeros(len(values))
        moments = [
            np.bincount(rows.questions[of], weights=column[of], minlength=n_questions)
            for of in (rows.right, ~rows.right)
            for column in (np.ones(len(values)), scaled, scaled * scaled)
        ]
        self._sums = np.stack(moments) if usable else None

    def __call__(self, counts: Array) -> Array:
        """Return signed d of every resample, (n_draws,); ``counts`` (n_questions, n_draws)."""
        if self._sums is None:
            return np.full(counts.shape[1], np.nan)
        sums = self._sums @ counts
        mean_right, sd_right = _mean_and_sd(*sums[:3])
        mean_wrong, sd_wrong = _mean_and_sd(*sums[3:])
        spread = (sd_right + sd_wrong) / 2
        varies = spread > 0
        d = (mean_right - mean_wrong) / np.where(varies, spread, 1.0)
        return np.asarray(np.where(varies, d, np.nan))


def _mean_and_sd(count: Array, total: Array, squares: Array) -> tuple[Array, Array]:
    """Return means and sample standard deviations from sums, NaN below two rows."""
    enough = count >= 2
    safe = np.where(enough, count, 2.0)
    mean = total / safe
    variance = (squares - total * mean) / (safe - 1)
    variance = np.where(variance > _NO_SPREAD, variance, 0.0)
    return mean, np.where(enough, np.sqrt(variance), np.nan)


def separations(
    parts: Sequence[Rows], n_questions: int, *, resamples: int, seed: int
) -> list[tuple[dict[str, Any], Array]]:
    """Return the separation of right and wrong answers in every part, and the draws of its figures."""
    figures = [figures_of(rows) for rows in parts]
    drawn = np.full((2, len(parts), resamples), np.nan)
    if n_questions:
        drawn = _from_resamples(parts, n_questions, resamples=resamples, seed=seed)
    return [
        (_separation(rows, own, of_rows), own)
        for rows, own, of_rows in zip(parts, drawn.transpose(1, 0, 2), figures, strict=True)
    ]


def figures_of(rows: Rows) -> Figures:
    n_questions = int(rows.questions.max(initial=0)) + 1
    resampled, once = ResampledD(rows, n_questions), np.ones((n_questions, 1))
    return float(resampled(once)[0]), auroc(rows.sign * rows.values, rows.right)


def _from_resamples(parts: Sequence[Rows], n_questions: int, *, resamples: int, seed: int) -> Array:
    """Return signed d and AUROC of every part and resample, (2, n_parts, resamples)."""
    distances = [ResampledD(rows, n_questions) for rows in parts]
    areas = [
        ResampledAuroc(rows.sign * rows.values, rows.right, rows.questions, n_questions)
        for rows in parts
    ]
    drawn = np.empty((2, len(parts), resamples))
    start = 0
    for block in resampled_counts(n_questions, resamples=resamples, seed=seed):
        counts = block.T
        stop = start + len(block)
        for number, (distance, area) in enumerate(zip(distances, areas, strict=True)):
            drawn[0, number, start:stop] = distance(counts)
            drawn[1, number, start:stop] = area(counts)
        start = stop
    return drawn


def _separation(rows: Rows, draws: Array, figures: Figures) -> dict[str, Any]:
    why = _why_undefined(rows)
    values = rows.values
    if not np.isfinite(values).all():
        why_no_d = "the signal is infinite in some of these rounds"
    elif min(int(rows.right.sum()), int((~rows.right).sum())) < 2:
        why_no_d = "a class with fewer than two rounds has no standard deviation"
    else:
        why_no_d = "the signal varies neither among right nor among wrong answers"
    signed, area = (
        undefined(why or reason) if why or math.isnan(value) else from_draws(value, drawn)
        for value, drawn, reason in zip(figures, draws, (why_no_d, ""), strict=True)
    )
    d = signed if signed.estimate is None else from_draws(abs(figures[0]), np.abs(draws[0]))
    classes = {"right": values[rows.right], "wrong": values[~rows.right]}
    spread: dict[str, float | None] = {}
    for name, of in classes.items():
        finite = bool(np.isfinite(of).all())
        spread[f"mean_{name}"] = float(of.mean()) if len(of) and finite else None
        spread[f"sd_{name}"] = float(of.std(ddof=1)) if len(of) > 1 and finite else None
    return {
        **{name: len(of) for name, of in classes.items()},
        **spread,
        "d": d,
        "d_signed": signed,
        "auroc": area,
    }


def _why_undefined(rows: Rows) -> str | None:
    if len(rows.values) == 0:
        return "defined in no labeled round"
    if not rows.right.any():
        return "no right answer among these rounds"
    if rows.right.all():
        return "no wrong answer among these rounds"
    if (rows.values == rows.values[0]).all():
        return f"the signal is {rows.values[0]:g} in all of these rounds"
    return None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    kind: FlagKind
    message: str


def signal_flags(
    traces: TraceSet | Measures, names: Iterable[str], *, tune_split: str = FIT_SPLIT
) -> dict[str, tuple[Flag, ...]]:
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
    """Refuse signals that are undefined or constant on the tune split, or that look ahead."""
    flags = signal_flags(traces, names, tune_split=tune_split)
    told = [
        f"signal {name!r} {flag.message}"
        for name, against in flags.items()
        for flag in against
        if flag.kind in UNUSABLE
    ]
    if told:
        raise UsageError("; ".join(told))


def _variation(values: Array, chosen: Mask, where: str) -> Iterator[Flag]:
    defined = values[chosen]
    defined = defined[~np.isnan(defined)]
    if len(defined) == 0:
        yield Flag(
            kind="undefined",
            message=f"is undefined in every round of {where}, so no rule on it can fire; leave it out",
        )
        return
    if (defined == defined[0]).all():
        yield Flag(
            kind="constant",
            message=f"is {defined[0]:g} in every round of {where} where it is defined, so it cannot have a "
            "threshold; leave it out",
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
            message=f"never changes within a question ({counted(int(several.sum()), 'question')} with "
            "several values), so a rule on it alone fires at once or never",
        )


def _computed(measures: Measures, names: Sequence[str]) -> dict[str, Array]:
    """Compute the signals that the record allows from rounds 1..t, never from recorded values."""
    specs = [declared(name, measures.traces) for name in names if not SIGNALS[name].recorded_only]
    specs = [
        replace(spec, own_settings=True) if spec.name in measures.traces.signal_names else spec
        for spec in specs
    ]
    computable = [spec for spec in specs if lack(spec, measures.traces) is None]
    return dict(measures.signals(computable).values)


def _equal(first: Array, second: Array) -> Mask:
    """Return where values are equal up to float32; false where either is undefined."""
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
        message=f"has recorded values that rounds 1..t do not give, in {int(differs.sum())} of "
        f"{counted(int(both.sum()), 'round')} (first: question {traces.question_ids[question]!r}, round "
        f"{number + 1}, recorded {recorded[question, number]:.6g}, computed "
        f"{computed[question, number]:.6g}). {int(later)} of them equal its value of a later round. "
        "The signal looks ahead or means something else: leave it out of the signals map, so that it "
        f"is computed, or give it a name other than {name}",
    )


def _running_mean(values: Array) -> Array:
    defined = ~np.isnan(values)
    counts = np.cumsum(defined, axis=1)
    sums = np.cumsum(np.where(defined, values, 0.0), axis=1)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _last_defined(values: Array) -> Array:
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
                    message=f"equals the {statistic} of {other} in all {int(both.sum())} comparable rounds, "
                    f"and in {count} of them rounds 1..t do not give it. The signal looks ahead and "
                    "cannot run live; record what is known after round t",
                )
                return
    spec = SIGNALS.get(name)
    why = (
        "the record does not hold what it is computed from"
        if spec is not None and not spec.recorded_only
        else "it was computed elsewhere"
    )
    yield Flag(
        kind="look_ahead_unchecked",
        message=f"is read from the record ({why}), so look-ahead cannot be tested",
    )


def _equals_gold(values: Array, em: Array) -> Iterator[Flag]:
    both = ~np.isnan(values) & ~np.isnan(em)
    right = int((em[both] == 1.0).sum())
    wrong = int(both.sum()) - right
    if min(right, wrong) >= _ENOUGH and (values[both] == em[both]).all():
        yield Flag(
            kind="equals_exact_match",
            message=f"equals exact match in all {int(both.sum())} labeled rounds; a signal that reads gold "
            "answers cannot run live",
        )
