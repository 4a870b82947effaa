"""The evaluation of Stop-RAG as plain-text tables."""

from __future__ import annotations

from pathlib import PurePath

from suffice.bench.repetitions import band, percent_band
from suffice.bench.stop_rag.found import (
    DEFAULT,
    SIGNALS,
    Contender,
    Contrast,
    StopRAGStudy,
)
from suffice.report.tables.text import text_table, titled
from suffice.results.formats import UNKNOWN, amount, counted, decimal, percent, points
from suffice.results.markup import visible


def stop_rag_tables(study: StopRAGStudy) -> str:
    """Every table under its title; without colour codes or a final line feed."""
    blocks = [
        titled(f"{named(study)}: {of_what(study)}"),
        _policies(study),
        _contrasts(study),
        _fits(study),
        titled(worth_of_text(study)),
        *(titled(f"Note: {visible(note)}") for note in study.notes),
        titled(explained(study)),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def named(study: StopRAGStudy) -> str:
    """The file's name."""
    return visible(PurePath(study.source).name)


def of_what(study: StopRAGStudy) -> str:
    """Questions, rounds and trainings in a sentence."""
    wanted = study.settings
    parts = " and ".join(f"{count:,} of {visible(name)}" for name, count in study.fitting.items())
    seeds = wanted.all_seeds
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    return (
        f"{counted(study.questions, 'labelled question')} of split {visible(wanted.split)} scored, learned "
        f"on {parts}; at most {study.rounds} rounds; {counted(len(wanted.variants), 'variant')} in {which}, "
        f"preset {wanted.preset}; F1 and rewards as {wanted.f1_kind} scores them."
    )


def explained(study: StopRAGStudy) -> str:
    """What the figures are."""
    return (
        "Scores, precision, recall and differences in percent; rounds and calls are means a question. In "
        "brackets after a mean: least and greatest over seeds. Differences: F1 of a question averaged over "
        f"seeds, 95% intervals of {study.settings.resamples} paired resamples of the questions (seed "
        f"{study.settings.seed}), which say nothing of luck in training; those that hold at once cover all "
        f"of them ({len(study.contrasts)}) together with 95%."
    )


def worth_of_text(study: StopRAGStudy) -> str:
    """Whether reading documents earns what it costs, as far as both were trained; else empty."""
    found = study.contrast(DEFAULT, SIGNALS)
    if found is None:
        return ""
    seconds = {
        name: sum(fit.state_seconds for fit in each.fits) / len(each.fits)
        for name in (DEFAULT, SIGNALS)
        if (each := study.contender(name)) is not None
    }
    return (
        f"Does text earn its cost? {DEFAULT} minus {SIGNALS}: {points(found.interval)} points of F1, all "
        f"differences at once {simultaneous(found)}, at {milliseconds(seconds[DEFAULT])} ms a state against "
        f"{milliseconds(seconds[SIGNALS])} ms."
    )


def milliseconds(seconds: float) -> str:
    """A duration.

    >>> milliseconds(0.01234)
    '12.34'
    """
    return amount(1000.0 * seconds)


def roles(study: StopRAGStudy) -> str:
    """What the fixed budgets stand for that others are compared with."""
    if study.full == study.best:
        return f"{study.full} is the full budget, and had the best F1 on the questions fitted on."
    return (
        f"{study.full} is the full budget; {study.best} had the best F1 on the questions fitted on, and was "
        "chosen there."
    )


def f1_spread(each: Contender) -> str:
    """F1 in percent, with the least and greatest of several seeds."""
    return percent_band(each.band("f1")) if len(each.runs) > 1 else percent(each.mean("f1"))


def rounds_spread(each: Contender) -> str:
    """Mean rounds, with the least and greatest of several seeds."""
    if len(each.runs) > 1:
        return band(each.band("mean_rounds"))
    return decimal(each.mean("mean_rounds"))


def simultaneous(found: Contrast) -> str:
    """The interval that holds with all others."""
    return f"[{percent(found.low)}, {percent(found.high)}]"


def _policies(study: StopRAGStudy) -> list[str]:
    head = ["policy", "EM", "F1", "Acc", "rounds", "calls", "precision", "recall"]
    rows = [_row(study, each) for each in study.contenders]
    return [*titled(f"What each policy earns and costs. {roles(study)}"), *text_table(head, rows)]


def _row(study: StopRAGStudy, each: Contender) -> list[str]:
    known = bool(study.with_gold_passages)
    return [
        each.name,
        percent(each.mean("em")),
        f1_spread(each),
        percent(each.mean("acc")),
        rounds_spread(each),
        decimal(each.mean("llm_calls")),
        percent(each.mean("precision")) if known else "",
        percent(each.mean("recall")) if known else "",
    ]


def _contrasts(study: StopRAGStudy) -> list[str]:
    head = ["F1 of", "minus that of", "difference [95%]", "all at once [95%]"]
    rows = [
        [each.of, each.against, points(each.interval), simultaneous(each)]
        for each in study.contrasts
    ]
    return [*titled("Differences of F1, paired by question."), *text_table(head, rows, left=2)]


def _fits(study: StopRAGStudy) -> list[str]:
    head = [
        "",
        "seed",
        "F1",
        "rounds",
        "threshold",
        "train on",
        "states",
        "steps",
        "seconds",
        "cut %",
        "ms",
    ]
    rows = [
        [
            each.name,
            str(fit.seed),
            percent(run.f1),
            decimal(run.mean_rounds),
            f"{fit.threshold:+.3f}",
            f"{fit.trajectories:,}",
            f"{fit.informative:,}/{fit.decisions:,}",
            f"{fit.steps:,}",
            f"{fit.seconds:.0f}",
            UNKNOWN if fit.truncated is None else percent(fit.truncated),
            milliseconds(fit.state_seconds),
        ]
        for each in study.of_kind("learned")
        for fit, run in zip(each.fits, each.runs, strict=True)
    ]
    title = (
        "Every training: questions trained on, states in the loss of those before the last, training steps "
        "and seconds, states cut to the window, milliseconds to value a state on this machine."
    )
    return [*titled(title), *text_table(head, rows, gap=1)]
