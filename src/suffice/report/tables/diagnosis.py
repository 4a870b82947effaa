"""The diagnosis as plain-text tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from suffice.numbers.intervals.estimate import Estimate
from suffice.replay.diagnose.breakdown import TypeBreakdown
from suffice.replay.diagnose.diagnosis import Diagnosis
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, Part, SignalDiagnostics
from suffice.report.tables.calibrators import calibrator_tables
from suffice.report.tables.selective import selective_table
from suffice.report.tables.text import WIDTH, one_line_name, text_table, titled
from suffice.results.formats import UNKNOWN, count, counted, decimal, estimated, percent, points
from suffice.results.markup import visible

_MOST_IN_DETAIL = 3  # signals whose means by round are printed; --json has those of all
_MOST_CORRELATED = 18  # signals whose matrix fits a line


def diagnosis_tables(found: Diagnosis) -> str:
    """Every table, each under its title, then notes; without colour codes or a final line feed."""
    blocks = [
        *_signal_tables(found.signals),
        _flags(found.signals.signals),
        *_type_tables(found.types, found.replayed.baseline),
        selective_table(found.selective),
        *_calibrators(found),
        _footnotes(found),
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _value(found: Estimate) -> str:
    return decimal(found.estimate)


def _oriented(each: SignalDiagnostics) -> str:
    return (
        f"{one_line_name(each.name)} (low)" if each.direction == "low" else one_line_name(each.name)
    )


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3g}"


# --- signals -------------------------------------------------------------------------------------
def _signal_tables(found: Diagnostics) -> Iterator[list[str]]:
    if not found.signals:
        yield ["No signal is defined in these traces."]
        return
    yield _areas(found)
    yield _distances(found)
    yield from _by_round(found)
    if len(found.signals) <= _MOST_IN_DETAIL:
        yield from _in_detail(found)
    yield _concentrations(found)
    yield from (_correlated(part) for part in found.parts[-1:])
    yield _by_type(found)


def _areas(found: Diagnostics) -> list[str]:
    parts = [part.name for part in found.parts]
    rows = [
        [
            _oriented(each),
            "/".join(f"{100 * each.parts[part].defined:.0f}" for part in parts),
            *(estimated(each.parts[part].pooled.auroc) for part in parts),
            estimated(each.drift_auroc, sign=True) if len(parts) > 1 else "",
        ]
        for each in found.signals
    ]
    head = [
        "signal",
        "% defined",
        *(f"AUROC {part}" for part in parts),
        "drift",
    ]
    title = (
        "AUROC of each signal against exact match, all rounds pooled (0.5: no better than chance). "
        "(low): low values speak for stopping, and AUROC is that of the negated signal."
    )
    return [*titled(title), *text_table(head, rows)]


def _distances(found: Diagnostics) -> list[str]:
    parts = [part.name for part in found.parts]
    rows = [
        [
            one_line_name(each.name),
            *(estimated(each.parts[part].pooled.d_signed, sign=True) for part in parts),
            estimated(each.drift_d, sign=True) if len(parts) > 1 else "",
        ]
        for each in found.signals
    ]
    head = ["signal", *(f"d {part}" for part in parts), "drift"]
    title = "Cohen's d, signed: positive where right answers have the higher values."
    return [*titled(title), *text_table(head, rows)]


def _by_round(found: Diagnostics) -> Iterator[list[str]]:
    for part in found.parts:
        rounds = max(len(each.parts[part.name].rounds) for each in found.signals)
        rows = [
            [
                one_line_name(each.name),
                *(_value(one.separation.auroc) for one in each.parts[part.name].rounds),
            ]
            for each in found.signals
        ]
        head = ["signal", *(f"round {number}" for number in range(1, rounds + 1))]
        yield [*titled(f"AUROC by round on {part.name}."), *text_table(head, rows)]


def _in_detail(found: Diagnostics) -> Iterator[list[str]]:
    for each in found.signals:
        for part, on in each.parts.items():
            rows = [
                [
                    str(one.round),
                    f"{100 * one.defined:.0f}",
                    f"{_number(one.separation.mean_right)} ({_number(one.separation.sd_right)})",
                    count(one.separation.right),
                    f"{_number(one.separation.mean_wrong)} ({_number(one.separation.sd_wrong)})",
                    count(one.separation.wrong),
                    estimated(one.separation.d_signed, sign=True),
                    estimated(one.separation.auroc),
                ]
                for one in on.rounds
            ]
            head = ["round", "% defined", "right", "n", "wrong", "n", "d", "AUROC"]
            yield [
                *titled(f"{visible(each.name)} by round on {part}, mean (SD)."),
                *text_table(head, rows),
            ]


def _concentrations(found: Diagnostics) -> list[str]:
    rows = [
        [
            one_line_name(each.name),
            part,
            str(on.distinct),
            f"{on.concentration.entropy_bits:z.2f}",
            f"{on.concentration.mode:g}",
            f"{100 * on.concentration.mode_share:.1f}",
        ]
        for each in found.signals
        for part, on in each.parts.items()
        if on.concentration is not None
    ]
    if not rows:
        return []
    head = ["signal", "on", "values", "entropy, bits", "mode", "mode's share, %"]
    title = "Signals of at most 12 values: near 0 bits, one value is given nearly always."
    return [*titled(title), *text_table(head, rows, left=2)]


def _correlated(part: Part) -> list[str]:
    found = part.correlations
    names = found.signals[:_MOST_CORRELATED]
    if len(names) < 2:
        return []
    rows = [
        [
            f"{row:2d} {one_line_name(name)}",
            *(_hundredths(rho) for rho in found.rho[row - 1][: row - 1]),
        ]
        + [""] * (len(names) - row + 1)
        for row, name in enumerate(names, start=1)
    ]
    head = ["signal", *(str(column) for column in range(1, len(names) + 1))]
    left_out = len(found.signals) - len(names)
    more = f" The first {len(names)} signals; --json has all." if left_out else ""
    title = f"Spearman's rank correlation in hundredths, on {part.name}.{more}"
    return [*titled(title), *text_table(head, rows, gap=1)]


def _hundredths(rho: float | None) -> str:
    return UNKNOWN if rho is None else f"{100 * rho:z.0f}"


def _by_type(found: Diagnostics) -> list[str]:
    part = found.parts[-1].name
    types = list(found.signals[0].parts[part].types)
    if len(types) < 2:
        return []
    rows = [
        [
            one_line_name(each.name),
            *(estimated(each.parts[part].types[kind].auroc) for kind in types),
        ]
        for each in found.signals
    ]
    blocks = []
    for start in range(0, len(types), 3):
        head = ["signal", *(one_line_name(kind, 18) for kind in types[start : start + 3])]
        blocks += text_table(head, ([row[0], *row[1 + start : 4 + start]] for row in rows))
    return [*titled(f"AUROC by question type on {part}, all rounds pooled."), *blocks]


def _flags(signals: Sequence[SignalDiagnostics]) -> list[str]:
    lines = [
        line
        for each in signals
        for flag in each.flags
        for line in wrap(
            f"{flag.kind}: {visible(each.name)} {visible(flag.message)}",
            WIDTH,
            subsequent_indent="    ",
        )
    ]
    return ["What speaks against signals:", *lines] if lines else []


# --- policies ------------------------------------------------------------------------------------
def _type_tables(types: Sequence[TypeBreakdown], baseline: str) -> Iterator[list[str]]:
    if not any(each.type is not None for each in types):
        return
    rows = []
    for each in types:
        name = "(no type)" if each.type is None else one_line_name(each.type)
        few = " (few)" if each.few else ""
        for number, scores in enumerate(each.policies):
            delta = "(baseline)" if scores.policy == baseline else points(scores.delta_f1)
            rows.append(
                [
                    f"{name}{few}" if number == 0 else "",
                    one_line_name(scores.policy),
                    count(each.labelled),
                    percent(scores.em),
                    percent(scores.f1),
                    decimal(scores.mean_rounds),
                    delta,
                ]
            )
    head = ["type", "policy", "n", "EM", "F1", "rounds", "delta F1 [95%]"]
    title = "Policies by question type; EM, F1 and differences in percent. Few: under 10 questions."
    yield [*titled(title), *text_table(head, rows, left=2)]


def _calibrators(found: Diagnosis) -> list[list[str]]:
    if found.calibrators is not None:
        return calibrator_tables(found.calibrators)
    return [wrap(f"Calibrators are not compared: {visible(found.no_calibrators or '')}", WIDTH)]


def _footnotes(found: Diagnosis) -> list[str]:
    signals = found.signals
    parts = "; ".join(
        f"{part.name}: {counted(part.questions, 'question')}, {count(part.labelled)} with gold answers, "
        f"{counted(part.rounds, 'round')}"
        for part in signals.parts
    )
    names = [part.name for part in signals.parts]
    drift = f"drift: {names[1]} minus {names[0]}. " if len(names) > 1 else ""
    text = (
        f"{parts}. Brackets: 95% intervals of {signals.resamples} resamples of the questions (seed "
        f"{signals.seed}). {drift}{UNKNOWN}: undefined; --json says why."
    )
    notes = [line for note in found.notes for line in wrap(f"Note: {visible(note)}", WIDTH)]
    policies = [(one_line_name(each.name), each.name) for each in found.replayed.policies]
    full = [f"{short} is in full: {visible(name)}" for short, name in policies if short != name]
    return [*wrap(text, WIDTH), *full, *notes]
