"""Fitting of rules on the tune split: calibrators, base rates and out-of-fold values."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.contracts import Calibrator, StopPolicy
from suffice.errors import SufficeWarning, UsageError, all_of, counted, unknown_name
from suffice.measures.measures import Measures, Traces
from suffice.measures.scores import Outcomes, gold_answers
from suffice.policies.defaults import FIT_SPLIT, CalibratorKind
from suffice.policies.rules.language import Calibrated
from suffice.policies.rules.policy import Rule, check_rule, rule_needs
from suffice.scoring import F1Kind, answer_form
from suffice.signals.abstained import (
    ABSTAINED,
    ABSTENTION_PHRASES,
    abstained_signal,
    abstaining,
    ready,
    stated_phrases,
)
from suffice.signals.columns.arrays import Texts
from suffice.signals.known_signals import SignalSpec, own_among, resolve, why_undefined
from suffice.signals.signal_table import SignalTable, read_columns, refuse_lacking
from suffice.stats.maps import (
    PerRoundCalibrator,
    fit_isotonic,
    fit_platt,
    fit_shrunken,
    fit_venn_abers,
)
from suffice.stats.units import Array, Mask, numbered_units
from suffice.trace.rounds.records import POLICY_STOP
from suffice.trace.rounds.trace_set import TraceSet

N_FOLDS = 5
_FOLD_SEED = 42
LABELS = "labels"
"""Field of ``fitted_on``: the labels in place of gold answers; missing: gold answers."""
CUT = "cut"
"""Field of ``fitted_on``: counts of questions read and left out of a record with cut ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitData:
    """Signals and outcomes of the fitting questions.

    ``provenance`` describes them in the policy file, ``f1_kind`` is the F1 of the outcomes, and
    ``abstention`` are the phrases that replace the usual ones.
    """

    table: SignalTable
    outcomes: Outcomes
    provenance: Mapping[str, Any]
    units: NDArray[np.intp]
    f1_kind: F1Kind = "hotpotqa"
    abstention: tuple[str, ...] | None = None

    def folds(self) -> NDArray[np.int64]:
        """Return a fold number for every question, (n_questions,); a unit lies in one fold."""
        unit = numbered_units(self.units)
        return folds(int(unit.max(initial=0)) + 1)[unit]

    def held_out(self) -> Iterator[tuple[Mask, Mask]]:
        """Yield the questions of each fold, and the questions to fit on: all others, if any."""
        fold = self.folds()
        for number in np.unique(fold):
            held_out = fold == number
            yield held_out, held_out if held_out.all() else ~held_out

    @property
    def base_rates(self) -> tuple[float, ...]:
        """Mean EM of each round over labeled questions; NaN without any."""
        return tuple(_mean_by_round(self.outcomes.em).tolist())

    @property
    def chosen_by(self) -> Mapping[str, Any]:
        """The provenance of a number chosen by F1."""
        return {**self.provenance, "f1_kind": self.f1_kind}


def _mean_by_round(em: Array) -> Array:
    counts = np.isfinite(em).sum(axis=0)
    means = np.nansum(em, axis=0) / np.maximum(counts, 1)
    return np.where(counts > 0, means, np.nan)


# --- records that were cut -----------------------------------------------------------------------
def fit_questions(part: Measures) -> tuple[Mask, Mapping[str, Any]]:
    """Return the questions that a fit reads, (n_questions,), and counts of the others for its file.

    A fit reads questions that the running policy did not cut, as a sample of all. Explored questions ran
    on whatever it decided, so they are such a sample. Questions that it never stopped are the hard ones:
    the fit keeps an equal share of them, drawn by their ids.
    """
    seen, record = part.seen, part.recorded
    everyone = np.ones(record.n_questions, bool)
    if not record.has("stopped_by"):
        return everyone, {}
    last_rows = np.cumsum(record.last_rounds, dtype=np.int64) - 1
    ends = Texts.of(record.table.column("stopped_by")).take(last_rows)
    by_policy = ends.codes == ends.code_of("policy")
    if by_policy.all():
        raise UsageError(_all_cut(record))
    if seen is None or not (cut := seen.stood_for | (seen.unseen & by_policy)).any():
        return everyone, {}
    never = ~(cut | seen.explored) & np.isin(seen.propensity, seen.propensity[seen.stood_for])
    not_drawn = never.copy()
    names = record.first_rounds("question_id").filter(never).cast("large_binary")
    # a hash between 0 and 1 draws a question alike in any record
    digests = b"".join(blake2b(name.as_buffer(), digest_size=8).digest() for name in names)
    drawn = np.frombuffer(digests, np.uint64) / 2.0**64
    not_drawn[never] = drawn >= seen.propensity[never]
    read = ~(cut | not_drawn)
    if not read.any():
        raise UsageError(_all_cut(record))
    stated = {
        "questions": len(read),
        "read": int(read.sum()),
        "explored": int(seen.explored.sum()),
        "cut": int(cut.sum()),
        "not_drawn": int(not_drawn.sum()),
        **({"untold": seen.untold} if seen.untold else {}),
    }
    return read, {CUT: stated}


