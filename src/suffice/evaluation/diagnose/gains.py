"""Does a signal tell when going on pays? Correlations with what the rounds to come still bring."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import Any

import numpy as np

from suffice.errors import counted
from suffice.measures.measures import Measures
from suffice.results.table import Column, Described, Table, estimate_column, table_of
from suffice.stats.intervals import from_draws, resampled_counts, undefined
from suffice.stats.units import Array, Mask, Units

_FOLDS, _RIDGE, _POWER = 5, 0.1, 0.8
_FEW = 20  # questions below which nothing is said
TOGETHER = "all signals together"


def gains(
    measures: Measures, names: Sequence[str], *, resamples: int, seed: int
) -> dict[str, Any] | None:
    """Return the correlation of each signal with the gain of going on; ``None`` if that is not known.

    The gain of a round is the score at the question's last round less the score here, by the usual metric of
    the record. Signal and gain are centered by round, since both change with the round alone. ``TOGETHER`` is
    a ridge regression over all signals whose predictions are out of fold. ``critical`` corrects for the
    number of rows (Bonferroni); ``smallest`` is the correlation that so many questions show with 80% power.
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
    values[TOGETHER] = _out_of_fold([*values.values()], gain, open_, units, seed)
    normal = NormalDist()
    critical = normal.inv_cdf(1.0 - 0.05 / (2.0 * len(values)))
    sums = np.stack([_sums(one, gain, open_) for one in values.values()], axis=1)
    drawn = np.concatenate(
        [
            _ratios(np.tensordot(counts, sums, axes=1))
            for counts in resampled_counts(len(last), resamples=resamples, seed=seed, units=units)
        ]
    )
    plain = _ratios(sums.sum(axis=0))
    rows = {name: _correlation(*of) for name, *of in zip(values, plain, drawn.T, strict=True)}
    errors = [row["error"] for row in rows.values() if row["error"] is not None]
    return {
        "metric": metric,
        "questions": questions,
        "rounds": int(open_.sum()),
        "mean_gain": float(gain[open_].mean()),
        "critical": critical,
        "smallest": (critical + normal.inv_cdf(_POWER)) * float(np.median(errors))
        if errors
        else None,
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


def _ratios(sums: Array) -> Array:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(sums[..., 0] / np.sqrt(sums[..., 1] * sums[..., 2]))


def _correlation(plain: float, drawn: Array) -> dict[str, Any]:
    estimate = from_draws(float(plain), drawn)
    error = float(np.nanstd(drawn)) if estimate.low is not None else None
    if not error or estimate.estimate is None:
        return {"r": undefined("one of the two never changes"), "z": None, "error": None}
    return {"r": estimate, "z": estimate.estimate / error, "error": error}


def _out_of_fold(
    columns: Sequence[Array], gain: Array, open_: Mask, units: Units, seed: int
) -> Array:
    """Predict the gain of each open round from all signals, by questions that the fit did not see."""
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
    predicted = np.zeros(len(y))
    for held in range(_FOLDS):
        fitted, asked = x[of_row != held], of_row == held
        square = fitted.T @ fitted + _RIDGE * max(len(fitted), 1) * np.eye(x.shape[1])
        predicted[asked] = x[asked] @ np.linalg.solve(square, fitted.T @ y[of_row != held])
    found[open_] = predicted
    return found


def shown(found: Mapping[str, Any]) -> list[str]:
    strong = {name: abs(row["z"]) for name, row in found["signals"].items() if row["z"] is not None}
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
    of = f"{counted(len(rows) - 1, 'signal')} and all together"
    said = f"{', '.join(told)}." if told else f"None is shown to: tried {of}."
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
        f"Shown: |z| above {found['critical']:.1f}, corrected for {len(rows)} rows. {TOGETHER}: a ridge "
        "regression, out of fold.",
    )
    return table_of(
        "gains", rows, described, f"Does a signal tell when going on pays? {said}", notes
    )
