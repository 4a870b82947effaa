"""How far a signal sets right answers apart from wrong ones: Cohen's d, Pearson's r, AUROC, with intervals.

Cohen's d is the difference of the two class means over the mean of the two sample standard deviations
(METHODS 1; published). Intervals resample questions, never rows: the rounds of one question are no
independent observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.stats.auroc import ResampledAuroc, auroc, auroc_influence
from suffice.stats.intervals import Sums, from_draws, resampled_counts, undefined

Array = NDArray[np.float64]
Figures = tuple[float, float, float]
"""Signed d, Pearson's r and AUROC, NaN where undefined."""
_NO_SPREAD = 1e-12  # a variance below this share of all rows' variance is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labelled rounds in which a signal is defined, each array (n_rows,).

    ``sign`` is -1 for a signal whose low values speak for stopping; ``questions`` indexes the
    questions resampled.
    """

    values: Array
    right: NDArray[np.bool_]
    questions: NDArray[np.int64]
    sign: float = 1.0


class ResampledD:
    """Signed Cohen's d of the same rows under many resamples of their questions, and Pearson's r."""

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
        self.sums = np.stack(moments) if usable else np.zeros((0, n_questions))
        """(n_sums, n_questions): what is summed over the questions drawn."""

    def of(self, sums: Array, counts: Array) -> Array:
        """Signed d of every resample, (n_draws,), from ``self.sums @ counts``, (n_sums, n_draws).

        NaN with fewer than two rows of a class, with an infinite value, or when neither class varies.
        """
        if len(sums) == 0:
            return np.full(counts.shape[1], np.nan)
        mean_right, sd_right = _mean_and_sd(*sums[:3])
        mean_wrong, sd_wrong = _mean_and_sd(*sums[3:])
        spread = (sd_right + sd_wrong) / 2
        varies = spread > 0
        d = (mean_right - mean_wrong) / np.where(varies, spread, 1.0)
        return np.asarray(np.where(varies, d, np.nan))

    def correlations(self, sums: Array, counts: Array) -> Array:
        """Pearson's r with exact match, (n_draws,), of the sums that :meth:`of` takes."""
        if len(sums) == 0:
            return np.full(counts.shape[1], np.nan)
        n_right, total_right, squares_right, n_wrong, total_wrong, squares_wrong = sums
        n = n_right + n_wrong
        safe = np.maximum(n, 1.0)
        total = total_right + total_wrong
        # n times the variances of signal and exact match, and n times their covariance
        signal = squares_right + squares_wrong - total * total / safe
        match = n_right * n_wrong / safe
        both = total_right - n_right * total / safe
        varies = (signal > _NO_SPREAD * safe) & (match > 0)
        r = both / np.sqrt(np.where(varies, signal * match, 1.0))
        return np.asarray(np.where(varies, np.clip(r, -1.0, 1.0), np.nan))


def _mean_and_sd(count: Array, total: Array, squares: Array) -> tuple[Array, Array]:
    """Means and sample standard deviations from sums, NaN below two rows."""
    enough = count >= 2
    safe = np.where(enough, count, 2.0)
    mean = total / safe
    variance = (squares - total * mean) / (safe - 1)
    variance = np.where(variance > _NO_SPREAD, variance, 0.0)
    return mean, np.where(enough, np.sqrt(variance), np.nan)


def separations(
    parts: Sequence[Rows],
    n_questions: int,
    *,
    resamples: int,
    seed: int,
    by_sums: bool = False,
) -> list[tuple[dict[str, Any], Array]]:
    """How far right and wrong answers are apart in every part, and the draws of its :data:`Figures`.

    Means and sample standard deviations are of the signal as it is, ``None`` where there are too few rows.
    ``d_signed`` is positive where right answers have the higher values, ``d`` its absolute value; ``pearson``
    is the correlation with exact match; ``auroc`` is oriented by the declared direction, so below 0.5 the
    signal misleads. The draws are (3, resamples); ``by_sums`` has them from what each question adds, as of
    a large record.
    """
    figures = [figures_of(rows) for rows in parts]
    if n_questions == 0:
        drawn = np.full((3, len(parts), resamples), np.nan)
    elif by_sums:
        drawn = _from_sums(parts, figures, n_questions, resamples=resamples, seed=seed)
    else:
        drawn = _from_resamples(parts, n_questions, resamples=resamples, seed=seed)
    return [
        (_separation(rows, own, of_rows), own)
        for rows, own, of_rows in zip(parts, drawn.transpose(1, 0, 2), figures, strict=True)
    ]


def figures_of(rows: Rows) -> Figures:
    """Those of the rows as they are."""
    n_questions = int(rows.questions.max(initial=0)) + 1
    resampled, once = ResampledD(rows, n_questions), np.ones((n_questions, 1))
    sums = resampled.sums @ once
    area = auroc(rows.sign * rows.values, rows.right)
    return float(resampled.of(sums, once)[0]), float(resampled.correlations(sums, once)[0]), area