def _all_cut(record: TraceSet, what: str = "questions") -> str:
    return (
        f"the policy that ran cut all {what} to fit on in {record.origin.source} and none was explored, so "
        "nothing shows what later rounds would have brought; record some in shadow, or live with a share "
        "explored (explore=0.05), or fit on another record"
    )


def fit_notes(fitted_on: Mapping[str, Any]) -> list[str]:
    """Say from a policy's ``fitted_on`` how cut questions were left out of its fit."""
    stated = fitted_on.get(CUT)
    if not isinstance(stated, Mapping):
        return []
    counts = Counter({name: value for name, value in stated.items() if isinstance(value, int)})
    note = (
        f"fitted on {counts['read']:,} of {counted(counts['questions'], 'question')}: the {counts['cut']:,} "
        "that the policy which ran cut were left out"
    )
    if counts["explored"]:
        return [
            f"{note}, and {counts['not_drawn']:,} of those that it never stopped, so that what is left is "
            f"drawn like the {counts['explored']:,} explored ones"
        ]
    why = "none was explored"
    if counts["untold"]:
        why = f"where it said stop is not recorded (signal '{POLICY_STOP}')"
    return [
        f"{note}; {why}, so what is left holds all that it did not stop, which may be unlike the others"
    ]


# --- what is fitted on ---------------------------------------------------------------------------
def fit_data(
    traces: TraceSet | Measures,
    signals: Iterable[str | SignalSpec],
    *,
    split: str = FIT_SPLIT,
    f1_kind: F1Kind = "hotpotqa",
    fits: bool = True,
    abstention: tuple[str, ...] | None = None,
) -> FitData:
    """Return the labeled questions of a split to fit on, scored with this F1."""
    chosen = Measures.of(traces).only_split(split)
    record, scored = chosen.traces, chosen.scores(f1_kind)
    if not scored.labelled.any():
        instead = "" if not scored.metric.gold else ", or --metric agreement, which needs no label"
        raise UsageError(
            f"no question of split {split!r} in {record.origin.source} {scored.metric.unscored}; "
            f"fitting needs labeled questions{instead}; which are: suffice traces info {record.at}"
        )
    read, cut = fit_questions(chosen) if fits else (np.ones(record.n_questions, bool), {})
    chosen.take(read).scores_throughout("fitting", f1_kind)
    em, f1, acc = (
        np.where(read[:, None], values, np.nan) for values in (scored.em, scored.f1, scored.acc)
    )
    scored = replace(scored, em=em, f1=f1, acc=acc, labelled=scored.labelled & read)
    if not scored.labelled.any():
        raise UsageError(_all_cut(record, "labeled questions"))
    provenance = {
        "source": record.origin.source,
        "split": split,
        "questions": record.n_questions,
        "labelled": int(scored.labelled.sum()),
        "rounds": record.n_rounds,
        **cut,
    }
    if not scored.metric.gold:
        provenance[LABELS] = scored.metric.name
    if abstention is None:
        abstention = stated_phrases(record.origin.run)
    else:
        own = abstained_signal(abstention)
        signals = (own if signal == ABSTAINED.name else signal for signal in signals)
    return FitData(
        table=chosen.signals(signals),
        outcomes=scored,
        provenance=provenance,
        units=chosen.units,
        f1_kind=f1_kind,
        abstention=abstention,
    )


def refuse_without_gold(measures: Measures, who: str, why: str) -> None:
    if not measures.metric.gold:
        raise UsageError(
            f"{who} is fitted on gold answers only ({why}); {measures.metric.stands_for_gold}. "
            f"Leave {who} out, or give the policy file of a fit on labeled traces"
        )


def right_abstentions(questions: Measures) -> tuple[str, ...] | None:
    """Return the phrases of abstaining answers that are no right answers; ``None``: the usual ones."""
    stated = stated_phrases(questions.traces.origin.run)
    if not questions.metric.gold:
        return stated
    phrases = ABSTENTION_PHRASES if stated is None else stated
    answers = gold_answers(questions.traces).texts.distinct
    said = [answer_form(answer) != "" for answer in answers.to_pylist()]
    right = answers.filter(
        pa.array(abstaining(answers, ready(tuple(phrases))) & np.array(said, bool))
    )
    kept = tuple(phrase for phrase in phrases if not abstaining(right, ready((phrase,))).any())
    return stated if kept == phrases else kept


