"""The evaluation of Stop-RAG as tables, and as one page: F1 against rounds, differences, every number."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePath
from string import ascii_uppercase

from studies.repetitions import band, percent_band, seeds_named
from studies.stop_rag.results import DEFAULT, SIGNALS, Contender, F1Difference, StopRAGStudy
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.marks import key
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, columns, folded, listed, plain, stacked
from suffice.results.formats import amount, counted, decimal, percent, points
from suffice.results.markup import Html, element, join, visible
from suffice.results.table import Cell, Column, Table, notes_table


# --- words ----------------------------------------------------------------------------------------
def named(study: StopRAGStudy) -> str:
    """The file's name."""
    return visible(PurePath(study.source).name)


def of_what(study: StopRAGStudy) -> str:
    """Questions, rounds and trainings in a sentence."""
    wanted = study.settings
    parts = " and ".join(f"{count:,} of {visible(name)}" for name, count in study.fitting.items())
    seeds = wanted.all_seeds
    return (
        f"{counted(study.questions, 'labelled question')} of split {visible(wanted.split)} scored, learned "
        f"on {parts}; at most {study.rounds} rounds; {counted(len(wanted.variants), 'variant')} in "
        f"{seeds_named(seeds[0], len(seeds))}, "
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
    contrast = study.contrast(DEFAULT, SIGNALS)
    if contrast is None:
        return ""
    seconds = {
        name: sum(fit.state_seconds for fit in policy.fits) / len(policy.fits)
        for name in (DEFAULT, SIGNALS)
        if (policy := study.contender(name)) is not None
    }
    return (
        f"Does text earn its cost? {DEFAULT} minus {SIGNALS}: {points(contrast.interval)} points of F1, all "
        f"differences at once {simultaneous(contrast)}, at {milliseconds(seconds[DEFAULT])} ms a state "
        f"against {milliseconds(seconds[SIGNALS])} ms."
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


def f1_spread(policy: Contender) -> str:
    """F1 in percent, with the least and greatest of several seeds."""
    return percent_band(policy.band("f1")) if len(policy.runs) > 1 else percent(policy.mean("f1"))


def rounds_spread(policy: Contender) -> str:
    """Mean rounds, with the least and greatest of several seeds."""
    if len(policy.runs) > 1:
        return band(policy.band("mean_rounds"))
    return decimal(policy.mean("mean_rounds"))


def simultaneous(contrast: F1Difference) -> str:
    """The interval that holds with all others."""
    return f"[{percent(contrast.low)}, {percent(contrast.high)}]"


# --- tables ---------------------------------------------------------------------------------------
def tables_of(study: StopRAGStudy) -> tuple[Table, ...]:
    """Every policy, differences, trainings."""
    worth = worth_of_text(study)
    return (
        Table(name="record", title=f"{named(study)}: {of_what(study)}"),
        _policies(study),
        _contrasts(study),
        _fits(study),
        *([Table(name="worth of text", title=worth)] if worth else []),
        *notes_table(study.notes),
        Table(name="explanation", title=explained(study)),
    )


def _policies(study: StopRAGStudy) -> Table:
    known = bool(study.with_gold_passages)
    quality = ("precision", "recall") if known else ()
    return Table(
        name="policies",
        title=f"What each policy earns and costs. {roles(study)}",
        columns=[
            Column(name="policy"),
            Column(name="em", head="EM", kind="percent"),
            Column(name="f1", head="F1", kind="percent", interval=True),
            Column(name="acc", head="Acc", kind="percent"),
            Column(name="rounds", kind="number", digits=2, interval=True),
            Column(name="calls", kind="number", digits=2),
            *(Column(name=name, kind="percent") for name in quality),
        ],
        rows=[
            (
                policy.name,
                policy.mean("em"),
                Cell(policy.band("f1"), f1_spread(policy)),
                policy.mean("acc"),
                Cell(policy.band("mean_rounds"), rounds_spread(policy)),
                policy.mean("llm_calls"),
                *(policy.mean(name) for name in quality),
            )
            for policy in study.contenders
        ],
    )


def _contrasts(study: StopRAGStudy) -> Table:
    return Table(
        name="differences",
        title="Differences of F1, paired by question.",
        columns=[
            Column(name="of", head="F1 of"),
            Column(name="against", head="minus that of"),
            Column(name="difference", head="difference [95%]", kind="points", interval=True),
            Column(name="at_once", head="all at once [95%]", kind="points", interval=True),
        ],
        rows=[
            (
                contrast.of,
                contrast.against,
                contrast.interval,
                Cell(
                    replace(contrast.interval, low=contrast.low, high=contrast.high),
                    simultaneous(contrast),
                ),
            )
            for contrast in study.contrasts
        ],
        names=2,
    )


def _fits(study: StopRAGStudy) -> Table:
    trainings = [
        (policy.name, fit, run)
        for policy in study.of_kind("learned")
        for fit, run in zip(policy.fits, policy.runs, strict=True)
    ]
    return Table(
        name="trainings",
        title="Every training: questions trained on, states in the loss of those before the last, questions "
        "validated on, training steps and seconds, states cut to the window, milliseconds to value a state "
        "on this machine.",
        columns=[
            Column(name="variant", head=""),
            Column(name="seed", kind="number", digits=0),
            Column(name="f1", head="F1", kind="percent"),
            Column(name="rounds", kind="number", digits=2),
            Column(name="threshold", kind="number", digits=3, signed=True),
            Column(name="questions", head="train on", kind="count"),
            Column(name="states"),
            Column(name="validated", kind="count"),
            Column(name="steps", kind="count"),
            Column(name="seconds", kind="number", digits=0),
            Column(name="cut", head="cut %", kind="percent"),
            Column(name="ms", kind="number"),
        ],
        rows=[
            (
                variant,
                Cell(fit.seed, str(fit.seed)),
                run.f1,
                run.mean_rounds,
                fit.threshold,
                fit.trajectories,
                f"{fit.informative:,}/{fit.decisions:,}",
                fit.validated,
                fit.steps,
                Cell(fit.seconds, f"{fit.seconds:.0f}"),
                fit.truncated,
                1000.0 * fit.state_seconds,
            )
            for variant, fit, run in trainings
        ],
    )


# --- page -----------------------------------------------------------------------------------------
def stop_rag_page(study: StopRAGStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    worth = worth_of_text(study)
    blocks: list[Block] = [
        plain(of_what(study)),
        plain(worth) if worth else Html(),
        _frontier(study),
        _differences(study),
        folded("Every policy and seed", element("div", _every_run(study), class_="rules")),
        folded("Every training", element("div", _fits(study).html(), class_="rules")),
        listed(map(visible, study.notes)),
    ]
    return study_page(
        "Stop-RAG: what a learned value of stopping is worth",
        "Suffice bench stop-rag",
        "Stop-RAG: is it worth learning when to stop?",
        plain(roles(study), " ", explained(study)),
        main=[element("section", element("h2", named(study)), stacked(blocks), class_="more")],
    )


# --- F1 against rounds ---------------------------------------------------------------------------
def _frontier(study: StopRAGStudy) -> Chart:
    letters = iter(ascii_uppercase)
    contenders = study.of_kind("learned", "llm-stop", "fixed")
    marks = [
        contender.name.partition("-")[2] if contender.kind == "fixed" else next(letters)
        for contender in contenders
    ]
    marked = [_point(contender, mark) for contender, mark in zip(contenders, marks, strict=True)]
    heading = "F1 against mean rounds"
    chart = Scatter(
        title=heading,
        description=f"{len(marked)} policies; the key names the marks, the table has the numbers.",
        x_name="mean rounds",
        y_name="F1, %",
        points=marked,
        frontier=[(point.x, point.y) for point in marked if point.family == "fixed"],
    )
    adaptive = (
        (point.mark, point.family, contender.name)
        for point, contender in zip(marked, contenders, strict=True)
        if point.family == "adaptive"
    )
    caption = (
        "Up is better, left is cheaper. Line and squares: fixed budgets. Small points: the seeds of a "
        "variant, whose mean is the circle. The oracle is in the table only."
    )
    table = columns(
        "F1 and rounds of every policy",
        study.contenders,
        ("policy", lambda contender: contender.name),
        ("F1 %, seeds", f1_spread),
        ("rounds, seeds", rounds_spread),
    )
    return Chart(
        heading=heading,
        pictures=[scatter(chart)],
        caption=join([key(adaptive), caption]),
        table=table,
    )


def _point(contender: Contender, mark: str) -> Point:
    rounds, f1 = contender.point
    runs = contender.runs if len(contender.runs) > 1 else ()
    return Point(
        mark=mark,
        family="fixed" if contender.kind == "fixed" else "adaptive",
        x=rounds,
        y=f1,
        name=f"{mark}  {contender.name}",
        said=f"F1 {percent(f1)}%, {decimal(rounds)} rounds",
        around=[(run.mean_rounds, run.f1) for run in runs],
    )


# --- differences ---------------------------------------------------------------------------------
def _differences(study: StopRAGStudy) -> Chart:
    heading = "Differences of F1"
    chart = Forest(
        title=heading,
        description="One row a difference, with both intervals; the numbers are in the table below.",
        rows=[
            ForestRow(name=_pair(contrast), estimates=[_estimated(contrast)])
            for contrast in study.contrasts
        ],
        none=(0.0, "no difference"),
        x_name="points of F1",
    )
    return Chart(
        heading=heading,
        pictures=[forest(chart)],
        caption="Points of F1, paired by question, averaged over seeds. Thick: the 95% interval of each; "
        "thin: those that hold for all at once. Right of the line the first is better.",
        table=_contrasts(study).html(),
    )


def _pair(contrast: F1Difference) -> str:
    return f"{contrast.of} - {contrast.against}"


def _estimated(contrast: F1Difference) -> Estimated:
    interval = contrast.interval
    return Estimated(
        family="adaptive",
        value=100 * interval.estimate,
        hint=f"{_pair(contrast)}: {points(interval)}",
        interval=(100 * interval.low, 100 * interval.high),
        wide=(100 * contrast.low, 100 * contrast.high),
    )


# --- everything ----------------------------------------------------------------------------------
def _every_run(study: StopRAGStudy) -> Html:
    return columns(
        "Every policy in every seed",
        [(contender.name, run) for contender in study.contenders for run in contender.runs],
        ("policy", lambda row: row[0] if row[1].seed is None else f"{row[0]}, seed {row[1].seed}"),
        ("EM %", lambda row: percent(row[1].em)),
        ("F1 %", lambda row: percent(row[1].f1)),
        ("Acc %", lambda row: percent(row[1].acc)),
        ("rounds", lambda row: decimal(row[1].mean_rounds)),
        ("calls", lambda row: decimal(row[1].llm_calls)),
        ("precision %", lambda row: percent(row[1].precision)),
        ("recall %", lambda row: percent(row[1].recall)),
    )
