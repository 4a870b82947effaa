"""Does a signal tell when going on pays? Correlations with what the rounds to come still bring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from suffice.errors import counted
from suffice.measures.measures import Measures
from suffice.results.table import Column, Described, Table, estimate_column, table_of
from suffice.stats.intervals import Estimate, undefined
from suffice.stats.units import Array, Mask, Units

_FOLDS, _RIDGE, _BLOCKS, _BLOCK = 5, 0.1, 100, 20  # 2,000 draws of signs, 20 at a time
_POWER = 0.8416  # standard errors above the critical value: exceeded with 80% power
_ALIVE = 2.5  # standard errors from which on a curve is fitted: dead ones would drown it
_FEW = 20  # questions below which nothing is said
TOGETHER, CURVES = _PREDICTED = ("all signals together", "all signals, as curves")  # one-sided


def gains(measures: Measures, names: Sequence[str], *, seed: int) -> dict[str, Any] | None:
    """Return the correlation of each signal with the gain of going on; ``None`` if that is not known.

    The gain of a round is the score at the question's last round less the score here, by the usual metric of
    the record. Signal and gain are centered by round, since both change with the round alone. ``TOGETHER`` is
    a ridge regression over all signals, ``CURVES`` one over polynomials of their ranks (a rise, a U, a wave).
    Each fifth of the questions is predicted from the fifths before it. ``critical`` is what the strongest row
    exceeds in 5% of draws that change the sign of every question's products. ``smallest`` is the correlation
    that so many questions show with 80% power.
    """
    if measures.seen is not None:  # a question that was cut has no last round
        return None
    metric, last = measures.usual(), measures.traces.last_rounds
    scores = measures.by(metric).scores().compared
    gain = scores[np.arange(len(last)), last - 1][:, None] - scores
    open_ = np.isfinite(gain) & (np.arange(gain.shape[1])[None, :] < last[:, None] - 1)
    questions = int(open_.any(axis=1).sum())
    if questions < _FEW:
        return None
    table, units = measures.signals(names), measures.units
    told = {name: table.signal(name)[open_] for name in names}
    varied = [name for name, of in told.items() if len(np.unique(of[np.isfinite(of)])) > 1]
    values = {name: table.signal(name) for name in varied}
    curves = [curve for one in values.values() for curve in _curves(one, open_)]
    values[TOGETHER] = _predicted([*values.values()], gain, open_, units, seed)
    values[CURVES] = _predicted(curves, gain, open_, units, seed, alive=_ALIVE)
    sums = np.stack([_sums(one, gain, open_) for one in values.values()], axis=2)
    products = np.zeros((int(units.max()) + 1, len(values)))
    np.add.at(products, units, sums[:, 0])
    spread, scale = (products**2).sum(axis=0) ** 0.5, sums[:, 1:].sum(axis=0).prod(axis=0) ** 0.5
    known = spread > 0
    draw, strength = np.random.default_rng(seed), products[:, known] / spread[known]
    signs = (draw.integers(0, 2, (_BLOCK, len(products))) * 2.0 - 1.0 for _ in range(_BLOCKS))
    flipped = np.concatenate([of @ strength for of in signs])
    one_sided = np.array([name in _PREDICTED for name in values])[known]
    largest = np.where(one_sided, flipped, np.abs(flipped)).max(axis=1, initial=0.0)
    critical = float(np.sort(largest)[math.ceil(0.95 * (len(largest) + 1)) - 1])
    figures = map(_correlation, products.sum(axis=0), spread, scale)
    rows = dict(zip(values, figures, strict=True))
    errors = [row["error"] for row in rows.values() if row["error"] is not None]
    return {
        "metric": metric,
        "questions": questions,
        "rounds": int(open_.sum()),
        "mean_gain": float(gain[open_].mean()),
        "critical": critical,
        "smallest": (critical + _POWER) * float(np.median(errors)) if errors else None,
        "signals": rows,
    }


def _centered(values: Array, among: Mask) -> Array:
    kept = np.where(among, values, 0.0)
    means = kept.sum(axis=0) / np.maximum(among.sum(axis=0), 1)
    return np.where(among, kept - means, 0.0)


def _sums(values: Array, gain: Array, open_: Mask) -> Array:
    """Return products and squares of both, summed over the rounds of each question, (n_questions, 3)."""
    among = open_ & np.isfinite(values)
    x, y = _centered(values, among), _centered(gain, among)
    return np.stack([(x * y).sum(axis=1), (x * x).sum(axis=1), (y * y).sum(axis=1)], axis=1)


def _correlation(product: float, spread: float, scale: float) -> dict[str, Any]:
    """Return a correlation with its error, of products of units that may be of either sign."""
    if spread == 0.0:
        return {"r": undefined("one of the two never changes"), "z": None, "error": None}
    r, error = float(product / scale), float(spread / scale)
    low, high = max(r - 1.96 * error, -1.0), min(r + 1.96 * error, 1.0)
    return {"r": Estimate(estimate=r, low=low, high=high), "z": r / error, "error": error}


def _curves(values: Array, open_: Mask) -> list[Array]:
    """Return three polynomials of a signal's rank (Legendre's), each (n_questions, n_rounds)."""
    among = open_ & np.isfinite(values)
    own = _centered(values, among)[among]
    _, place, counts = np.unique(own, return_inverse=True, return_counts=True)
    rank = 2.0 * ((np.cumsum(counts) - counts / 2.0) / counts.sum())[place] - 1.0
    found = np.full((3, *values.shape), np.nan)
    found[:, among] = np.polynomial.legendre.legvander(rank, 3)[:, 1:].T
    return [*found]


def _predicted(
    columns: Sequence[Array],
    gain: Array,
    open_: Mask,
    units: Units,
    seed: int,
    *,
    alive: float = 0.0,
) -> Array:
    """Predict the gain of each open round of a fold from the folds before it; NaN in the first."""
    found = np.full(gain.shape, np.nan)
    if not columns:
        return found
    parts = []
    for one in columns:
        among = open_ & np.isfinite(one)
        centered = _centered(one, among)
        parts.append(centered[open_] / (centered[among].std() or 1.0))
    x, y = np.stack(parts, axis=1), _centered(gain, open_)[open_]
    fold = np.random.default_rng(seed).integers(0, _FOLDS, size=int(units.max()) + 1)[units]
    of_row = np.broadcast_to(fold[:, None], gain.shape)[open_]
    predicted = np.full(len(y), np.nan)
    for held in range(1, _FOLDS):
        before, asked = of_row < held, of_row == held
        products = x[before] * y[before, None]
        kept = np.abs(products.sum(axis=0)) > alive * np.sqrt((products**2).sum(axis=0))
        fitted = x[before][:, kept]
        square = fitted.T @ fitted + _RIDGE * max(len(fitted), 1) * np.eye(fitted.shape[1])
        predicted[asked] = x[asked][:, kept] @ np.linalg.solve(square, fitted.T @ y[before])
    found[open_] = predicted
    return found


def shown(found: Mapping[str, Any]) -> list[str]:
    known = {name: row["z"] for name, row in found["signals"].items() if row["z"] is not None}
    strong = {name: z if name in _PREDICTED else abs(z) for name, z in known.items()}
    return sorted(
        (name for name, z in strong.items() if z > found["critical"]),
        key=lambda name: -strong[name],
    )


def gains_table(found: Mapping[str, Any]) -> Table:
    rows = sorted(
        ({"signal": name, **row} for name, row in found["signals"].items()),
        key=lambda row: -abs(row["z"] or 0.0),
    )
    told = shown(found)
    of = (
        f"{counted(len(rows) - len(_PREDICTED), 'signal')}, and all together as lines and as curves"
    )
    said = f"{', '.join(told)}." if told else f"No linear signal shown, and no curve: tried {of}."
    if found["smallest"] is not None and not math.isnan(found["smallest"]):
        least = f"{found['smallest']:.2f}"
        said += f" {counted(found['questions'], 'question')} would show a correlation of {least} or more."
    described: list[Described] = [
        ("signal", Column(name="signal", most=24)),
        ("r", estimate_column("r", "correlation", signed=True)),
        ("z", Column(name="z", kind="number", digits=1, signed=True)),
    ]
    notes = (
        f"Gain: {found['metric']} at the last round less the {found['metric']} here, "
        f"{100 * found['mean_gain']:+.1f} points on average over {found['rounds']:,} rounds that are not the "
        "last. Both are centered by round. Positive: high values mean that going on helps.",
        f"Shown: |z| above {found['critical']:.1f}, corrected for {len(rows)} rows; z for all signals. These "
        "predict each fifth of the questions from those before it, by lines or by curves (a rise, a U). One "
        "signal is tested as a line. Not tested: what signals tell in combination only.",
    )
    return table_of(
        "gains", rows, described, f"Does a signal tell when going on pays? {said}", notes
    )
