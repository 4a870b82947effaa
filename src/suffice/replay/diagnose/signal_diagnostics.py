"""What every signal says about right and wrong answers, on tune and on eval side by side."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import SufficeWarning, UsageError, attempt
from suffice.measures.measures import Measures
from suffice.policies.defaults import MARGIN
from suffice.policies.fitting import fit_calibrator, fit_data, out_of_fold
from suffice.replay.diagnose.signal_flags import signal_flags
from suffice.replay.diagnose.signal_separation import Array, Rows, separations
from suffice.replay.diagnose.signal_tables import signal_tables
from suffice.replay.settings import DiagnosticsSettings
from suffice.results.as_json import as_json
from suffice.results.formats import counted
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.signals.columns.arrays import Texts
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.table import given_signals, lack
from suffice.stats.auroc import USES, auroc_use, average_ranks
from suffice.stats.intervals.estimate import Estimate, difference
from suffice.stats.intervals.sums import from_sums
from suffice.stats.units import numbered_units
from suffice.trace.rounds.table import TraceSet

ALL_QUESTIONS = "all"
STABLE = "answer_stable"
_MOST_NAMED = 5
_MOST_VALUES = 12  # a signal with more has no mode worth the name
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnostics(Tabular):
    """Signals of a trace set side by side on its parts, tune and eval or all questions, as JSON has them.

    ``parts`` has by name how many questions, labelled ones and rounds there are, the ``correlations`` of
    signals, the mean ``margins`` and what is ``wrong_and_stable`` (``None``: its signal is not looked at).
    ``signals`` has for each the ``parts`` (shares of rounds with a value, how few values there are, what
    :func:`suffice.replay.diagnose.signal_separation.separations` says of all rounds, by round and by type),
    its drift from tune to eval (``None``: one part only), its ``flags`` and its ``use``. ``model`` is the
    recorded one, where the record names it; ``skipped`` says why a signal is not here.
    """

    source: str
    model: str | None
    parts: Mapping[str, Mapping[str, Any]]
    signals: tuple[Mapping[str, Any], ...]
    skipped: Mapping[str, str]
    resamples: int
    seed: int
    notes: tuple[str, ...]

    @property
    def draws(self) -> str:
        """What the draws behind the intervals are called."""
        by_sums = from_sums(sum(part["questions"] for part in self.parts.values()))
        return "draws by sums" if by_sums else "resamples of the questions"

    @property
    def last(self) -> str:
        """The part that signals are judged by: eval where there is one."""
        return list(self.parts)[-1]

    def area(self, signal: Mapping[str, Any]) -> Estimate:
        """A signal's AUROC on the last part."""
        area: Estimate = signal["parts"][self.last]["auroc"]
        return area

    @property
    def by_use(self) -> tuple[Mapping[str, Any], ...]:
        """The signals, useful ones first, of these those of the highest AUROC."""

        def key(signal: Mapping[str, Any]) -> tuple[int, float]:
            return USES.index(signal["use"]), -(self.area(signal).estimate or 0.0)

        return tuple(sorted(self.signals, key=key))

    @property
    def verdict(self) -> str:
        """Which signals tell right from wrong answers, in sentences."""
        by_use = {use: [one["name"] for one in self.by_use if one["use"] == use] for use in USES}
        useful, part = by_use["useful"], self.last
        where = "all questions" if part == ALL_QUESTIONS else f"split {part}"
        of = f"{counted(len(self.signals), 'signal')} on {where}"
        if not self.parts[part]["labelled"]:
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
            "parts": as_json(self.parts),
            "signals": as_json(self.signals),
            "skipped": dict(self.skipped),
            "notes": list(self.notes),
        }


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
    wanted = (settings.tune_split, settings.eval_split)
    absent = [split for split in wanted if split not in record.splits]
    chosen = {split: record.in_split(split) for split in wanted}
    notes: tuple[str, ...] = ()
    if absent:
        chosen = {ALL_QUESTIONS: np.ones(record.n_questions, bool)}
        notes = (
            f"no question lies in split {' or '.join(absent)}: all questions are taken together",
        )
    by_sums = from_sums(sum(int(rows.sum()) for rows in chosen.values()))
    seeds = range(settings.seed + len(chosen) - 1, settings.seed - 1, -1)
    measured = {
        part: _apart(measures, names, rows, settings, seed=seed, by_sums=by_sums)
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
                for of, row in (("d_signed", 0), ("auroc", 2))
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
        skipped=skipped,
        resamples=settings.resamples,
        seed=settings.seed,
        notes=notes,
    )


