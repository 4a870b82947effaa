"""Diagnosis of every signal against right and wrong answers, on tune and on eval, and its tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import SufficeWarning, UsageError, attempt, counted
from suffice.evaluation.diagnose.gains import gains, gains_table
from suffice.evaluation.diagnose.signal_checks import Rows, separations, signal_flags
from suffice.evaluation.settings import DiagnosisSettings
from suffice.measures.measures import Measures
from suffice.policies.defaults import MARGIN
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.results.as_json import fields_as_json
from suffice.results.formats import UNKNOWN, count
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
from suffice.results.tabular import Tabular
from suffice.signals.columns.arrays import Texts
from suffice.signals.known_signals import SIGNALS, resolve
from suffice.signals.signal_table import given_signals, lack, nowhere_defined
from suffice.stats.auroc import USES, Use, auroc_use
from suffice.stats.intervals import Estimate, difference
from suffice.stats.units import Array, Mask, numbered_units
from suffice.trace.rounds.trace_set import TraceSet

ALL_QUESTIONS = "all"
_MOST_NAMED = 5
_MOST_VALUES = 12  # a signal with more has no mode worth the name


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnostics(Tabular):
    """Signals side by side on the parts of a record: tune and eval, or all questions; as in JSON."""

    source: str = field(metadata={"json": "traces"})
    model: str | None
    parts: Mapping[str, Mapping[str, Any]]
    signals: tuple[Mapping[str, Any], ...]
    gains: Mapping[str, Any] | None
    skipped: Mapping[str, str]
    resamples: int = field(metadata={"json": "bootstrap"})
    seed: int
    notes: tuple[str, ...]

    @property
    def last(self) -> str:
        """The part that decides the use of signals: eval, if it exists."""
        return list(self.parts)[-1]

    def area(self, signal: Mapping[str, Any]) -> Estimate:
        area: Estimate = signal["parts"][self.last]["auroc"]
        return area

    @property
    def by_use(self) -> tuple[Mapping[str, Any], ...]:
        def key(signal: Mapping[str, Any]) -> tuple[int, float]:
            return USES.index(signal["use"]), -(self.area(signal).estimate or 0.0)

        return tuple(sorted(self.signals, key=key))

    @property
    def verdict(self) -> str:
        by_use = {use: [one["name"] for one in self.by_use if one["use"] == use] for use in USES}
        useful, part = by_use["useful"], self.last
        where = "all questions" if part == ALL_QUESTIONS else f"split {part}"
        of = f"{counted(len(self.signals), 'signal')} on {where}"
        if not self.parts[part]["labelled"]:
            whose = "" if part == ALL_QUESTIONS else f" of {where}"
            return f"Not known: no question{whose} has gold answers, which define right and wrong."
        if useful:
            more = f" and {len(useful) - _MOST_NAMED} more" if len(useful) > _MOST_NAMED else ""
            said = f"{len(useful)} of {of} tell right from wrong answers: "
            said += f"{', '.join(useful[:_MOST_NAMED])}{more}."
        else:
            said = f"No signal of {of} is shown to tell right from wrong answers."
        rest = [
            (len(by_use["uninformative"]), "uninformative (the interval holds 0.5)"),
            (len(by_use["misleading"]), "misleading (below 0.5)"),
            (len(by_use["unknown"]), "without an interval"),
        ]
        others = ", ".join(f"{number} {what}" for number, what in rest if number)
        return f"{said} {'Of the others' if useful else 'Of these'}: {others}." if others else said

    def tables(self) -> tuple[Table, ...]:
        return tuple(signal_tables(replace(self, signals=self.by_use)))

    def to_json(self) -> dict[str, Any]:
        return {**fields_as_json(self), "version": VERSION}


def diagnose(traces: TraceSet | Measures, settings: DiagnosisSettings | None = None) -> Diagnostics:
    """Diagnose every signal on both splits, or on all questions if a split is missing."""
    settings = DiagnosisSettings() if settings is None else settings
    measures = Measures.of(traces)
    record = measures.traces
    if record.n_questions == 0:
        raise UsageError(f"{record.origin.source} holds no question; record some first")
    skipped: dict[str, str] = {}
    names = tuple(dict.fromkeys(settings.signals or ()))
    if settings.signals is None:
        names = given_signals(record)
        lacks = {name: lack(spec, record) for name, spec in SIGNALS.items()}
        skipped = {name: why.why for name, why in lacks.items() if why is not None}
    table = measures.signals(names)
    if settings.signals is None:
        skipped |= nowhere_defined(record, table, names)
        names = tuple(name for name in names if name not in skipped)
    wanted = (settings.tune_split, settings.eval_split)
    absent = [split for split in wanted if split not in record.splits]
    chosen = {split: record.in_split(split) for split in wanted}
    notes: tuple[str, ...] = ()
    if absent:
        chosen = {ALL_QUESTIONS: np.ones(record.n_questions, bool)}
        notes = (
            f"no question is in split {' or '.join(absent)}, so all questions are used together",
        )
    seeds = range(settings.seed + len(chosen) - 1, settings.seed - 1, -1)
    measured = {
        part: _apart(measures, names, rows, settings, seed)
        for (part, rows), seed in zip(chosen.items(), seeds, strict=True)
    }
    flags = signal_flags(measures, names, tune_split=settings.tune_split)
    signals = []
    for name in names:
        spec = resolve(name, also=record.signal_names)
        parts = {part: of_signals[name][0] for part, of_signals in measured.items()}
        drift: list[Estimate | None] = [None, None]
        if len(measured) == 2:
            (early, before), (late, after) = (of_part[name] for of_part in measured.values())
            drift = [
                difference((late[of], after[row]), (early[of], before[row]))
                for row, of in enumerate(("d_signed", "auroc"))
            ]
        signals.append(
            {
                "name": name,
                "summary": spec.summary,
                "direction": spec.direction,
                "recorded": name in record.signal_names,
                "parts": parts,
                "drift_d": drift[0],
                "drift_auroc": drift[1],
                "flags": flags[name],
                "use": auroc_use([*parts.values()][-1]["auroc"]),
            }
        )
    return Diagnostics(
        source=record.origin.source,
        model=None if (model := record.origin.run.get("model")) is None else str(model),
        parts=_parts(measures, names, chosen, settings.tune_split),
        signals=tuple(signals),
        gains=gains(measures, names, seed=settings.seed),
        skipped=skipped,
        resamples=settings.resamples,
        seed=settings.seed,
        notes=notes,
    )


def _parts(
    measures: Measures, names: tuple[str, ...], chosen: Mapping[str, Mask], tune_split: str
) -> dict[str, dict[str, Any]]:
    table, em = measures.signals(names), measures.score("em")
    parts: dict[str, dict[str, Any]] = {}
    calibrated: Array | None = None
    why: str | None = None
    if MARGIN in names:
        calibrated, why = calibrated_margins(measures, tune_split)
    for part, rows in chosen.items():
        exists = table.exists[rows]
        parts[part] = {
            "questions": int(rows.sum()),
            "labelled": int(np.isfinite(em[rows]).any(axis=1).sum()),
            "rounds": int(exists.sum()),
            "margins": None
            if calibrated is None
            else margin_means(table.signal(MARGIN)[rows], calibrated[rows], em[rows], why),
        }
    return parts


def _apart(
    measures: Measures, names: tuple[str, ...], rows: Mask, settings: DiagnosisSettings, seed: int
) -> dict[str, tuple[dict[str, Any], Array]]:
    """Diagnose every signal on the questions ``rows`` (n_questions,), with draws of pooled figures."""
    table, types = measures.signals(names), Texts.of(measures.traces.first_rounds("question_type"))
    em, exists, codes = measures.score("em")[rows], table.exists[rows], types.codes[rows]
    usable = np.isfinite(em)
    labelled = usable.any(axis=1)
    number = np.zeros(len(em), np.intp)  # of each labelled question's unit among those resampled
    number[labelled] = numbered_units(measures.units[rows][labelled])
    code_of = {kind: code for code, kind in enumerate(types.distinct.to_pylist())}
    kinds = [kind for kind in sorted(code_of) if (codes == code_of[kind]).any()]
    n_rounds = em.shape[1]
    masks = [usable]
    masks += [usable & (np.arange(n_rounds) == t)[None, :] for t in range(n_rounds)]
    masks += [usable & (codes == code_of[kind])[:, None] for kind in kinds]
    found = {}
    for name in names:
        values = table.signal(name)[rows]
        sign = -1.0 if resolve(name, also=names).direction == "low" else 1.0
        cells = [np.nonzero(mask & ~np.isnan(values)) for mask in masks]
        separated = separations(
            [
                Rows(
                    values=values[question, t],
                    right=em[question, t] == 1.0,
                    questions=number[question],
                    sign=sign,
                )
                for question, t in cells
            ],
            int(number[labelled].max(initial=-1)) + 1,
            resamples=settings.resamples,
            seed=seed,
        )
        pooled, *apart = (separation for separation, _ in separated)
        defined = exists & ~np.isnan(values)
        distinct, counts = np.unique(values[defined], return_counts=True)
        of_signal = {
            "defined": _share(defined, exists),
            "distinct": len(distinct),
            "concentration": _concentration(distinct, counts),
            **pooled,
            "rounds": [
                {"round": t + 1, "defined": _share(defined[:, t], exists[:, t]), **apart[t]}
                for t in range(n_rounds)
            ],
            "types": dict(zip(kinds, apart[n_rounds:], strict=True)),
        }
        found[name] = of_signal, separated[0][1]
    return found


def _share(some: Mask, of: Mask) -> float:
    return float(some.sum() / of.sum()) if of.any() else 0.0


def _concentration(distinct: Array, counts: NDArray[np.int64]) -> dict[str, float] | None:
    if not 0 < len(distinct) <= _MOST_VALUES:
        return None
    shares = counts / counts.sum()
    top = int(shares.argmax())
    return {
        "entropy_nats": max(0.0, -float((shares * np.log(shares)).sum())),
        "mode": float(distinct[top]),
        "mode_share": float(shares[top]),
    }


def calibrated_margins(measures: Measures, tune_split: str) -> tuple[Array, str | None]:
    """Return P(EM = 1 | margin), (n_questions, n_rounds), out of fold on tune; or the reason for none."""
    tune = measures.traces.in_split(tune_split)

    def calibrated() -> Array:
        data = fit_data(measures, (MARGIN,), split=tune_split)
        margins = measures.signals((MARGIN,)).signal(MARGIN)
        values = fit_calibrator(data, MARGIN).predict_rounds(margins)
        values[tune] = out_of_fold(data, MARGIN)[:, : values.shape[1]]
        return values

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)  # of few rows; the calibrators say it
        values, why = attempt(calibrated)
    return np.full(measures.traces.exists.shape, np.nan) if values is None else values, why


def margin_means(
    margins: Array, calibrated: Array, em: Array, why: str | None
) -> dict[str, Any] | None:
    """Return means over a part's rounds, each array (n_questions, n_rounds) (paper 0, Table 6)."""
    defined = np.isfinite(margins)
    if not defined.any():
        return None
    known, labelled = defined & np.isfinite(calibrated), defined & np.isfinite(em)
    return {
        "rounds": int(defined.sum()),
        "raw": float(margins[defined].mean()),
        "calibrated": float(calibrated[known].mean()) if known.any() else None,
        "em": float(em[labelled].mean()) if labelled.any() else None,
        "reason": why,
    }