def foretold(em: Array, target: str) -> Array:
    """Return what :class:`Calibrated` foretells, 0 or 1, (n_questions, n_rounds); NaN: unlabeled."""
    if not target:
        return em
    known = np.isfinite(em)
    last = em.shape[1] - 1 - known[:, ::-1].argmax(axis=1)
    end = np.take_along_axis(em, last[:, None], axis=1)
    return np.where(known, end if target == "end" else end > em, np.nan)


_EACH_ROUND: Mapping[str, Callable[..., Calibrator]] = MappingProxyType(
    {"isotonic": fit_isotonic, "platt": fit_platt, "venn-abers": fit_venn_abers}
)


def fit_calibrator(
    data: FitData,
    key: str,
    *,
    kind: CalibratorKind = "isotonic",
    undefined: float | None = None,
    rows: Mask | None = None,
) -> PerRoundCalibrator:
    """Fit ``calibrated(key)``, on all questions or on some ``rows``."""
    if kind not in get_args(CalibratorKind):
        raise UsageError(unknown_name("calibrator", kind, get_args(CalibratorKind)))
    part = Calibrated.of(key)
    if part.target == "end" and data.outcomes.metric.agreement:
        raise UsageError(
            f"{part} is always 1, since agreement is with the last answer; type 'gain' in place of 'end'"
        )
    values, right = data.table.signal(part.name), foretold(data.outcomes.em, part.target)
    if rows is None:
        warn_of_little(data, str(part))
    else:
        values, right = values[rows], right[rows]
    # a map never falls, so that of a signal which does is over its negative
    low = resolve(part.name, also=data.table.values).direction == "low"
    falls = low != (part.target == "gain")
    values = -values if falls else values
    if kind == "shrunken":
        return replace(fit_shrunken(values, right, undefined=undefined), falls=falls)
    if kind == "isotonic-global":
        beyond = fit_isotonic(values, right, undefined=undefined)
        return PerRoundCalibrator(beyond=beyond, falls=falls)
    rounds = zip(values.T, right.T, strict=True)
    maps = tuple(_EACH_ROUND[kind](*column, undefined=undefined) for column in rounds)
    return PerRoundCalibrator(maps=maps, absent=undefined, falls=falls)


def warn_of_little(data: FitData, what: str) -> None:
    labelled, em = int(data.outcomes.labelled.sum()), data.outcomes.em
    least, most = np.fmin.reduce(em, axis=None), np.fmax.reduce(em, axis=None)
    split = f"of split {data.provenance.get('split')!r}"
    if labelled < N_FOLDS:
        little = (
            f"only {counted(labelled, 'labeled question')} {split}, fewer than the {N_FOLDS} folds"
        )
    elif least == most and most in (0.0, 1.0):
        little = f"all answers to the labeled questions {split} are {'right' if most else 'wrong'}"
    else:
        return
    warnings.warn(f"{little}: {what} tells next to nothing", SufficeWarning, stacklevel=3)


def fit_rule(
    rule: str,
    traces: Traces,
    *,
    split: str = FIT_SPLIT,
    calibrator: CalibratorKind = "isotonic",
    fit_on: Traces | None = None,
    metric: str | None = None,
) -> Rule:
    """Fit the ``calibrated(...)`` and ``base_rate()`` of a rule on a split of ``traces``.

    The rule may read the own signals of ``traces``. ``fit_on`` is another record to fit on instead.
    """
    needs = rule_needs(rule)
    measures = Measures.of(traces).by(metric)
    record = measures.traces
    recorded, abstention = record.signal_names, stated_phrases(record.origin.run)
    check_rule(rule, recorded)
    own = own_among(needs.signals, recorded)
    if not needs.fitting:
        return fitted_rule(rule, None, own_signals=own, abstention=abstention)
    fitting = measures if fit_on is None else Measures.of(fit_on).by(measures.metric.name)

    def require_split() -> None:
        if split not in fitting.traces.splits:
            raise UsageError(
                f"rule {rule!r} needs calibrated() or base_rate() fitted on split {split!r}, which "
                f"{fitting.traces.origin.source} does not have; {fitting.traces.how_to_split()}, "
                "or fit on traces that have it with: --fit-on OTHER_TRACES (in Python fit_on=)"
            )

    all_of(
        require_split,
        lambda: refuse_lacking((resolve(name, also=recorded) for name in needs.signals), record),
    )
    data = fit_data(fitting, needs.signals, split=split)
    return fitted_rule(rule, data, own_signals=own, calibrator=calibrator, abstention=abstention)