def _parts(
    measures: Measures, names: tuple[str, ...], chosen: Mapping[str, Mask], tune_split: str
) -> dict[str, dict[str, Any]]:
    """What is said of each part as a whole."""
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
            "correlations": correlations(
                {name: table.signal(name)[rows][exists] for name in names}
            ),
            "margins": None
            if calibrated is None
            else margin_means(table.signal(MARGIN)[rows], calibrated[rows], em[rows], why),
            "wrong_and_stable": wrong_and_stable(table.signal(STABLE)[rows], em[rows])
            if STABLE in names
            else None,
        }
    return parts


def _apart(
    measures: Measures,
    names: tuple[str, ...],
    rows: Mask,
    settings: DiagnosticsSettings,
    *,
    seed: int,
    by_sums: bool,
) -> dict[str, tuple[dict[str, Any], Array]]:
    """Every signal on the questions ``rows`` (n_questions,), with the draws of its pooled figures."""
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
            by_sums=by_sums,
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
    """How few values a signal takes: entropy in nats, its most common value and that value's share.

    A verbalized confidence that is 5 nearly always has an entropy near 0: it has collapsed.
    """
    if not 0 < len(distinct) <= _MOST_VALUES:
        return None
    shares = counts / counts.sum()
    top = int(shares.argmax())
    return {
        "entropy_nats": max(0.0, -float((shares * np.log(shares)).sum())),
        "mode": float(distinct[top]),
        "mode_share": float(shares[top]),
    }


# --- how much two signals say the same ---------------------------------------------------------------
def correlations(signals: Mapping[str, Array]) -> dict[str, Any]:
    """Spearman's ``rho`` of every pair over the ``rows`` where both are defined; arrays of one shape.

    ``None`` where fewer than two rows define both signals or one of them does not vary there.
    """
    names = list(signals)
    flat = [signals[name].ravel() for name in names]
    defined = [~np.isnan(values) for values in flat]
    rho: list[list[float | None]] = [[None] * len(names) for _ in names]
    rows = [[0] * len(names) for _ in names]
    pairs: dict[bytes, list[tuple[int, int]]] = {}
    for i in range(len(names)):
        for j in range(i, len(names)):
            pairs.setdefault(np.packbits(defined[i] & defined[j]).tobytes(), []).append((i, j))
    for compared in pairs.values():
        both = defined[compared[0][0]] & defined[compared[0][1]]
        count = int(both.sum())
        ranks = {}
        for n in {n for pair in compared for n in pair} if count > 1 else ():
            of = average_ranks(flat[n][both])
            ranks[n] = of - of.mean()
        for i, j in compared:
            rows[i][j] = rows[j][i] = count
            if ranks and (length := float(np.sqrt((ranks[i] @ ranks[i]) * (ranks[j] @ ranks[j])))):
                rho[i][j] = rho[j][i] = float(np.clip((ranks[i] @ ranks[j]) / length, -1.0, 1.0))
    return {"signals": names, "rho": rho, "rows": rows}


# --- overconfidence ------------------------------------------------------------------------------
def calibrated_margins(measures: Measures, tune_split: str) -> tuple[Array, str | None]:
    """P(EM = 1 | margin), (n_questions, n_rounds), out of fold on tune; or why there is none."""
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
    """Means of a part's rounds, each array (n_questions, n_rounds) (paper 0, Table 6).

    ``raw`` is in nats, ``calibrated`` P(EM = 1 | margin) (``None``: none, for a ``reason``), ``em`` of the
    labelled ones. ``None`` where no round has a margin.
    """
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


def wrong_and_stable(stable: Array, em: Array) -> dict[str, Any]:
    """Answers that are repeated though wrong (paper 0, section 3.4), overall and by round.

    Of ``answer_stable`` and exact match, each (n_questions, n_rounds), NaN: undefined or unlabelled. Shares
    are of the labelled answers that could repeat one; ``first_wrong`` is the share of labelled ``questions``
    whose first stable answer is wrong: a rule of stability alone stops there.
    """
    usable = np.isfinite(stable) & np.isfinite(em)
    repeats = usable & (stable == 1.0)
    wrong = repeats & (em == 0.0)
    labelled = np.isfinite(em).any(axis=1)
    first_wrong = repeats.any(axis=1) & wrong[np.arange(len(wrong)), repeats.argmax(axis=1)]

    def shares(number: int | None, rounds: slice) -> dict[str, Any]:
        answers = int(usable[:, rounds].sum())
        return {
            "round": number,
            "answers": answers,
            "stable": float(repeats[:, rounds].sum() / answers) if answers else None,
            "wrong_and_stable": float(wrong[:, rounds].sum() / answers) if answers else None,
        }

    return {
        "overall": shares(None, slice(None)),
        # the first round repeats nothing
        "rounds": [shares(t + 1, slice(t, t + 1)) for t in range(1, stable.shape[1])],
        "questions": int(labelled.sum()),
        "first_wrong": float(first_wrong[labelled].mean()) if labelled.any() else None,
    }