NAME_WIDTH = 24
POLICY = Column(name="policy", most=NAME_WIDTH)
_SIGNAL = Column(name="signal", most=NAME_WIDTH)
USE = Column(name="use")
_TONES: Mapping[Use, Tone] = {"useful": "good", "misleading": "bad"}


def signal_tables(diagnostics: Diagnostics) -> Iterator[Table]:
    """Yield tables of AUROC and d of every signal, by round, type and value, and of warnings."""
    if not diagnostics.signals:
        yield Table(name="signals", title="This record defines no signal.")
        return
    yield _areas(diagnostics)
    if diagnostics.gains is not None:
        yield gains_table(diagnostics.gains)
    yield _distances(diagnostics)
    for part in diagnostics.parts:
        yield _by_round(diagnostics, part)
    yield from _concentrations(diagnostics)
    yield from _margins(diagnostics)
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
        head = f"% def.\n{part}"
        column = Column(name=f"{part}: defined", kind="percent", digits=0, head=head, drop=2)
        described.append((partial(_pooled, part, "defined"), column))
    figures = "; ".join(
        f"{name}: {counted(part['questions'], 'question')}, {count(part['labelled'])} with gold answers, "
        f"{counted(part['rounds'], 'round')}"
        for name, part in diagnostics.parts.items()
    )
    drift = f"drift: {parts[1]} minus {parts[0]}. " if len(parts) > 1 else ""
    notes = (
        "AUROC of each signal against exact match, all rounds pooled; 0.5 is chance. low: low values "
        f"favor stopping, and the AUROC is of the negated signal. Useful: the interval on {parts[-1]} is "
        "above 0.5. Uninformative: it contains 0.5. An AUROC tells whether an answer is right, not whether "
        "going on pays: choose may still prove a rule over an uninformative signal. Intervals are not "
        "corrected for the number of signals.",
        f"{figures}. Brackets: 95% intervals of {diagnostics.resamples} resamples of the questions (seed "
        f"{diagnostics.seed}). {drift}{UNKNOWN}: undefined; --json says why.",
    )
    title = f"Which signals tell right from wrong answers? {diagnostics.verdict}"
    return table_of("signals", diagnostics.signals, described, title, notes)


