"""A threshold sweep as an aligned plain-text table."""

from __future__ import annotations

from textwrap import wrap

from suffice.replay.choose.sweep import SweepResult, SweptThreshold
from suffice.results.formats import decimal, percent, points, signed
from suffice.results.markup import visible

_WIDTH = 100


def sweep_table(result: SweepResult) -> str:
    """Every threshold on both splits, the choice, the knee and the gaps."""
    heads = ["threshold", "tune F1", "s.e.", "rounds", "F1/round", "eval F1", "EM", "rounds"]
    cells = [[f"{each.threshold:g}", *threshold_figures(each)] for each in result.points]
    table = [heads, *cells]
    widths = [max(len(row[column]) for row in table) for column in range(len(heads))]
    lines = [
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in table
    ]
    marks = ["", *(threshold_marks(result, each.threshold) for each in result.points)]
    lines = [f"{line}  {mark}".rstrip() for line, mark in zip(lines, marks, strict=True)]
    return "\n".join(
        [
            visible(result.settings.rule),
            "",
            lines[0],
            "-" * len(lines[0]),
            *lines[1:],
            "",
            *(line for text in sweep_notes(result) for line in wrap(text, _WIDTH)),
        ]
    )


def threshold_figures(each: SweptThreshold) -> tuple[str, ...]:
    """F1 on tune with its error, rounds, gain a round, then F1, EM and rounds on eval."""
    return (
        percent(each.tune_f1),
        percent(each.tune_error),
        decimal(each.tune_rounds),
        signed(each.gain),
        percent(each.eval_f1),
        percent(each.eval_em),
        decimal(each.eval_rounds),
    )


def threshold_marks(result: SweepResult, threshold: float) -> str:
    """``chosen`` and ``knee`` where they apply."""
    marks = []
    if threshold == result.chosen:
        marks.append("chosen")
    if threshold == result.knee.threshold:
        marks.append("knee" if result.knee.warning is None else "knee, unclear")
    return ", ".join(marks)


def sweep_notes(result: SweepResult) -> list[str]:
    """What the figures are, the choice, the knee and the gaps, sentence by sentence."""
    tune, held = result.settings.tune_split, result.settings.eval_split
    return [
        f"Tune: out of fold on {result.questions[0]} labelled questions of split {tune}; eval: fitted "
        f"on {tune}, scored on {result.questions[1]} of split {held}. Scores in percent; F1/round: "
        "points of tune F1 gained per extra round over the next cheaper threshold.",
        "Chosen: the cheapest within one standard error of the best tune F1: "
        f"{visible(result.chosen_rule)}",
        "Knee: " + knee_in_words(result),
        "Held-out folds (fitted and chosen without them): F1 "
        f"{percent(result.held_out_f1)}, choices {_choices(result)}.",
        f"Selection gap, tune minus held-out folds: {points(result.selection_gap)}. "
        f"Difference of the splits, {held} minus held-out folds: {points(result.split_gap)}.",
        *(f"Note: {visible(note)}" for note in result.notes),
    ]


def knee_in_words(result: SweepResult) -> str:
    """The knee and how sure it is, or why there is none."""
    knee = result.knee
    if knee.warning is not None:
        return f"{knee.warning}."
    return f"{knee.threshold:.6g}, where {knee.share:.0%} of the resamples put it or a neighbour."


def _choices(result: SweepResult) -> str:
    return ", ".join(f"{each:.6g}" for each in result.fold_choices)