def fitted_rule(
    rule: str,
    data: FitData | None,
    *,
    own_signals: tuple[str, ...] = (),
    calibrator: CalibratorKind = "isotonic",
    undefined: float | None = None,
    abstention: tuple[str, ...] | None = None,
) -> Rule:
    """Return the rule with its parts fitted on ``data``; ``None`` if nothing is to be fitted."""
    needs = rule_needs(rule)
    if abstention is None and data is not None:
        abstention = data.abstention
    if ABSTAINED.name not in needs.signals:
        abstention = None
    if data is None or not needs.fitting:
        return Rule(rule=rule, own_signals=own_signals, abstention=abstention)
    named = {"calibrator": calibrator} if needs.calibrated and calibrator != "isotonic" else {}
    return Rule(
        rule=rule,
        calibrators={
            part.key: fit_calibrator(data, part.key, kind=calibrator, undefined=undefined)
            for part in needs.calibrated
        },
        base_rates=data.base_rates if needs.base_rate else (),
        own_signals=own_signals,
        abstention=abstention,
        fitted_on={**data.provenance, **named},
    )


def folds(n_units: int) -> NDArray[np.int64]:
    """Return a fold number for every unit, (n_units,); sizes differ by at most one."""
    numbers = np.arange(n_units) % min(N_FOLDS, n_units)
    return np.random.default_rng(_FOLD_SEED).permutation(numbers)


def out_of_fold(
    data: FitData, key: str, *, kind: CalibratorKind = "isotonic", undefined: float | None = None
) -> Array:
    """Return ``calibrated(key)`` of the fitting questions, from maps fitted without their own fold."""
    values = data.table.signal(Calibrated.of(key).name)
    n_questions, n_rounds = values.shape
    warn_of_little(data, f"out of fold, calibrated({key})")
    calibrated = np.full((n_rounds, n_questions), np.nan).T
    for held_out, others in data.held_out():
        calibrator = fit_calibrator(data, key, kind=kind, undefined=undefined, rows=others)
        calibrated[held_out] = calibrator.predict_rounds(values[held_out])
    return calibrated


def base_rates_out_of_fold(data: FitData) -> Array:
    """Return the mean EM of each round over the other folds, (n_questions, n_rounds)."""
    em = data.outcomes.em
    rates = np.empty(em.shape)
    for held_out, others in data.held_out():
        rates[held_out] = _mean_by_round(em[others])
    return rates


# --- what a record does not give -----------------------------------------------------------------
_MOST = 0.5  # undefined in a larger share of the rounds, a signal makes a poor policy
_SELDOM = 0.05  # a rule that can hold in a smaller share of the rounds hardly stops anything


def warn_of_undefined(
    policy: StopPolicy,
    measures: Measures,
    name: str,
    consequence: Callable[[str], str],
    *,
    at_least: int = 0,
) -> None:
    """Warn of the policy's signals that are undefined in most rounds of its fitting questions."""
    traces = measures.traces
    counted, rounds = _counted(traces)
    absent = {
        spec.name: counted & np.isnan(measures.signals([spec]).signal(spec.name))
        for spec in policy.specs
    }
    shares = {name: where.sum() / counted.sum() for name, where in absent.items()}
    ranked = sorted(shares, key=shares.__getitem__, reverse=True)
    for spec in policy.specs:
        share = shares[spec.name]
        if share <= _MOST and spec.name not in ranked[:at_least]:
            continue
        warnings.warn(
            f"{name} reads {spec.name!r}, which is undefined in {share:.1%} of the {rounds}"
            f"{_missing_input(spec, traces, absent[spec.name])}; {consequence(spec.name)}",
            SufficeWarning,
            stacklevel=3,
        )


def warn_of_rule(policy: Rule, measures: Measures, name: str) -> None:
    """Warn of a rule's undefined signals, and of a rule that can hold in hardly any round."""
    counted, _ = _counted(measures.traces)
    share = policy.can_hold(measures.signals(policy.specs))[counted].mean()
    if share >= _SELDOM:
        warn_of_undefined(policy, measures, name, policy.where_undefined)
        return
    idle = (
        f"so {policy.rule!r} can hold in {share:.1%} of them only, and will run nearly every question "
        "to the full budget"
    )
    warn_of_undefined(policy, measures, name, lambda _: idle, at_least=1)


def _counted(traces: TraceSet) -> tuple[Mask, str]:
    counted = traces.exists.copy()
    if counted[:, 1:].any():
        counted[:, 0] = False
    which = "rounds" if counted[:, 0].any() else "rounds after round 1"
    return counted, f"{which} of {traces.origin.source}"


def _missing_input(spec: SignalSpec, traces: TraceSet, absent: Mask) -> str:
    question, number = np.argwhere(absent)[0]
    chosen = np.arange(traces.n_questions) == question
    views = next(iter(traces.take(chosen).views([*read_columns([spec]), "signals"])))
    absence = why_undefined(spec, views[number])
    if absence is None:
        return ""
    return f": {absence.why}" + (f"; {absence.remedy}" if absence.remedy else "")