_DRIFT = replace(estimate_column("drift", "drift", signed=True), drop=1)


def use_cell(use: Use) -> Cell:
    shown = "" if use == "unknown" else use
    return Cell(use, shown, _TONES.get(use))


def _distances(diagnostics: Diagnostics) -> Table:
    described: list[Described] = [("name", _SIGNAL)]
    for part in diagnostics.parts:
        column = estimate_column(f"{part}: d", f"d {part}", signed=True)
        described.append((partial(_pooled, part, "d_signed"), column))
    described += [("drift_d", _DRIFT)] * (len(diagnostics.parts) > 1)
    title = "Cohen's d, signed: positive where right answers have the higher values."
    return table_of("distances", diagnostics.signals, described, title)


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
        title=f"Mean margin of the answer's first token{of}, all rounds pooled: raw and calibrated. One "
        "isotonic map a round, fitted on tune, gives P(EM = 1); on tune it is out of fold. A large "
        "raw margin with a small calibrated one is overconfidence.",
        notes=[f"Not calibrated: {reason}" for reason in reasons if reason is not None],
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
    title = "Signals with at most 12 values. Near 0, one value is almost always given."
    if rows:
        yield Table(name="concentrations", title=title, columns=columns, rows=rows, names=2)


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
    alike: dict[tuple[str, str], list[str]] = {}
    for signal in diagnostics.signals:
        for flag in signal["flags"]:
            alike.setdefault((flag.kind, flag.message), []).append(signal["name"])
    rows = [
        (kind, names[0], message)
        if len(names) == 1
        else (kind, f"{len(names)} signals", f"each {message}: {', '.join(names)}")
        for (kind, message), names in alike.items()
    ]
    columns = (Column(name="flag"), _SIGNAL, Column(name="message", head=""))
    if rows:
        title = "Warnings about signals:"
        yield Table(name="flags", title=title, columns=columns, rows=rows, names=2)
