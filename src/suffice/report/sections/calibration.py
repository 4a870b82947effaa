"""Which calibrator is better: by its probabilities, and by the rule that reads them."""

from __future__ import annotations

from suffice.replay.diagnose.calibrator_study import CalibratorStudy
from suffice.report.page.section import Section, Shown, listed, plain
from suffice.results.formats import count, fraction
from suffice.results.markup import element


def calibration_section(study: CalibratorStudy) -> Shown:
    """Brier, log loss and ECE of every kind on both splits, and what its rule scores."""
    probabilities, rules = study.tables()
    return Shown(
        finding=_finding(study),
        blocks=[
            plain(
                f"Several ways to turn {study.signal} into a chance of being right, fitted on "
                f"{count(study.tune_questions)} labelled questions of split {study.tune_split}. Tune is out "
                f"of fold; eval is {count(study.eval_questions)} labelled questions of split "
                f"{study.eval_split}. Lower is better for all three scores; intervals are 95%."
            ),
            probabilities.headed("Calibrators by their probabilities", _HEADS).html(),
            element("h3", "The rule that reads them"),
            plain(
                element("code", study.rule),
                f", its floor chosen on {study.tune_split} out of fold, scored on {study.eval_split} "
                "with HotpotQA's F1.",
            ),
            rules.headed(
                "Calibrators by the rule that reads them", {"f1": "F1 % [95%]", "em": "EM %"}
            ).html(),
            listed(f"{note[:1].upper()}{note[1:]}." for note in study.notes),
        ],
    )


_HEADS = {
    "tune": "Brier tune",
    "eval": "Brier eval [95%]",
    "log_loss": "log loss eval",
    "ece": "ECE eval",
}
SECTION = Section(
    name="calibration",
    heading="Calibration",
    part="calibrators",
    show=lambda material: calibration_section(material.parts["calibrators"]),
)


def _finding(study: CalibratorStudy) -> str:
    best = min(study.results, key=lambda score: score["eval"]["brier"].estimate)
    first = study.results[0]["kind"]
    deltas = [score["eval"]["delta_brier"] for score in study.results[1:]]
    differ, others = sum(not one.low <= 0.0 <= one.high for one in deltas), len(deltas)
    apart = (
        f"{differ or 'none'} of {others} other kinds differ{'' if differ > 1 else 's'} from {first}"
    )
    brier = fraction(best["eval"]["brier"].estimate)
    lowest = f"lowest Brier score on {study.eval_split}: {best['kind']}, {brier}"
    return f"{lowest}; {apart}" if others else lowest
