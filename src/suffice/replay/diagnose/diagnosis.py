"""The whole diagnosis of a trace set: its signals, and policies by question type and by confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError, attempt
from suffice.measures.measures import Measures, Traces
from suffice.measures.scores import Outcomes
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.numbers.units import unit_means
from suffice.options import settings_of
from suffice.policies.defaults import MARGIN
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.selective import (
    SelectiveResult,
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, diagnose
from suffice.replay.diagnose.signal_tables import NAME_WIDTH, POLICY
from suffice.replay.run.compare import compare
from suffice.replay.run.named_policies import fixed_names, of_rounds, replayed
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ComparisonSettings, DiagnosisSettings, DiagnosticsSettings
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.signals.columns.texts import NONE, Texts
from suffice.trace.rounds.table import TraceSet

FEW_QUESTIONS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeScores:
    """One policy on one type: mean scores of labelled questions, mean rounds of all.

    ``delta_f1`` is the paired difference to the replay's baseline on the same questions. ``None``: no
    question of the type is labelled.
    """

    policy: str
    em: float | None
    f1: float | None
    mean_rounds: float | None
    delta_f1: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeBreakdown:
    """Every policy on the questions of one type (``None``: those without one).

    ``few``: fewer than 10 labelled questions, too few to read anything into.
    """

    type: str | None
    questions: int
    labelled: int
    policies: tuple[TypeScores, ...]

    @property
    def few(self) -> bool:
        """Whether there are too few questions."""
        return self.labelled < FEW_QUESTIONS

    @staticmethod
    def side_by_side(types: Sequence[TypeBreakdown], baseline: str | None) -> Table:
        """Every policy on every type of question; no difference to itself for the ``baseline``."""
        columns = (
            Column(name="type", most=2 * NAME_WIDTH, once=True),
            POLICY,
            Column(name="n", kind="count"),
            Column(name="em", kind="percent", head="EM"),
            Column(name="f1", kind="percent", head="F1"),
            Column(name="mean_rounds", kind="number", digits=2, head="rounds"),
            Column(name="delta_f1", kind="points", interval=True, head="delta F1 [95%]"),
        )
        rows: list[list[Value]] = []
        for breakdown in types:
            shown = "(no type)" if breakdown.type is None else breakdown.type
            name = Cell(breakdown.type, f"{shown}{' (few)' if breakdown.few else ''}")
            for scores in breakdown.policies:
                delta: Value = scores.delta_f1
                if scores.policy == baseline:
                    delta = Cell(scores.delta_f1, "(baseline)")
                rows.append(
                    [
                        *(name, scores.policy, breakdown.labelled, scores.em, scores.f1),
                        *(scores.mean_rounds, delta),
                    ]
                )
        title = (
            "Policies by question type; EM, F1 and differences in percent. Few: under 10 questions."
        )
        return Table(name="policies by type", title=title, columns=columns, rows=rows, names=2)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "type": self.type,
            "questions": self.questions,
            "labelled": self.labelled,
            "few": self.few,
            "policies": as_json(self.policies),
        }


def breakdown(traces: TraceSet | Measures, result: ReplayResult) -> tuple[TypeBreakdown, ...]:
    """The replay ``result`` of ``traces`` by question type, types sorted, untyped questions last."""
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored = measures.scores(result.f1_kind)
    types = Texts.of(measures.traces.first_rounds("question_type"))
    codes = {kind: code for code, kind in enumerate(types.distinct.to_pylist())}
    rows = {kind: types.codes == codes[kind] for kind in sorted(codes)}
    untyped = types.codes == NONE
    return tuple(
        _of_type(kind, of_kind, scored, result, measures.units)
        for kind, of_kind in (*rows.items(), (None, untyped))
        if of_kind.any()
    )


def _of_type(
    kind: str | None,
    rows: NDArray[np.bool_],
    scored: Outcomes,
    result: ReplayResult,
    units: NDArray[np.intp],
) -> TypeBreakdown:
    labelled = rows & scored.labelled & scored.metric.gold
    f1 = np.stack([policy.at_stops.scores["f1"][labelled] for policy in result.policies], axis=1)
    f1 = unit_means(f1, units[labelled])
    names = [policy.name for policy in result.policies]
    delta = f1 - f1[:, [names.index(result.baseline)]]
    draws = (
        resampled_means(delta, resamples=result.resamples, seed=result.seed)
        if labelled.any()
        else None
    )
    policies = []
    for number, policy in enumerate(result.policies):
        rounds = policy.at_stops.costs["rounds"]
        differs = None if draws is None else _mean(delta[:, number])
        policies.append(
            TypeScores(
                policy=policy.name,
                em=_mean(unit_means(policy.at_stops.scores["em"][labelled], units[labelled])),
                f1=_mean(f1[:, number]),
                mean_rounds=None
                if rounds is None
                else _mean(unit_means(rounds[rows], units[rows])),
                delta_f1=None
                if draws is None or differs is None
                else percentile_interval(differs, draws[:, number]),
            )
        )
    return TypeBreakdown(
        type=kind,
        questions=int(rows.sum()),
        labelled=int(labelled.sum()),
        policies=tuple(policies),
    )


def _mean(values: NDArray[np.float64]) -> float | None:
    """``None``: of no question, or not known of some."""
    mean = float(values.mean()) if len(values) else np.nan
    return None if np.isnan(mean) else mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Tabular):
    """Signals on both splits; the replay of the policies on eval, by type and by confidence.

    ``calibrators`` compares the kinds of calibrators, fitted on tune and scored on eval; where the
    record does not allow it, ``no_calibrators`` says why.
    """

    signals: Diagnostics
    replayed: ReplayResult
    types: tuple[TypeBreakdown, ...]
    selective: tuple[SelectiveResult, ...]
    calibrators: CalibratorStudy | None
    no_calibrators: str | None
    notes: tuple[str, ...]

    def tables(self) -> tuple[Table, ...]:
        """Signals, policies by type, confidences and calibrators, then the notes."""
        return tuple(self._tables())

    def _tables(self) -> Iterator[Table]:
        yield from self.signals.tables()
        labels = self.replayed.labels
        if any(breakdown.type is not None for breakdown in self.types):
            yield _with_labels(
                TypeBreakdown.side_by_side(self.types, self.replayed.baseline), labels
            )
        for table in SelectiveResult.side_by_side(self.selective):
            yield _with_labels(table, labels)
        if self.calibrators is not None:
            yield from self.calibrators.tables()
        else:
            why = f"Calibrators are not compared: {self.no_calibrators or ''}"
            yield Table(name="calibrators", title=why)
        yield Table(name="notes", notes=[f"Note: {note}" for note in self.notes])

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            **self.signals.to_json(),
            "replay": {
                "split": self.replayed.split,
                "questions": self.replayed.questions,
                "labelled": self.replayed.labelled,
                "baseline": self.replayed.baseline,
                "f1_kind": self.replayed.f1_kind,
            },
            "types": [breakdown.to_json() for breakdown in self.types],
            "selective": as_json(self.selective),
            "calibrators": None if self.calibrators is None else self.calibrators.to_json(),
            "no_calibrators": self.no_calibrators,
            "notes": list(self.notes),
        }


def diagnosis(
    traces: Traces, settings: DiagnosisSettings | None = None, **stated: Any
) -> Diagnosis:
    """Diagnose the signals, and replay the policies on the eval split, or on all questions.

    ``stated`` are fields of the settings by their names, as in ``rules=["answer_stable"]``.

    Raises
    ------
    UsageError
        For an unknown signal or policy, or one that the record cannot give.
    """
    settings = settings_of(DiagnosisSettings, settings, **stated)
    measures = Measures.of(traces).by("f1")  # what a signal is worth is known by gold answers alone
    signals = diagnose(measures, settings.signals)
    policies = settings.policies
    if not policies and not settings.rules:
        policies = fixed_names(measures.traces.n_rounds)
    wanted = settings.signals.eval_split
    comparison = compare(
        measures,
        ComparisonSettings(
            policies=policies,
            rules=settings.rules,
            split=wanted if wanted in measures.traces.splits else None,
            f1_kind=settings.f1_kind,
            resamples=settings.signals.resamples,
            seed=settings.signals.seed,
        ),
    )
    asked = SelectiveSettings(
        confidence=settings.confidence,
        threshold=settings.threshold,
        resamples=settings.signals.resamples,
        seed=settings.signals.seed,
    )
    result = comparison.result
    selective = selective_prediction(comparison.measures, result, asked)
    types = breakdown(comparison.measures, result)
    notes = [*result.banners, *signals.notes, *result.notes]
    named = len(settings.policies) + len(settings.rules) > 0
    confident = {result.policy for result in selective}
    if named and comparison.result.labelled and settings.confidence is None:
        notes += [
            f"{policy.label} has no confidence of its own; name a signal with --confidence, in Python "
            "with confidence="
            for policy in comparison.result.policies
            if policy.name not in confident and policy.name != comparison.result.baseline
        ]
    calibrators, no_calibrators = attempt(lambda: _calibrators(measures, settings.signals))
    return Diagnosis(
        signals=signals,
        replayed=comparison.result,
        types=types,
        selective=selective,
        calibrators=calibrators,
        no_calibrators=no_calibrators,
        notes=tuple(dict.fromkeys(notes)),
    )


def _calibrators(measures: Measures, settings: DiagnosticsSettings) -> CalibratorStudy:
    if settings.signals is not None and MARGIN not in settings.signals:
        raise UsageError(f"{MARGIN} is not among the signals asked for")
    return calibrator_study(
        measures, tune_split=settings.tune_split, eval_split=settings.eval_split
    )


def _with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    """A table of policies by name with what tables call them."""
    place = [column.name for column in table.columns].index("policy")
    rows = [
        [*row[:place], labels.get(str(row[place]), row[place]), *row[place + 1 :]]
        for row in table.rows
    ]
    return replace(table, rows=rows)