def _from_resamples(parts: Sequence[Rows], n_questions: int, *, resamples: int, seed: int) -> Array:
    """Signed d, r and AUROC of every part in every resample of the questions, (3, n_parts, resamples)."""
    distances = [ResampledD(rows, n_questions) for rows in parts]
    areas = [
        ResampledAuroc(rows.sign * rows.values, rows.right, rows.questions, n_questions)
        for rows in parts
    ]
    # one product serves them all
    wanted = [*(distance.sums for distance in distances), *(area.sums for area in areas)]
    together = np.concatenate(wanted)
    ends = np.cumsum([len(rows) for rows in wanted])[:-1]
    drawn = np.empty((3, len(parts), resamples))
    start = 0
    for block in resampled_counts(n_questions, resamples=resamples, seed=seed):
        counts = block.T
        sums = np.split(together @ counts, ends)
        stop = start + len(block)
        for number, (distance, area) in enumerate(zip(distances, areas, strict=True)):
            drawn[0, number, start:stop] = distance.of(sums[number], counts)
            drawn[1, number, start:stop] = distance.correlations(sums[number], counts)
            drawn[2, number, start:stop] = area.of(sums[len(parts) + number], counts)
        start = stop
    return drawn


def _from_sums(
    parts: Sequence[Rows],
    figures: Sequence[Figures],
    n_questions: int,
    *,
    resamples: int,
    seed: int,
) -> Array:
    """The same, to first order in what each question adds."""
    added = [
        column
        for rows, of_rows in zip(parts, figures, strict=True)
        for column in _influences(rows, of_rows, n_questions)
    ]
    off = Sums.of(np.column_stack(added)).draws(resamples=resamples, seed=seed)
    plain = [figure for of_rows in figures for figure in of_rows]
    drawn = (off + plain).T.reshape(len(parts), 3, resamples).transpose(1, 0, 2)
    return np.stack([drawn[0], np.clip(drawn[1], -1.0, 1.0), np.clip(drawn[2], 0.0, 1.0)])


def _influences(rows: Rows, figures: Figures, n_questions: int) -> tuple[Array, ...]:
    """What each question adds to signed d, to r and to the AUROC, (n_questions,) each, of mean 0."""
    undefined_everywhere = np.full(n_questions, math.nan)
    area = auroc_influence(rows.sign * rows.values, rows.right, rows.questions, n_questions)
    d, r, _ = figures
    if math.isnan(r):
        return undefined_everywhere, undefined_everywhere, area

    def of_questions(added: Array) -> Array:
        sums = np.bincount(rows.questions, weights=added, minlength=n_questions)
        return np.asarray(n_questions * sums, np.float64)

    signal, match = (
        (column - column.mean()) / column.std()
        for column in (rows.values, rows.right.astype(np.float64))
    )
    to_r = (signal * match - r * (signal**2 + match**2) / 2) / len(signal)
    if math.isnan(d):
        return undefined_everywhere, of_questions(to_r), area
    spread, to_mean, to_spread = 0.0, np.empty(len(signal)), np.empty(len(signal))
    for of, sign in ((rows.right, 1.0), (~rows.right, -1.0)):
        off = signal[of] - signal[of].mean()
        sd = signal[of].std(ddof=1)
        spread += sd / 2
        to_mean[of] = sign * off / len(off)
        to_spread[of] = (off**2 - sd**2) / (4 * sd * (len(off) - 1)) if sd else 0.0
    return of_questions((to_mean - d * to_spread) / spread), of_questions(to_r), area


def _separation(rows: Rows, draws: Array, figures: Figures) -> dict[str, Any]:
    why = _why_undefined(rows)
    values, infinite = rows.values, "the signal is infinite in some of these rounds"
    if not np.isfinite(values).all():
        why_no_d = infinite
    elif min(int(rows.right.sum()), int((~rows.right).sum())) < 2:
        why_no_d = "a class with fewer than two rounds has no standard deviation"
    else:
        why_no_d = "the signal varies neither among right nor among wrong answers"
    signed, r, area = (
        undefined(why or reason) if why or math.isnan(value) else from_draws(value, drawn)
        for value, drawn, reason in zip(figures, draws, (why_no_d, infinite, ""), strict=True)
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
        "pearson": r,
        "auroc": area,
    }


def _why_undefined(rows: Rows) -> str | None:
    if len(rows.values) == 0:
        return "defined in no labelled round"
    if not rows.right.any():
        return "no right answer among these rounds"
    if rows.right.all():
        return "no wrong answer among these rounds"
    if (rows.values == rows.values[0]).all():
        return f"the signal is {rows.values[0]:g} in all of these rounds"
    return None
