"""The whole diagnosis of a trace set: its signals, and policies by question type and by confidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import attempt
from suffice.measures.measures import Measures, Traces
from suffice.options import settings_of
from suffice.policies.defaults import MARGIN
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.selective import (
    SelectiveSettings,
    selective_prediction,
    selective_tables,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, diagnose
from suffice.replay.diagnose.signal_tables import NAME_WIDTH, POLICY
from suffice.replay.run.compare import compare
from suffice.replay.run.named_policies import fixed_names, of_rounds, replayed
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ComparisonSettings, DiagnosisSettings
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.signals.columns.arrays import NONE, Texts
from suffice.stats.intervals.bootstrap import percentile_interval, resampled_means
from suffice.stats.units import unit_means
from suffice.trace.rounds.table import TraceSet

FEW_QUESTIONS = 10


def breakdown(traces: TraceSet | Measures, result: ReplayResult) -> tuple[dict[str, Any], ...]:
    """The replay ``result`` of ``traces`` by question type, types sorted, untyped questions (``None``) last.

    Of every policy mean scores of labelled questions (``None``: there are none), mean rounds of all, and the
    paired difference to the baseline on the same questions. ``few``: fewer than 10 labelled questions, too
    few to read anything into.
    """
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored, units = measures.scores(result.f1_kind), measures.units
    types = Texts.of(measures.traces.first_rounds("question_type"))
    codes = {kind: code for code, kind in enumerate(types.distinct.to_pylist())}
    baseline = [policy.name for policy in result.policies].index(result.baseline)
    found: list[dict[str, Any]] = []
    for kind in (*sorted(codes), None):
        rows = types.codes == (NONE if kind is None else codes[kind])
        if not rows.any():
            continue
        labelled = rows & scored.labelled & scored.metric.gold
        f1 = [policy.at_stops.scores["f1"][labelled] for policy in result.policies]
        means = unit_means(np.stack(f1, axis=1), units[labelled])
        delta = means - means[:, [baseline]]
        draws = (
            resampled_means(delta, resamples=result.resamples, seed=result.seed)
            if labelled.any()
            else None
        )
        policies = []
        for number, policy in enumerate(result.policies):
            rounds, differs = policy.at_stops.costs["rounds"], _mean(delta[:, number])
            em = unit_means(policy.at_stops.scores["em"][labelled], units[labelled])
            policies.append(
                {
                    "policy": policy.name,
                    "em": _mean(em),
                    "f1": _mean(means[:, number]),
                    "mean_rounds": None
                    if rounds is None
                    else _mean(unit_means(rounds[rows], units[rows])),
                    "delta_f1": None
                    if draws is None or differs is None
                    else percentile_interval(differs, draws[:, number]),
                }
            )
        known = int(labelled.sum())
        few = known < FEW_QUESTIONS
        of_kind = {"type": kind, "questions": int(rows.sum()), "labelled": known, "few": few}
        found.append({**of_kind, "policies": policies})
    return tuple(found)


def types_table(types: Sequence[Mapping[str, Any]], baseline: str | None) -> Table:
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
    for of_kind in types:
        shown = "(no type)" if of_kind["type"] is None else of_kind["type"]
        name = Cell(of_kind["type"], f"{shown}{' (few)' if of_kind['few'] else ''}")
        for scores in of_kind["policies"]:
            policy, *figures, delta = scores.values()
            delta = Cell(delta, "(baseline)") if policy == baseline else delta
            rows.append([name, policy, of_kind["labelled"], *figures, delta])
    title = "Policies by question type; EM, F1 and differences in percent. Few: under 10 questions."
    return Table(name="policies by type", title=title, columns=columns, rows=rows, names=2)


def _mean(values: NDArray[np.float64]) -> float | None:
    """``None``: of no question, or not known of some."""
    mean = float(values.mean()) if len(values) else np.nan
    return None if np.isnan(mean) else mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Tabular):
    """Signals on both splits; the replay of the policies on eval, by type and by confidence, as in JSON.

    ``calibrators`` compares the kinds of calibrators, fitted on tune and scored on eval; where the
    record does not allow it, ``no_calibrators`` says why.
    """

    signals: Diagnostics
    replayed: ReplayResult
    types: tuple[Mapping[str, Any], ...]
    selective: tuple[Mapping[str, Any], ...]
    calibrators: CalibratorStudy | None
    no_calibrators: str | None
    notes: tuple[str, ...]

    def tables(self) -> tuple[Table, ...]:
        """Signals, policies by type, confidences and calibrators, then the notes."""
        labels, tables = self.replayed.labels, [*self.signals.tables()]
        if any(of_kind["type"] is not None for of_kind in self.types):
            tables.append(_with_labels(types_table(self.types, self.replayed.baseline), labels))
        tables += [_with_labels(table, labels) for table in selective_tables(self.selective)]
        if self.calibrators is not None:
            tables += self.calibrators.tables()
        else:
            why = f"Calibrators are not compared: {self.no_calibrators or ''}"
            tables.append(Table(name="calibrators", title=why))
        notes = [f"Note: {note}" for note in self.notes]
        return (*tables, Table(name="notes", notes=notes))

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
            "types": as_json(self.types),
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
    confident = {one["policy"] for one in selective}
    if named and comparison.result.labelled and settings.confidence is None:
        notes += [
            f"{policy.label} has no confidence of its own; name a signal with --confidence, in Python "
            "with confidence="
            for policy in comparison.result.policies
            if policy.name not in confident and policy.name != comparison.result.baseline
        ]
    asked_for = settings.signals
    calibrators: CalibratorStudy | None = None
    no_calibrators: str | None = f"{MARGIN} is not among the signals asked for"
    if asked_for.signals is None or MARGIN in asked_for.signals:
        study = partial(
            calibrator_study,
            measures,
            tune_split=asked_for.tune_split,
            eval_split=asked_for.eval_split,
        )
        calibrators, no_calibrators = attempt(study)
    return Diagnosis(
        signals=signals,
        replayed=comparison.result,
        types=types,
        selective=selective,
        calibrators=calibrators,
        no_calibrators=no_calibrators,
        notes=tuple(dict.fromkeys(notes)),
    )


def _with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    """A table of policies by name with what tables call them."""
    place = [column.name for column in table.columns].index("policy")
    rows = [
        [*row[:place], labels.get(str(row[place]), row[place]), *row[place + 1 :]]
        for row in table.rows
    ]
    return replace(table, rows=rows)
