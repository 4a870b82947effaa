"""A study of calibrators as an aligned plain-text table."""

from __future__ import annotations

from textwrap import wrap

from suffice.replay.diagnose.calibrator_study import CalibratorStudy
from suffice.report.tables.text import WIDTH, text_table
from suffice.results.formats import decimal, fraction, fractions, percent, points
from suffice.results.markup import visible


def calibrator_tables(study: CalibratorStudy) -> list[list[str]]:
    """Blocks of lines: the kinds by their probabilities, the same by their rules, the notes."""
    first = study.results[0]
    probabilities = [
        [
            each.kind,
            fraction(each.tune.brier.estimate),
            fractions(each.eval.brier),
            "(the first)" if each is first else fractions(each.eval.delta_brier, sign=True),
            fraction(each.eval.log_loss, 3),
            fraction(each.eval.ece, 3),
        ]
        for each in study.results
    ]
    head = ["calibrator", "tune", "eval [95%]", f"against {first.kind}", "log loss", "ECE"]
    rules = [
        [
            each.kind,
            f"{each.floor:g}",
            f"{percent(each.f1.estimate)} [{percent(each.f1.low)}, {percent(each.f1.high)}]",
            "(the first)" if each is first else points(each.delta_f1),
            percent(each.em),
            decimal(each.mean_rounds),
        ]
        for each in study.results
    ]
    rule_head = ["calibrator", "floor", "F1 [95%]", f"against {first.kind}", "EM", "rounds"]
    title = (
        f"Brier score of calibrators of {visible(study.signal)}, fitted on {study.tune_split} (out of fold "
        f"there, {study.tune_questions} questions), and on {study.eval_split} ({study.eval_questions}); "
        "log loss and ECE on eval; lower is better."
    )
    rule_title = f"The rule that reads them, F1 and EM in percent on eval: {visible(study.rule)}"
    notes = [line for each in study.notes for line in wrap(f"Note: {each}.", WIDTH)]
    return [
        [*wrap(title, WIDTH), *text_table(head, probabilities)],
        [*wrap(rule_title, WIDTH), *text_table(rule_head, rules)],
        *([notes] if notes else []),
    ]
