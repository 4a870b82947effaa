"""Which calibrator is better: by its probabilities, and by the rule that reads them."""

from __future__ import annotations

from suffice.replay.diagnose.calibrator_study import CalibratorScore, CalibratorStudy
from suffice.report.page.section import Section, plain
from suffice.results.formats import (
    count,
    decimal,
    fraction,
    fractions,
    percent,
    points,
)
from suffice.results.markup import Html, data_table, element, join


def calibration_section(study: CalibratorStudy) -> Section:
    """Brier, log loss and ECE of every kind on both splits, and what its rule scores."""
    notes = (element("li", each[:1].upper() + each[1:] + ".") for each in study.notes)
    content = join(
        [
            plain(
                f"Several ways to turn {study.signal} into a chance of being right, fitted on "
                f"{count(study.tune_questions)} labelled questions of split {study.tune_split}. Tune is out "
                f"of fold; eval is {count(study.eval_questions)} labelled questions of split "
                f"{study.eval_split}. Lower is better for all three scores; intervals are 95%."
            ),
            _probabilities(study),
            _rules(study),
            element("ul", *notes, class_="notes") if study.notes else "",
        ]
    )
    return Section(
        name="calibration", heading="Calibration", finding=_finding(study), content=content
    )


def _finding(study: CalibratorStudy) -> str:
    best = min(study.results, key=lambda each: each.eval.brier.estimate)
    first = study.results[0].kind
    differ = sum(
        not each.eval.delta_brier.low <= 0.0 <= each.eval.delta_brier.high
        for each in study.results[1:]
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
            each.kind,
            fraction(each.tune.brier.estimate),
            fractions(each.eval.brier),
            _first(each, study) or fractions(each.eval.delta_brier, sign=True),
            fraction(each.tune.log_loss),
            fraction(each.eval.log_loss),
            fraction(each.tune.ece),
            fraction(each.eval.ece),
            count(each.eval.rows),
        )
        for each in study.results
    ]
    return data_table("Calibrators by their probabilities", head, rows)


def _rules(study: CalibratorStudy) -> Html:
    first = study.results[0].kind
    head = ("calibrator", "floor", "F1 % [95%]", f"against {first} [95%]", "EM %", "rounds")
    rows = [
        (
            each.kind,
            f"{each.floor:g}",
            join(
                [percent(each.f1.estimate), f" [{percent(each.f1.low)}, {percent(each.f1.high)}]"]
            ),
            _first(each, study) or points(each.delta_f1),
            percent(each.em),
            decimal(each.mean_rounds),
        )
        for each in study.results
    ]
    table = data_table("Calibrators by the rule that reads them", head, rows)
    return join(
        [
            element("h3", "The rule that reads them"),
            plain(
                element("code", study.rule),
                f", its floor chosen on {study.tune_split} out of fold, scored on {study.eval_split} "
                "with HotpotQA's F1.",
            ),
            table,
        ]
    )


def _first(each: CalibratorScore, study: CalibratorStudy) -> Html | None:
    if each is study.results[0]:
        return element("span", "the first", class_="tag")
    return None
