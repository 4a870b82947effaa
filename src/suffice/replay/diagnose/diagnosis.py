"""The whole diagnosis of a trace set: its signals, and policies by question type and by confidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from suffice.errors import UsageError, attempt
from suffice.measures.measures import Measures, Traces
from suffice.options import settings_of
from suffice.policies.defaults import MARGIN
from suffice.replay.diagnose.breakdown import TypeBreakdown, breakdown
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.selective import (
    SelectiveResult,
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, diagnose
from suffice.replay.diagnose.tables import diagnosis_tables
from suffice.replay.run.compare import compare
from suffice.replay.run.named_policies import fixed_names
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import ComparisonSettings, DiagnosisSettings, DiagnosticsSettings
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular


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
        return tuple(diagnosis_tables(self))

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
