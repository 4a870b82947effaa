"""Which calibrator is better: by its probabilities, and by the rule that reads them."""

from __future__ import annotations

from suffice.replay.diagnose.calibrator_study import CalibratorScore, CalibratorStudy
from suffice.report.page.section import Section, Shown, columns, listed, plain
from suffice.results.formats import (
    bracket,
    count,
    decimal,
    fraction,
    fractions,
    percent,
    points,
)
from suffice.results.markup import Html, element


def calibration_section(study: CalibratorStudy) -> Shown:
    """Brier, log loss and ECE of every kind on both splits, and what its rule scores."""
    return Shown(
        finding=_finding(study),
        blocks=[
            plain(
                f"Several ways to turn {study.signal} into a chance of being right, fitted on "
                f"{count(study.tune_questions)} labelled questions of split {study.tune_split}. Tune is out "
                f"of fold; eval is {count(study.eval_questions)} labelled questions of split "
                f"{study.eval_split}. Lower is better for all three scores; intervals are 95%."
            ),
            _probabilities(study),
            element("h3", "The rule that reads them"),
            plain(
                element("code", study.rule),
                f", its floor chosen on {study.tune_split} out of fold, scored on {study.eval_split} "
                "with HotpotQA's F1.",
            ),
            _rules(study),
            listed(f"{note[:1].upper()}{note[1:]}." for note in study.notes),
        ],
    )


SECTION = Section(
    name="calibration",
    heading="Calibration",
    part="calibrators",
    show=lambda material: calibration_section(material.parts["calibrators"]),
)


def _finding(study: CalibratorStudy) -> str:
    best = min(study.results, key=lambda score: score.eval.brier.estimate)
    first = study.results[0].kind
    differ = sum(
        not score.eval.delta_brier.low <= 0.0 <= score.eval.delta_brier.high
        for score in study.results[1:]
    )
    others = len(study.results) - 1
    apart = (
        f"{differ or 'none'} of {others} other kinds differ{'' if differ > 1 else 's'} from {first}"
    )
    lowest = f"lowest Brier score on {study.eval_split}: {best.kind}, {fraction(best.eval.brier.estimate)}"
    return f"{lowest}; {apart}" if others else lowest


def _probabilities(study: CalibratorStudy) -> Html:
    return columns(
        "Calibrators by their probabilities",
        study.results,
        ("calibrator", lambda score: score.kind),
        ("Brier tune", lambda score: fraction(score.tune.brier.estimate)),
        ("Brier eval [95%]", lambda score: fractions(score.eval.brier)),
        (
            f"against {study.results[0].kind} [95%]",
            lambda score: _first(score, study) or fractions(score.eval.delta_brier, sign=True),
        ),
        ("log loss tune", lambda score: fraction(score.tune.log_loss)),
        ("log loss eval", lambda score: fraction(score.eval.log_loss)),
        ("ECE tune", lambda score: fraction(score.tune.ece)),
        ("ECE eval", lambda score: fraction(score.eval.ece)),
        ("rounds scored", lambda score: count(score.eval.rows)),
    )


def _rules(study: CalibratorStudy) -> Html:
    return columns(
        "Calibrators by the rule that reads them",
        study.results,
        ("calibrator", lambda score: score.kind),
        ("floor", lambda score: f"{score.floor:g}"),
        ("F1 % [95%]", lambda score: f"{percent(score.f1.estimate)} {bracket(score.f1)}"),
        (
            f"against {study.results[0].kind} [95%]",
            lambda score: _first(score, study) or points(score.delta_f1),
        ),
        ("EM %", lambda score: percent(score.em)),
        ("rounds", lambda score: decimal(score.mean_rounds)),
    )


def _first(score: CalibratorScore, study: CalibratorStudy) -> Html | None:
    if score is study.results[0]:
        return element("span", "the first", class_="tag")
    return None
