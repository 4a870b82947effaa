"""TASR: stop when the answer repeats and its calibrated margin clears a floor (paper 0, Eq. 1).

``published`` is the rule AS_m25 as the paper's code ran it: the floor is 0.25, stability uses the
code's own normaliser, and a round without log-probabilities counts as calibrated margin 0.5.
``corrected`` uses the official normaliser, never fires on an undefined margin or on a stable
abstention, and chooses the floor on the tune split from out-of-fold calibrated margins.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.policies.fitting import FitData, Preset, fit_calibrator, out_of_fold
from suffice.policies.rule import RulePolicy
from suffice.protocols import Signal
from suffice.scoring import normalize_answer
from suffice.signals.abstained import ABSTENTION_PHRASES, abstained_signal
from suffice.signals.registry import resolve

__all__ = [
    "FLOORS",
    "PUBLISHED_FLOOR",
    "SIGNALS_READ",
    "FloorScore",
    "choose_floor",
    "fit_tasr",
    "sweep_floors",
    "tasr_signals",
]

MARGIN = "answer_token_margin"
PUBLISHED_FLOOR = 0.25
PUBLISHED_UNDEFINED = 0.5
FLOORS = tuple(round(0.20 + 0.01 * step, 2) for step in range(16))
SIGNALS_READ: dict[Preset, tuple[str, ...]] = {
    "published": ("answer_stable_published", MARGIN),
    "corrected": ("answer_stable", "abstained", MARGIN),
}


def tasr_signals(preset: Preset, gold: tuple[str, ...] = ()) -> tuple[Signal, ...]:
    """The preset's ``SIGNALS_READ``, with ``abstained`` as the policy fitted on ``gold`` means it."""
    phrases = _abstention(gold)
    return tuple(
        abstained_signal(phrases) if name == "abstained" and phrases is not None else resolve(name)
        for name in SIGNALS_READ[preset]
    )


def fit_tasr(
    data: FitData, preset: Preset = "corrected", *, gold: tuple[str, ...] = ()
) -> RulePolicy:
    """Calibrate TASR on the tune questions.

    Parameters
    ----------
    data
        Signals and outcomes of the tune split, with the preset's :func:`tasr_signals`.
    preset
        Which version.
    gold
        All gold answers of the tune split: "none" counts as an abstention only when it is not one.
    """
    if preset == "published":
        return RulePolicy(
            rule=f"answer_stable_published and calibrated({MARGIN}) > {PUBLISHED_FLOOR}",
            calibrators={MARGIN: fit_calibrator(data, MARGIN, undefined=PUBLISHED_UNDEFINED)},
            kind="tasr",
            preset=preset,
            fitted_on=data.provenance,
        )
    floor = choose_floor(sweep_floors(data))
    return RulePolicy(
        rule=f"answer_stable and not abstained and calibrated({MARGIN}) > {floor}",
        calibrators={MARGIN: fit_calibrator(data, MARGIN)},
        kind="tasr",
        preset=preset,
        abstention=_abstention(gold),
        fitted_on={**data.provenance, "floors": [FLOORS[0], FLOORS[-1]], "floor": floor},
    )


def _abstention(gold: tuple[str, ...]) -> tuple[str, ...] | None:
    accepted = {normalize_answer(answer) for answer in gold}
    if "none" not in accepted:
        return None
    return tuple(phrase for phrase in ABSTENTION_PHRASES if phrase != "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorScore:
    """What a floor costs and scores on tune, out of fold; ``standard_error`` is of the mean F1."""

    floor: float
    f1: float
    standard_error: float
    mean_rounds: float


def sweep_floors(data: FitData, floors: tuple[float, ...] = FLOORS) -> tuple[FloorScore, ...]:
    """Score every floor on the tune questions with out-of-fold calibrated margins."""
    stable = (data.table.signal("answer_stable") == 1.0) & (data.table.signal("abstained") != 1.0)
    calibrated = out_of_fold(data, MARGIN)
    last = data.table.exists.sum(axis=1)
    labelled = data.outcomes.labelled
    scores = []
    for floor in floors:
        stops = np.minimum(_first(stable & (calibrated > floor)), last)
        f1 = data.outcomes.f1[np.arange(len(stops)), stops - 1][labelled]
        spread = float(f1.std(ddof=1)) if len(f1) > 1 else 0.0
        scores.append(
            FloorScore(
                floor=floor,
                f1=float(f1.mean()),
                standard_error=spread / float(np.sqrt(len(f1))),
                mean_rounds=float(stops[labelled].mean()),
            )
        )
    return tuple(scores)


def _first(fires: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The first true round of each question, 1-based; the last round when none is."""
    first = fires.argmax(axis=1) + 1
    return np.asarray(np.where(fires.any(axis=1), first, fires.shape[1]), np.int64)


def choose_floor(scores: tuple[FloorScore, ...]) -> float:
    """The cheapest floor within one standard error of the best F1; ties to higher F1, then lower."""
    best = max(scores, key=lambda each: each.f1)
    close = [each for each in scores if each.f1 >= best.f1 - best.standard_error]
    return min(close, key=lambda each: (each.mean_rounds, -each.f1, each.floor)).floor
