"""What signals say about right and wrong answers, in tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from suffice.results.formats import UNKNOWN, count, counted
from suffice.results.markup import visible
from suffice.results.table import (
    Cell,
    Column,
    Described,
    Table,
    Tone,
    Value,
    estimate_column,
    table_of,
)
from suffice.stats.auroc import Use

if TYPE_CHECKING:
    from suffice.replay.diagnose.signal_diagnostics import Diagnostics

_MOST_IN_DETAIL = 3  # signals whose means by round are shown
NAME_WIDTH = 24
POLICY = Column(name="policy", most=NAME_WIDTH)
_SIGNAL = Column(name="signal", most=NAME_WIDTH)
USE = Column(name="use")
_TONES: Mapping[Use, Tone] = {"useful": "good", "misleading": "bad"}


def signal_tables(diagnostics: Diagnostics) -> Iterator[Table]:
    """AUROC and d of every signal, by round, by type and by value, and what speaks against it."""
    if not diagnostics.signals:
        yield Table(name="signals", title="No signal is defined in these traces.")
        return
    yield _areas(diagnostics)
    title = "Cohen's d, signed: positive where right answers have the higher values."
    yield _by_part(diagnostics, "distances", title, "d", "d_signed", drifts=True)
    title = "Pearson's r of each signal with exact match (0 or 1), all rounds pooled."
    yield _by_part(diagnostics, "pearson", title, "r", "pearson")
    for part in diagnostics.parts:
        yield _by_round(diagnostics, part)
    if len(diagnostics.signals) <= _MOST_IN_DETAIL:
        yield from _in_detail(diagnostics)
    yield from _concentrations(diagnostics)
    yield from _margins(diagnostics)
    yield from _wrong_and_stable(diagnostics)
    if len(diagnostics.signals) > 1:
        yield _correlated(diagnostics)
    yield from _by_type(diagnostics)
    yield from _flags(diagnostics)


def _areas(diagnostics: Diagnostics) -> Table:
    parts = [*diagnostics.parts]
    described: list[Described] = [
        ("name", _SIGNAL),
        (
            lambda signal: "low" if signal["direction"] == "low" else None,
            Column(name="direction", head=""),
        ),
        (lambda signal: use_cell(signal["use"]), USE),
    ]
    for part in parts:
        column = estimate_column(f"{part}: auroc", f"AUROC {part}")
        described.append((partial(_pooled, part, "auroc"), column))
    described += [("drift_auroc", _DRIFT)] * (len(parts) > 1)
    for part in parts:
        column = replace(_defined(f"{part}: defined", f"% def.\n{part}"), drop=2)
        described.append((partial(_pooled, part, "defined"), column))
    notes = (
        "AUROC of each signal against exact match, all rounds pooled (0.5: no better than chance). "
        "low: low values speak for stopping, and AUROC is that of the negated signal. Useful: the interval "
        f"on {parts[-1]} lies above 0.5; uninformative: it holds 0.5. Each interval counts one signal alone: "
        "of many, a few lie above by chance.",
        _figures(diagnostics),
    )
    title = f"What are the signals worth here? {diagnostics.verdict}"
    return table_of("signals", diagnostics.signals, described, title, notes)


_DRIFT = replace(estimate_column("drift", "drift", signed=True), drop=1)


def use_cell(use: Use) -> Cell:
    """What an AUROC is worth; empty where that is not known."""
    shown = "" if use == "unknown" else use
    return Cell(use, shown, _TONES.get(use))


def _defined(name: str, head: str) -> Column:
    return Column(name=name, kind="percent", digits=0, head=head)


def _figures(diagnostics: Diagnostics) -> str:
    names = [*diagnostics.parts]
    parts = "; ".join(
        f"{name}: {counted(part['questions'], 'question')}, {count(part['labelled'])} with gold answers, "
        f"{counted(part['rounds'], 'round')}"
        for name, part in diagnostics.parts.items()
    )
    drift = f"drift: {names[1]} minus {names[0]}. " if len(names) > 1 else ""
    return (
        f"{parts}. Brackets: 95% intervals of {diagnostics.resamples} {diagnostics.draws} (seed "
        f"{diagnostics.seed}). {drift}{UNKNOWN}: undefined; --json says why."
    )


def _by_part(
    diagnostics: Diagnostics, name: str, title: str, letter: str, of: str, *, drifts: bool = False
) -> Table:
    """A signed figure of every signal on every part, all rounds pooled, perhaps with its drift."""
    described: list[Described] = [("name", _SIGNAL)]
    for part in diagnostics.parts:
        column = estimate_column(f"{part}: {letter}", f"{letter} {part}", signed=True)
        described.append((partial(_pooled, part, of), column))
    if drifts and len(diagnostics.parts) > 1:
        described.append(("drift_d", _DRIFT))
    return table_of(name, diagnostics.signals, described, title)


def _pooled(part: str, of: str, signal: Mapping[str, Any]) -> Value:
    value: Value = signal["parts"][part][of]
    return value


def _margins(diagnostics: Diagnostics) -> Iterator[Table]:
    known = [
        {"part": name, **part["margins"]}
        for name, part in diagnostics.parts.items()
        if part["margins"] is not None
    ]
    if not known:
        return
    of = "" if diagnostics.model is None else f" of {visible(diagnostics.model)}"
    reasons = dict.fromkeys(margins["reason"] for margins in known)
    yield table_of(
        "margins",
        known,
        (
            ("part", Column(name="part", head="on")),
            ("rounds", Column(name="rounds", kind="count")),
            ("raw", Column(name="raw", kind="number", digits=2, head="raw, nats")),
            ("calibrated", Column(name="calibrated", kind="number", digits=2)),
            ("em", Column(name="em", kind="number", digits=2, head="EM")),
        ),
        title=f"Mean margin of the answer's first token{of}, all rounds pooled: raw, and calibrated to "
        "P(EM = 1) by one isotonic map a round, fitted on tune (on tune itself out of fold). A large raw "
        "margin with a small calibrated one is overconfidence.",
        notes=[f"Not calibrated: {reason}" for reason in reasons if reason is not None],
    )


def _wrong_and_stable(diagnostics: Diagnostics) -> Iterator[Table]:
    known = {
        name: part["wrong_and_stable"]
        for name, part in diagnostics.parts.items()
        if part["wrong_and_stable"] is not None
    }
    if not known:
        return
    rounds = max(len(shares["rounds"]) for shares in known.values())
    columns = (
        Column(name="part", head="on"),
        Column(name="answers", kind="count"),
        Column(name="stable", kind="percent", head="stable %"),
        Column(name="wrong_and_stable", kind="percent", head="wrong and\nstable %"),
        *(
            Column(name=f"round_{number}", kind="percent", head=f"round {number}")
            for number in range(2, rounds + 2)
        ),
        Column(name="first_wrong", kind="percent", head="first stable\none wrong %"),
    )
    rows: list[list[Value]] = [
        [
            name,
            *(shares["overall"][of] for of in ("answers", "stable", "wrong_and_stable")),
            *(one["wrong_and_stable"] for one in shares["rounds"]),
            *[None] * (rounds - len(shares["rounds"])),
            shares["first_wrong"],
        ]
        for name, shares in known.items()
    ]
    yield Table(
        name="wrong and stable",
        title="Answers that repeat the round before and are wrong, in percent of the labelled answers that "
        "could repeat it, overall and by round; last, in percent of the questions, those whose first stable "
        "answer is wrong.",
        columns=columns,
        rows=rows,
    )


def _by_round(diagnostics: Diagnostics, part: str) -> Table:
    of_signals = [signal["parts"][part]["rounds"] for signal in diagnostics.signals]
    rounds = max(len(of) for of in of_signals)
    columns = [_SIGNAL]
    for number in range(1, rounds + 1):
        head = f"round {number}"
        columns.append(Column(name=f"round_{number}", kind="number", digits=2, head=head))
    rows: list[list[Value]] = []
    for signal, of in zip(diagnostics.signals, of_signals, strict=True):
        values = [on_round["auroc"].estimate for on_round in of]
        rows.append([signal["name"], *values, *[Cell(None, "")] * (rounds - len(values))])
    title = f"AUROC by round on {part}."
    return Table(name=f"rounds on {part}", title=title, columns=columns, rows=rows)


def _in_detail(diagnostics: Diagnostics) -> Iterator[Table]:
    described: list[Described] = [
        ("round", Column(name="round", kind="count")),
        ("defined", _defined("defined", "% defined")),
    ]
    for kind in ("right", "wrong"):
        for name, head in ((f"mean_{kind}", kind), (f"sd_{kind}", "(SD)")):
            described.append((name, Column(name=name, kind="significant", digits=3, head=head)))
        described.append((kind, Column(name=kind, kind="count", head="n")))
    described += [
        ("d_signed", estimate_column("d", "d", signed=True)),
        ("auroc", estimate_column("auroc", "AUROC")),
    ]
    for signal in diagnostics.signals:
        for part, on in signal["parts"].items():
            title = f"{signal['name']} by round on {part}, mean (SD)."
            yield table_of(f"{signal['name']} on {part}", on["rounds"], described, title)


def _concentrations(diagnostics: Diagnostics) -> Iterator[Table]:
    rows: list[list[Value]] = [
        [signal["name"], part, on["distinct"], *on["concentration"].values()]
        for signal in diagnostics.signals
        for part, on in signal["parts"].items()
        if on["concentration"] is not None
    ]
    columns = (
        _SIGNAL,
        Column(name="part", head="on"),
        Column(name="distinct", kind="count", head="values"),
        Column(name="entropy_nats", kind="number", digits=2, head="entropy, nats"),
        Column(name="mode", kind="significant"),
        Column(name="mode_share", kind="percent", head="mode's share, %"),
    )
    title = "Signals of at most 12 values: near 0, one value is given nearly always."
    if rows:
        yield Table(name="concentrations", title=title, columns=columns, rows=rows, names=2)


def _correlated(diagnostics: Diagnostics) -> Table:
    correlations = diagnostics.parts[diagnostics.last]["correlations"]
    columns = [Column(name="number", kind="count", head=""), _SIGNAL]
    rows: list[list[Value]] = []
    named = zip(correlations["signals"], correlations["rho"], strict=True)
    for number, (name, row) in enumerate(named, start=1):
        head = str(number)
        columns.append(Column(name=f"rho_{number}", kind="percent", digits=0, head=head))
        shown = (rho if at < number else Cell(rho, "") for at, rho in enumerate(row, start=1))
        rows.append([number, name, *shown])
    title = f"Spearman's rank correlation in hundredths, on {diagnostics.last}."
    return Table(name="correlations", title=title, columns=columns, rows=rows, names=2)


def _by_type(diagnostics: Diagnostics) -> Iterator[Table]:
    part = diagnostics.last
    types = list(diagnostics.signals[0]["parts"][part]["types"])
    described: list[Described] = [("name", _SIGNAL)]
    for kind in types:
        of_kind = partial(lambda kind, signal: signal["parts"][part]["types"][kind]["auroc"], kind)
        described.append((of_kind, estimate_column(f"{kind}: auroc", kind)))
    title = f"AUROC by question type on {part}, all rounds pooled."
    if len(types) > 1:
        yield table_of("types", diagnostics.signals, described, title)


def _flags(diagnostics: Diagnostics) -> Iterator[Table]:
    rows = [
        (flag.kind, signal["name"], flag.message)
        for signal in diagnostics.signals
        for flag in signal["flags"]
    ]
    columns = (Column(name="flag"), _SIGNAL, Column(name="message", head=""))
    if rows:
        title = "What speaks against signals:"
        yield Table(name="flags", title=title, columns=columns, rows=rows, names=2)
