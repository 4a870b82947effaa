"""How sure a model and a calibrated value are of answers, against how often these are right."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffice.errors import SufficeWarning, attempt
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.maps.quality import equal_size_edges
from suffice.policies.defaults import MARGIN
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.protocols import CalibratedPolicy
from suffice.signals.table import SignalTable

STABLE = "answer_stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginMeans:
    """The answer-token margin of a part, all rounds pooled (paper 0, Table 6).

    ``raw`` is the mean margin of ``rounds`` rounds, in nats, ``calibrated`` the mean P(EM = 1 | margin) by
    one isotonic map a round, fitted on tune, there out of fold (``None``: none, for a ``reason``), ``em`` the
    mean exact match of the labelled ones (``None``: none is).
    """

    rounds: int
    raw: float
    calibrated: float | None
    em: float | None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StableRound:
    """Labelled answers of a round in which ``answer_stable`` is defined; ``None`` where there are none.

    ``stable`` and ``wrong_and_stable`` are shares of them: those that repeat the answer before, and those
    of these that are not an exact match.
    """

    round: int | None
    answers: int
    stable: float | None
    wrong_and_stable: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongAndStable:
    """Answers that are repeated though wrong (paper 0, section 3.4).

    ``overall`` takes all rounds together. ``first_wrong`` is the share of the ``questions`` that are
    labelled whose first stable answer is wrong: a rule of stability alone stops there.
    """

    overall: StableRound
    rounds: tuple[StableRound, ...]
    questions: int
    first_wrong: float | None


def calibrated_margins(
    measures: Measures, tune_split: str
) -> tuple[NDArray[np.float64], str | None]:
    """P(EM = 1 | margin) of every round, (n_questions, n_rounds), out of fold on tune."""
    record = measures.traces
    tune = record.in_split(tune_split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)  # of few rows; the calibrators say it

        def calibrated() -> NDArray[np.float64]:
            data = fit_data(measures, (MARGIN,), split=tune_split)
            margins = measures.signals((MARGIN,)).signal(MARGIN)
            values = fit_calibrator(data, MARGIN).predict_rounds(margins)
            values[tune] = out_of_fold(data, MARGIN)[:, : values.shape[1]]
            return values

        values, why = attempt(calibrated)
    return np.full(record.exists.shape, np.nan) if values is None else values, why


def margin_means(
    margins: NDArray[np.float64],
    calibrated: NDArray[np.float64],
    em: NDArray[np.float64],
    why: str | None,
) -> MarginMeans | None:
    """Means of a part's rounds, each array (n_questions, n_rounds); ``None`` where no round has a margin."""
    defined = np.isfinite(margins)
    if not defined.any():
        return None
    known, labelled = defined & np.isfinite(calibrated), defined & np.isfinite(em)
    return MarginMeans(
        rounds=int(defined.sum()),
        raw=float(margins[defined].mean()),
        calibrated=float(calibrated[known].mean()) if known.any() else None,
        em=float(em[labelled].mean()) if labelled.any() else None,
        reason=why,
    )


def wrong_and_stable(stable: NDArray[np.float64], em: NDArray[np.float64]) -> WrongAndStable:
    """Of ``answer_stable`` and exact match, each (n_questions, n_rounds), NaN: undefined or unlabelled."""
    usable = np.isfinite(stable) & np.isfinite(em)
    repeats = usable & (stable == 1.0)
    wrong = repeats & (em == 0.0)
    labelled = np.isfinite(em).any(axis=1)
    first = repeats.argmax(axis=1)
    first_wrong = repeats.any(axis=1) & wrong[np.arange(len(wrong)), first]
    return WrongAndStable(
        overall=_shares(None, usable, repeats, wrong),
        rounds=tuple(
            _shares(t + 1, usable[:, t], repeats[:, t], wrong[:, t])
            for t in range(1, stable.shape[1])  # the first round repeats nothing
        ),
        questions=int(labelled.sum()),
        first_wrong=float(first_wrong[labelled].mean()) if labelled.any() else None,
    )


def _shares(
    number: int | None,
    usable: NDArray[np.bool_],
    repeats: NDArray[np.bool_],
    wrong: NDArray[np.bool_],
) -> StableRound:
    answers = int(usable.sum())
    return StableRound(
        round=number,
        answers=answers,
        stable=float(repeats.sum() / answers) if answers else None,
        wrong_and_stable=float(wrong.sum() / answers) if answers else None,
    )


_Z = 1.959963984540054  # 97.5% quantile of the standard normal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBucket:
    """Mean calibrated value and share right among ``count`` answers, with a 95% Wilson interval."""

    predicted: float
    right: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Buckets of one calibrated signal in one round; ``undefined`` answers had no value."""

    signal: str
    round: int
    buckets: tuple[ReliabilityBucket, ...]
    undefined: int


def wilson(successes: float, count: int) -> tuple[float, float]:
    """95% Wilson score interval of a share; (0, 1) for no observation."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = successes / count, _Z * _Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = (
        _Z
        * float(np.sqrt(share * (1 - share) / count + z2 / (4 * count * count)))
        / (1 + z2 / count)
    )
    # rounding must not push an end past the share itself
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def buckets(
    predicted: NDArray[np.float64], right: NDArray[np.float64], *, count: int = 5
) -> tuple[ReliabilityBucket, ...]:
    """Equal-size buckets in order of the predicted value; equal values are never split."""
    order = np.argsort(predicted, kind="stable")
    predicted, right = predicted[order], right[order]
    made = []
    for start, stop in pairwise(equal_size_edges(predicted, count)):
        low, high = wilson(float(right[start:stop].sum()), stop - start)
        made.append(
            ReliabilityBucket(
                predicted=float(predicted[start:stop].mean()),
                right=float(right[start:stop].mean()),
                low=low,
                high=high,
                count=stop - start,
            )
        )
    return tuple(made)


def reliability(
    policy: CalibratedPolicy, table: SignalTable, scored: Outcomes
) -> Sequence[Reliability]:
    """Every calibrated signal of the policy in every round that has labelled answers."""
    rounds = []
    for signal, calibrator in policy.calibrators.items():
        values = table.signal(signal)
        for number in range(1, table.n_rounds + 1):
            right = scored.em[:, number - 1]
            predicted = calibrator.predict(number, values[:, number - 1])
            recorded = np.isfinite(right)
            usable = recorded & np.isfinite(predicted)
            if recorded.any():
                rounds.append(
                    Reliability(
                        signal=signal,
                        round=number,
                        buckets=buckets(predicted[usable], right[usable]) if usable.any() else (),
                        undefined=int((recorded & ~usable).sum()),
                    )
                )
    return rounds
