"""How sure of itself a recorded model is: mean margins, and answers that are wrong and stable."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.errors import SufficeWarning, attempt
from suffice.measures.measures import Measures
from suffice.policies.defaults import MARGIN
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold

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
    """P(EM = 1 | margin) of every round, (n_questions, n_rounds), out of fold on tune.

    All NaN, and the reason, where nothing can be fitted.
    """
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
