"""What every signal says about right and wrong answers, on tune and on eval side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.numbers.auroc import USES, Use, auroc_use, average_ranks
from suffice.numbers.intervals.estimate import Estimate, difference
from suffice.numbers.intervals.sums import from_sums
from suffice.numbers.units import numbered_units
from suffice.policies.defaults import MARGIN
from suffice.replay.diagnose.reliability import (
    STABLE,
    MarginMeans,
    WrongAndStable,
    calibrated_margins,
    margin_means,
    wrong_and_stable,
)
from suffice.replay.diagnose.signal_flags import Flag, signal_flags
from suffice.replay.diagnose.signal_separation import Rows, Separation, separations
from suffice.replay.diagnose.signal_tables import signal_tables
from suffice.replay.settings import DiagnosticsSettings
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import counted
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.signals.available import given_signals, lack
from suffice.signals.columns.texts import Texts
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.spec import Direction
from suffice.signals.table import SignalTable
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Correlations:
    """Spearman's rho of every pair of signals and the rounds it rests on, both square.

    ``rho`` is ``None`` where fewer than two rounds define both signals or one of them does not vary
    there.
    """

    signals: tuple[str, ...]
    rho: tuple[tuple[float | None, ...], ...]
    rows: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Concentration:
    """How few values a signal takes: entropy in nats, its most common value and that value's share.

    A verbalized confidence that is 5 nearly always has an entropy near 0: it has collapsed.
    """

    entropy_nats: float
    mode: float
    mode_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSeparation:
    """One round's separation; ``defined`` is the share of its recorded rounds with a value."""

    round: int
    defined: float
    separation: Separation

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {"round": self.round, "defined": self.defined, **as_json(self.separation)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalPart:
    """A signal on one part of the questions.

    ``defined`` is the share of recorded rounds with a value, ``distinct`` counts its values,
    ``concentration`` is given for at most 12 of them. ``pooled`` takes all rounds together, ``types``
    the same of one question type each.
    """

    defined: float
    distinct: int
    concentration: Concentration | None
    pooled: Separation
    rounds: tuple[RoundSeparation, ...]
    types: Mapping[str, Separation]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "defined": self.defined,
            "distinct": self.distinct,
            "concentration": as_json(self.concentration),
            **as_json(self.pooled),
            "rounds": as_json(self.rounds),
            "types": as_json(self.types),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalDiagnostics:
    """A signal on every part, and how far it drifts from tune to eval (``None``: one part only).

    ``drift_d`` is of the signed d. ``recorded`` says that values come from the ``signals`` map.
    """

    name: str
    summary: str
    direction: Direction
    recorded: bool
    parts: Mapping[str, SignalPart]
    drift_d: Estimate | None
    drift_auroc: Estimate | None
    flags: tuple[Flag, ...]

    @property
    def area(self) -> Estimate:
        """Its AUROC on the last part, which is eval where there is one."""
        return list(self.parts.values())[-1].pooled.auroc

    @property
    def use(self) -> Use:
        """What that is worth."""
        return auroc_use(self.area)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**fields_as_json(self), "use": self.use}


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Questions looked at together: a split, or all.

    ``margins`` and ``wrong_and_stable`` are ``None`` where the signal they are about is not looked at.
    """

    name: str = field(metadata={"json": None})
    questions: int
    labelled: int
    rounds: int
    correlations: Correlations
    margins: MarginMeans | None
    wrong_and_stable: WrongAndStable | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnostics(Tabular):
    """Signals of a trace set side by side on its parts: tune and eval, or all questions.

    ``model`` is the recorded one, where the record names it; ``skipped`` says why a signal is not here.
    """

    source: str
    model: str | None
    parts: tuple[Part, ...]
    signals: tuple[SignalDiagnostics, ...]
    skipped: Mapping[str, str]
    resamples: int
    seed: int
    notes: tuple[str, ...]

    @property
    def draws(self) -> str:
        """What the draws behind the intervals are called."""
        by_sums = from_sums(sum(part.questions for part in self.parts))
        return "draws by sums" if by_sums else "resamples of the questions"

    @property
    def by_use(self) -> tuple[SignalDiagnostics, ...]:
        """The signals, useful ones first, of these those of the highest AUROC."""

        def key(signal: SignalDiagnostics) -> tuple[int, float]:
            return USES.index(signal.use), -(signal.area.estimate or 0.0)

        return tuple(sorted(self.signals, key=key))

    @property
    def verdict(self) -> str:
        """Which signals tell right from wrong answers, in sentences."""
        by_use = {use: [one.name for one in self.by_use if one.use == use] for use in USES}
        useful, part = by_use["useful"], self.parts[-1].name
        where = "all questions" if part == ALL_QUESTIONS else f"split {part}"
        of = f"{counted(len(self.signals), 'signal')} on {where}"
        if not self.parts[-1].labelled:
            whose = "" if part == ALL_QUESTIONS else f" of {where}"
            return f"Not known: no question{whose} has gold answers, which alone tell right from wrong."
        if useful:
            more = f" and {len(useful) - _MOST_NAMED} more" if len(useful) > _MOST_NAMED else ""
            said = f"{len(useful)} of {of} told right from wrong answers: "
            said += f"{', '.join(useful[:_MOST_NAMED])}{more}."
        else:
            said = f"None of {of} is shown to tell right from wrong answers."
        rest = [
            (len(by_use["uninformative"]), "uninformative (the interval holds 0.5)"),
            (len(by_use["misleading"]), "misleading (below 0.5)"),
            (len(by_use["unknown"]), "without an interval"),
        ]
        others = ", ".join(f"{number} {what}" for number, what in rest if number)
        return f"{said} {'Of the others' if useful else 'Of these'}: {others}." if others else said

    def tables(self) -> tuple[Table, ...]:
        """AUROC and d of every signal, by round, type and value; the most useful signals first."""
        return tuple(signal_tables(replace(self, signals=self.by_use)))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            "traces": self.source,
            "model": self.model,
            "version": VERSION,
            "bootstrap": self.resamples,
            "seed": self.seed,
            "parts": {part.name: as_json(part) for part in self.parts},
            "signals": as_json(self.signals),
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
        }


ALL_QUESTIONS = "all"
_MOST_NAMED = 5
_MOST_VALUES = 12  # a signal with more has no mode worth the name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """All questions: signals, exact match (n_questions, n_rounds), question types."""

    table: SignalTable
    em: NDArray[np.float64]
    types: Texts  # (n_questions,)
    units: NDArray[np.intp]  # (n_questions,)
    names: tuple[str, ...]
    calibrated: NDArray[np.float64]  # margins; why there are none, where all are NaN
    not_calibrated: str | None
    by_sums: bool  # as many questions as all parts hold


def diagnose(
    traces: TraceSet | Measures, settings: DiagnosticsSettings | None = None
) -> Diagnostics:
    """Look at every signal on both splits, or on all questions where the trace lacks one of them."""
    settings = DiagnosticsSettings() if settings is None else settings
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
        empty = [name for name in names if np.isnan(table.signal(name)).all()]
        skipped |= dict.fromkeys(empty, "undefined in every round")
        names = tuple(name for name in names if name not in empty)
    calibrated, not_calibrated = (
        calibrated_margins(measures, settings.tune_split)
        if MARGIN in names
        else (np.full(record.exists.shape, np.nan), None)
    )
    chosen, notes = _choose_parts(record, settings)
    data = _Data(
        table=table,
        em=measures.score("em"),
        types=Texts.of(record.first_rounds("question_type")),
        units=measures.units,
        names=names,
        calibrated=calibrated,
        not_calibrated=not_calibrated,
        by_sums=from_sums(sum(int(rows.sum()) for rows in chosen.values())),
    )
    seeds = {part: settings.seed + len(chosen) - 1 - n for n, part in enumerate(chosen)}
    measured = {
        part: _diagnose_part(data, rows, settings.resamples, seeds[part])
        for part, rows in chosen.items()
    }
    flags = signal_flags(measures, names, tune_split=settings.tune_split)
    return Diagnostics(
        source=record.origin.source,
        model=None if (model := record.origin.run.get("model")) is None else str(model),
        parts=tuple(_part(data, part, rows) for part, rows in chosen.items()),
        signals=tuple(
            _signal(name, record, {part: of[name] for part, of in measured.items()}, flags)
            for name in names
        ),
        skipped=skipped,
        resamples=settings.resamples,
        seed=settings.seed,
        notes=tuple(notes),
    )


def _choose_parts(
    traces: TraceSet, settings: DiagnosticsSettings
) -> tuple[dict[str, NDArray[np.bool_]], list[str]]:
    """Which questions lie in which part, (n_questions,) each, tune first."""
    wanted = (settings.tune_split, settings.eval_split)
    absent = [split for split in wanted if split not in traces.splits]
    if absent:
        note = f"no question lies in split {' or '.join(absent)}: all questions are taken together"
        return {ALL_QUESTIONS: np.ones(traces.n_questions, bool)}, [note]
    return {split: traces.in_split(split) for split in wanted}, []


def _part(data: _Data, name: str, rows: NDArray[np.bool_]) -> Part:
    exists = data.table.exists[rows]
    return Part(
        name=name,
        questions=int(rows.sum()),
        labelled=int(np.isfinite(data.em[rows]).any(axis=1).sum()),
        rounds=int(exists.sum()),
        correlations=correlations(
            {name: data.table.signal(name)[rows][exists] for name in data.names}
        ),
        margins=margin_means(
            data.table.signal(MARGIN)[rows],
            data.calibrated[rows],
            data.em[rows],
            data.not_calibrated,
        )
        if MARGIN in data.names
        else None,
        wrong_and_stable=wrong_and_stable(data.table.signal(STABLE)[rows], data.em[rows])
        if STABLE in data.names
        else None,
    )


_PartAndDraws = tuple[SignalPart, NDArray[np.float64]]


def _diagnose_part(
    data: _Data, rows: NDArray[np.bool_], resamples: int, seed: int
) -> dict[str, _PartAndDraws]:
    """Every signal on the questions ``rows`` (n_questions,), with the draws of its pooled figures."""
    em, exists, types = data.em[rows], data.table.exists[rows], data.types.codes[rows]
    labelled = np.isfinite(em).any(axis=1)
    number = np.zeros(len(em), np.intp)  # of each labelled question's unit among those resampled
    number[labelled] = numbered_units(data.units[rows][labelled])
    usable = np.isfinite(em)
    code_of = {kind: code for code, kind in enumerate(data.types.distinct.to_pylist())}
    kinds = [kind for kind in sorted(code_of) if (types == code_of[kind]).any()]
    masks = [usable]
    masks += [usable & (np.arange(em.shape[1]) == t)[None, :] for t in range(em.shape[1])]
    masks += [usable & (types == code_of[kind])[:, None] for kind in kinds]
    result = {}
    for name in data.names:
        values = data.table.signal(name)[rows]
        sign = -1.0 if resolve(name, also=data.names).direction == "low" else 1.0
        cells = [np.nonzero(mask & ~np.isnan(values)) for mask in masks]
        parts = [
            Rows(
                values=values[question, t],
                right=em[question, t] == 1.0,
                questions=number[question],
                sign=sign,
            )
            for question, t in cells
        ]
        separated = separations(
            parts,
            int(number[labelled].max(initial=-1)) + 1,
            resamples=resamples,
            seed=seed,
            by_sums=data.by_sums,
        )
        apart = [separation for separation, _ in separated]
        n_pooled = 1 + em.shape[1]
        part = _signal_part(
            values, exists, apart[:n_pooled], dict(zip(kinds, apart[n_pooled:], strict=True))
        )
        result[name] = (part, separated[0][1])
    return result


def _signal_part(
    values: NDArray[np.float64],
    exists: NDArray[np.bool_],
    separated: Sequence[Separation],
    types: Mapping[str, Separation],
) -> SignalPart:
    defined = exists & ~np.isnan(values)
    distinct, counts = np.unique(values[defined], return_counts=True)
    return SignalPart(
        defined=_share(defined, exists),
        distinct=len(distinct),
        concentration=_concentration(distinct, counts),
        pooled=separated[0],
        rounds=tuple(
            RoundSeparation(
                round=number,
                defined=_share(defined[:, number - 1], exists[:, number - 1]),
                separation=separation,
            )
            for number, separation in enumerate(separated[1:], start=1)
        ),
        types=types,
    )


def _share(some: NDArray[np.bool_], of: NDArray[np.bool_]) -> float:
    return float(some.sum() / of.sum()) if of.any() else 0.0


def _concentration(
    distinct: NDArray[np.float64], counts: NDArray[np.int64]
) -> Concentration | None:
    if not 0 < len(distinct) <= _MOST_VALUES:
        return None
    shares = counts / counts.sum()
    top = int(shares.argmax())
    return Concentration(
        entropy_nats=max(0.0, -float((shares * np.log(shares)).sum())),
        mode=float(distinct[top]),
        mode_share=float(shares[top]),
    )


def _signal(
    name: str,
    traces: TraceSet,
    measured: Mapping[str, _PartAndDraws],
    flags: Mapping[str, Sequence[Flag]],
) -> SignalDiagnostics:
    spec = resolve(name, also=traces.signal_names)
    drift_d: Estimate | None = None
    drift_auroc: Estimate | None = None
    if len(measured) == 2:
        (tune, tune_draws), (evaluated, eval_draws) = measured.values()
        late, early = evaluated.pooled, tune.pooled
        drift_d = difference((late.d_signed, eval_draws[0]), (early.d_signed, tune_draws[0]))
        drift_auroc = difference((late.auroc, eval_draws[2]), (early.auroc, tune_draws[2]))
    return SignalDiagnostics(
        name=name,
        summary=spec.summary,
        direction=spec.direction,
        recorded=name in traces.signal_names,
        parts={name: part for name, (part, _) in measured.items()},
        drift_d=drift_d,
        drift_auroc=drift_auroc,
        flags=tuple(flags[name]),
    )


# --- how much two signals say the same ---------------------------------------------------------------


def _centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    ranks = average_ranks(values)
    return np.asarray(ranks - ranks.mean())


def _correlated(first: NDArray[np.float64], second: NDArray[np.float64]) -> float | None:
    """Pearson's correlation of centred values; ``None``: one does not vary."""
    length = float(np.sqrt((first @ first) * (second @ second)))
    return float(np.clip((first @ second) / length, -1.0, 1.0)) if length else None


def correlations(signals: Mapping[str, NDArray[np.float64]]) -> Correlations:
    """Every pair over the rounds where both are defined; all arrays of one shape, NaN: undefined."""
    names = tuple(signals)
    flat = [signals[name].ravel() for name in names]
    defined = [~np.isnan(values) for values in flat]
    rho: list[list[float | None]] = [[None] * len(names) for _ in names]
    rows = [[0] * len(names) for _ in names]
    pairs: dict[bytes, list[tuple[int, int]]] = {}
    for i in range(len(names)):
        for j in range(i, len(names)):
            pairs.setdefault(np.packbits(defined[i] & defined[j]).tobytes(), []).append((i, j))
    for compared in pairs.values():
        i, j = compared[0]
        both = defined[i] & defined[j]
        count = int(both.sum())
        used = sorted({name for pair in compared for name in pair}) if count > 1 else []
        ranks = {name: _centred_ranks(flat[name][both]) for name in used}
        for i, j in compared:
            rho[i][j] = rho[j][i] = _correlated(ranks[i], ranks[j]) if used else None
            rows[i][j] = rows[j][i] = count
    return Correlations(signals=names, rho=tuple(map(tuple, rho)), rows=tuple(map(tuple, rows)))
