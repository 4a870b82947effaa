"""The evaluation of MiCP as plain-text tables."""

from __future__ import annotations

from pathlib import PurePath

from suffice.bench.micp.found import BASELINE, WAYS, MiCPCell, MiCPStudy, MiCPTraces, Way
from suffice.bench.repetitions import band, percent_band
from suffice.policies.method import Preset
from suffice.report.tables.text import text_table, titled
from suffice.results.formats import counted, percent
from suffice.results.markup import visible

OURS: Way = "composite"
_USUAL = 0.1


def micp_tables(study: MiCPStudy, *, at: float | None = None) -> str:
    """Every table under its title; without colour codes or a final line feed.

    ``at`` is the alpha of the tables of rounds and sets (default: see :func:`shown_alpha`).
    """
    alpha = shown_alpha(study, at)
    blocks = []
    for each in study.traces:
        blocks.append(titled(f"{named(each)}: {of_what(study, each)}"))
        blocks += [_table_1(each, preset, alpha) for preset in study.settings.presets]
        blocks += [_coverage(study, each, preset) for preset in study.settings.presets]
        blocks.append(_retention(study, each))
        blocks += [titled(f"Note: {visible(note)}") for note in each.notes]
    blocks.append(
        titled(
            "In brackets: least and greatest over divisions of the same questions, a band and no confidence "
            "interval. Exact: 95% interval (Clopper and Pearson) of what the first division's thresholds "
            "cover; the promise is about the mean over calibrations. Low objectives are good."
        )
    )
    return "\n\n".join("\n".join(block) for block in blocks if block)


def shown_alpha(study: MiCPStudy, at: float | None = None) -> float:
    """The alpha asked for if it was evaluated, else 0.1 if that was, else the first."""
    alphas = study.settings.alphas
    return next((each for each in (at, _USUAL) if each in alphas and each is not None), alphas[0])


def named(each: MiCPTraces) -> str:
    """The file's name and, where the record states it, the pipeline."""
    record = each.record
    pipeline = "" if record.pipeline is None else f" ({visible(record.pipeline)})"
    return f"{visible(PurePath(record.source).name)}{pipeline}"


def of_what(study: MiCPStudy, each: MiCPTraces) -> str:
    """Questions, rounds and divisions of a trace set in a sentence."""
    record, seeds = each.record, study.settings
    last = seeds.seed + seeds.divisions - 1
    which = f"seed {seeds.seed}" if seeds.divisions == 1 else f"seeds {seeds.seed} to {last}"
    return (
        f"{counted(len(record.question_ids), 'labelled question')}, {each.parts[0]:,} to optimise, "
        f"{each.parts[1]:,} to calibrate on, {each.parts[2]:,} to test; {record.rounds} rounds of "
        f"{record.samples} samples; {counted(seeds.divisions, 'random division')} ({which})."
    )


def target(alpha: float) -> str:
    """1 - alpha in percent.

    >>> target(0.29)
    '71'
    """
    return f"{100 * (1 - alpha):.6g}"


def _table_1(each: MiCPTraces, preset: Preset, alpha: float) -> list[str]:
    head = ["budget for", "coverage %", "rounds", "set size", "answer rate %", "objective"]
    rows = []
    for way in WAYS:
        cell = each.cell(alpha, preset, way)
        rows.append(
            [
                way,
                percent_band(cell.band("coverage")),
                band(cell.band("mean_rounds")),
                band(cell.band("set_size"), 1),
                percent_band(cell.band("answer_rate"), 0),
                band(cell.band("objective")),
            ]
        )
    title = f"{preset.capitalize()}, alpha {alpha:g}: by what the error budget is divided for."
    return [*titled(title), *text_table(head, rows, gap=1)]


def _coverage(study: MiCPStudy, each: MiCPTraces, preset: Preset) -> list[str]:
    head = [
        "target %",
        "coverage %",
        f"seed {study.settings.seed} exact",
        "rounds",
        "set size",
        "no stop: coverage",
        "set size",
    ]
    rows = []
    for alpha in study.settings.alphas:
        ours, without = each.cell(alpha, preset, OURS), each.cell(alpha, preset, BASELINE)
        rows.append(
            [
                target(alpha),
                percent_band(ours.band("coverage")),
                _exact(ours),
                band(ours.band("mean_rounds")),
                f"{ours.band('set_size').mean:.2f}",
                percent_band(without.band("coverage")),
                f"{without.band('set_size').mean:.2f}",
            ]
        )
    title = f"{preset.capitalize()}: coverage against target, budget divided for {OURS}."
    return [*titled(title), *text_table(head, rows, left=0, gap=1)]


def _exact(cell: MiCPCell) -> str:
    low, high = cell.divisions[0].exact
    return f"[{percent(low)}, {percent(high)}]"


def _retention(study: MiCPStudy, each: MiCPTraces) -> list[str]:
    if not each.retention:
        return []
    promised = {"published": "passages kept", "corrected": "all kept"}
    other = {"published": "all kept", "corrected": "passages"}
    presets = study.settings.presets
    head = ["target %"]
    for preset in presets:
        head += [f"{preset}: {promised[preset]}", other[preset], "shown"]
    found = {(one.alpha, one.preset): one for one in each.retention}
    rows = []
    for alpha in study.settings.alphas:
        row = [target(alpha)]
        for preset in presets:
            cell = found[alpha, preset]
            rest = cell.band("all" if preset == "published" else "passages")
            means = [None if one is None else one.mean for one in (rest, cell.band("shown"))]
            row += [percent_band(cell.promised), *map(percent, means)]
        rows.append(row)
    title = (
        "The passage filter, in percent: right passages kept (mean over questions), questions that keep "
        "all of theirs, and passages still shown. Each preset promises its first column."
    )
    return [*titled(title), *text_table(head, rows, left=0)]
