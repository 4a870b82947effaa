"""Which calibrator is better: by its probabilities, and by the rule that reads them."""

from __future__ import annotations

from suffice.replay.diagnose.calibrator_study import CalibratorScore, CalibratorStudy
from suffice.report.page.section import Section, Shown, listed, plain
from suffice.results.formats import (
    count,
    decimal,
    fraction,
    fractions,
    percent,
    points,
)
from suffice.results.markup import Html, data_table, element, join


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
    first = study.results[0].kind
    head = (
        "calibrator",
        "Brier tune",
        "Brier eval [95%]",
        f"against {first} [95%]",
        "log loss tune",
        "log loss eval",
        "ECE tune",
        "ECE eval",
        "rounds scored",
    )
    rows = [
        (
            score.kind,
            fraction(score.tune.brier.estimate),
            fractions(score.eval.brier),
            _first(score, study) or fractions(score.eval.delta_brier, sign=True),
            fraction(score.tune.log_loss),
            fraction(score.eval.log_loss),
            fraction(score.tune.ece),
            fraction(score.eval.ece),
            count(score.eval.rows),
        )
        for score in study.results
    ]
    return data_table("Calibrators by their probabilities", head, rows)


def _rules(study: CalibratorStudy) -> Html:
    first = study.results[0].kind
    head = ("calibrator", "floor", "F1 % [95%]", f"against {first} [95%]", "EM %", "rounds")
    rows = [
        (
            score.kind,
            f"{score.floor:g}",
            join(
                [
                    percent(score.f1.estimate),
                    f" [{percent(score.f1.low)}, {percent(score.f1.high)}]",
                ]
            ),
            _first(score, study) or points(score.delta_f1),
            percent(score.em),
            decimal(score.mean_rounds),
        )
        for score in study.results
    ]
    return data_table("Calibrators by the rule that reads them", head, rows)


def _first(score: CalibratorScore, study: CalibratorStudy) -> Html | None:
    if score is study.results[0]:
        return element("span", "the first", class_="tag")
    return None
