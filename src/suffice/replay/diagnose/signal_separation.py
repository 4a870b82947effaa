"""How far a signal sets right answers apart from wrong ones: Cohen's d, Pearson's r, AUROC, with intervals.

Cohen's d is the difference of the two class means over the mean of the two sample standard deviations
(METHODS 1; published). Intervals resample questions, never rows: the rounds of one question are no
independent observations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.auroc import ResampledAuroc, auroc, auroc_influence
from suffice.numbers.intervals.bootstrap import resampled_counts
from suffice.numbers.intervals.estimate import Estimate, from_draws, undefined
from suffice.numbers.intervals.sums import Sums

Figures = tuple[float, float, float]
"""Signed d, Pearson's r and AUROC, NaN where undefined."""
_NO_SPREAD = 1e-12  # a variance below this share of all rows' variance is rounding


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Labelled rounds in which a signal is defined, each array (n_rows,).

    ``sign`` is -1 for a signal whose low values speak for stopping; ``questions`` indexes the
    questions resampled.
    """

    values: NDArray[np.float64]
    right: NDArray[np.bool_]
    questions: NDArray[np.int64]
    sign: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Separation:
    """A signal among right and among wrong answers.

    Means and sample standard deviations are of the signal as it is; ``None`` where there are too few
    rows. ``d_signed`` is positive where right answers have the higher values, ``d`` its absolute
    value; ``pearson`` is the correlation of the signal with exact match (0 or 1), in [-1, 1];
    ``auroc`` is oriented by the signal's declared direction, so below 0.5 it misleads.
    """

    right: int
    wrong: int
    mean_right: float | None
    sd_right: float | None
    mean_wrong: float | None
    sd_wrong: float | None
    d: Estimate
    d_signed: Estimate
    pearson: Estimate
    auroc: Estimate


def cohens_d(values: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """(mean of right - mean of wrong rows) / mean of their two sample standard deviations.

    NaN with fewer than two rows of a class, with an infinite value, or when neither class varies.

    >>> d = cohens_d(np.array([1.0, 3.0, 4.0, 8.0]), np.array([False, False, True, True]))
    >>> round(d, 4)
    1.8856
    """
    of_right, of_wrong = values[right], values[~right]
    if min(len(of_right), len(of_wrong)) < 2 or not np.isfinite(values).all():
        return math.nan
    if np.ptp(of_right) == 0.0 and np.ptp(of_wrong) == 0.0:
        return math.nan
    spread = (of_right.std(ddof=1) + of_wrong.std(ddof=1)) / 2
    return float((of_right.mean() - of_wrong.mean()) / spread)


def pearson(values: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Pearson's correlation of the signal with exact match (paper 0, section 5.4), in [-1, 1].

    NaN for one class only, a constant signal or an infinite value.

    >>> round(pearson(np.array([1.0, 3.0, 4.0, 8.0]), np.array([False, False, True, True])), 4)
    0.7845
    """
    if len(values) == 0 or not np.isfinite(values).all():
        return math.nan
    if right.all() or not right.any() or np.ptp(values) == 0.0:
        return math.nan
    centred = [column - column.mean() for column in (values, right.astype(np.float64))]
    length = math.sqrt(float(centred[0] @ centred[0]) * float(centred[1] @ centred[1]))
    return float(np.clip((centred[0] @ centred[1]) / length, -1.0, 1.0)) if length else math.nan


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

    def of(self, sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
        """Signed d of every resample, (n_draws,), from ``self.sums @ counts``, (n_sums, n_draws)."""
        if len(sums) == 0:
            return np.full(counts.shape[1], np.nan)
        mean_right, sd_right = _mean_and_sd(*sums[:3])
        mean_wrong, sd_wrong = _mean_and_sd(*sums[3:])
        spread = (sd_right + sd_wrong) / 2
        varies = spread > 0
        d = (mean_right - mean_wrong) / np.where(varies, spread, 1.0)
        return np.asarray(np.where(varies, d, np.nan))

    def correlations(
        self, sums: NDArray[np.float64], counts: NDArray[np.float64]
    ) -> NDArray[np.float64]:
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


def _mean_and_sd(
    count: NDArray[np.float64], total: NDArray[np.float64], squares: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
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
) -> list[tuple[Separation, NDArray[np.float64]]]:
    """The separation in every part and its :data:`Figures` in the same resamples, (3, resamples) each.

    ``by_sums``: from what each question adds instead, as of a large record.
    """
    figures = [_figures(rows) for rows in parts]
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


def _figures(rows: Rows) -> Figures:
    """Those of the rows as they are."""
    return (
        cohens_d(rows.values, rows.right),
        pearson(rows.values, rows.right),
        auroc(rows.sign * rows.values, rows.right),
    )


def _from_resamples(
    parts: Sequence[Rows], n_questions: int, *, resamples: int, seed: int
) -> NDArray[np.float64]:
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
) -> NDArray[np.float64]:
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


def _influences(rows: Rows, figures: Figures, n_questions: int) -> tuple[NDArray[np.float64], ...]:
    """What each question adds to signed d, to r and to the AUROC, (n_questions,) each, of mean 0."""
    undefined_everywhere = np.full(n_questions, math.nan)
    area = auroc_influence(rows.sign * rows.values, rows.right, rows.questions, n_questions)
    d, r, _ = figures
    if math.isnan(r):
        return undefined_everywhere, undefined_everywhere, area

    def of_questions(added: NDArray[np.float64]) -> NDArray[np.float64]:
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


def _separation(rows: Rows, draws: NDArray[np.float64], figures: Figures) -> Separation:
    of_right, of_wrong = rows.values[rows.right], rows.values[~rows.right]
    why = _why_undefined(rows)
    if why is not None:
        d = d_signed = r = area = undefined(why)
    else:
        signed, correlation, plain_area = figures
        area = from_draws(plain_area, draws[2])
        r = (
            undefined("the signal is infinite in some of these rounds")
            if math.isnan(correlation)
            else from_draws(correlation, draws[1])
        )
        if math.isnan(signed):
            d = d_signed = undefined(_why_no_d(rows))
        else:
            d_signed = from_draws(signed, draws[0])
            d = from_draws(abs(signed), np.abs(draws[0]))
    return Separation(
        right=len(of_right),
        wrong=len(of_wrong),
        mean_right=_mean(of_right),
        sd_right=_sd(of_right),
        mean_wrong=_mean(of_wrong),
        sd_wrong=_sd(of_wrong),
        d=d,
        d_signed=d_signed,
        pearson=r,
        auroc=area,
    )


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


def _why_no_d(rows: Rows) -> str:
    if not np.isfinite(rows.values).all():
        return "the signal is infinite in some of these rounds"
    if min(int(rows.right.sum()), int((~rows.right).sum())) < 2:
        return "a class with fewer than two rounds has no standard deviation"
    return "the signal varies neither among right nor among wrong answers"


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if len(values) and np.isfinite(values).all() else None


def _sd(values: NDArray[np.float64]) -> float | None:
    return float(values.std(ddof=1)) if len(values) > 1 and np.isfinite(values).all() else None
