"""What a report shows beside the comparison: each part where the record allows it, else the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from suffice.costs.usage import COSTS
from suffice.errors import UsageError, attempt
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.fitting import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.thresholds import TEMPLATE
from suffice.replay.choose.guarantees import Guarantee, guarantees
from suffice.replay.choose.search import SearchSettings, search
from suffice.replay.choose.search_results import SearchResult
from suffice.replay.choose.sweep import SweepResult, SweepSettings, sweep
from suffice.replay.diagnose.breakdown import TypeBreakdown, breakdown
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.selective import (
    SelectiveResult,
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, DiagnosticsSettings, diagnose
from suffice.replay.run.compare import Comparison
from suffice.trace.rounds.table import TraceSet

Found = TypeVar("Found")
PARTS = ("guarantees", "calibrators", "sweep", "search", "diagnostics", "selective", "costs")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSettings:
    """Which parts, by the names of :data:`PARTS`.

    ``search`` says what to search (``None``: nothing; its eval split, F1, resamples and seed are the
    comparison's), ``naive`` whether intervals that ignore the size of the search are shown as well.
    ``confidence`` names a signal that stands in for the policies' own confidence.
    """

    parts: tuple[str, ...] = PARTS
    search: SearchSettings | None = None
    naive: bool = False
    confidence: str | None = None

    def __post_init__(self) -> None:
        unknown = [each for each in self.parts if each not in PARTS]
        if unknown:
            raise UsageError(f"unknown part {unknown[0]!r}; known: {', '.join(PARTS)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParts:
    """The parts found; ``left_out`` says of the others that were wanted why they are not there.

    ``types`` go with the diagnostics. ``costs`` are all costs there are, known or not.
    """

    guarantees: tuple[Guarantee, ...] = ()
    calibrators: CalibratorStudy | None = None
    sweep: SweepResult | None = None
    search: SearchResult | None = None
    diagnostics: Diagnostics | None = None
    types: tuple[TypeBreakdown, ...] = ()
    selective: tuple[SelectiveResult, ...] = ()
    costs: tuple[CostAxis, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    naive: bool = False

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null for what is not there; the costs stand in the replay's own document."""
        return {
            "guarantees": [each.to_json() for each in self.guarantees],
            "calibrators": None if self.calibrators is None else self.calibrators.to_json(),
            "sweep": None if self.sweep is None else self.sweep.to_json(),
            "search": None if self.search is None else self.search.to_json(naive=self.naive),
            "diagnostics": None if self.diagnostics is None else self.diagnostics.to_json(),
            "types": [each.to_json() for each in self.types],
            "selective": [each.to_json() for each in self.selective],
            "left_out": dict(self.left_out),
        }


def report_parts(
    traces: TraceSet | Measures, comparison: Comparison, settings: PartsSettings | None = None
) -> ReportParts:
    """Compute what the record allows.

    Parameters
    ----------
    traces
        All questions: ``comparison`` holds those of one split only.
    comparison
        What the report is about; its F1, resamples and seed serve all parts.
    settings
        Which parts (default: all but a search).
    """
    gathered = _Gathered(Measures.of(traces), comparison, settings or PartsSettings())
    return ReportParts(
        guarantees=gathered.part("guarantees", gathered.guarantees) or (),
        calibrators=gathered.part("calibrators", gathered.calibrators),
        sweep=gathered.part("sweep", gathered.sweep),
        search=gathered.part("search", gathered.search),
        diagnostics=gathered.part("diagnostics", gathered.diagnostics),
        types=gathered.part("diagnostics", gathered.types, "question types") or (),
        selective=gathered.part("selective", gathered.selective) or (),
        costs=gathered.part("costs", _costs) or (),
        left_out=gathered.left_out,
        naive=gathered.settings.naive,
    )


def _costs() -> tuple[CostAxis, ...]:
    return tuple(
        CostAxis(name=each.name, label=each.label, unit=each.unit) for each in COSTS.values()
    )


class _Gathered:
    """Parts one by one, with the reasons of those that cannot be had."""

    def __init__(self, measures: Measures, comparison: Comparison, settings: PartsSettings) -> None:
        self.measures = measures
        self.comparison = comparison
        self.settings = settings
        self.left_out: dict[str, str] = {}
        split = comparison.result.split
        self.eval_split = EVAL_SPLIT if split in (None, FIT_SPLIT) else str(split)

    def part(
        self, name: str, compute: Callable[[], Found], shown: str | None = None
    ) -> Found | None:
        """The part if it is wanted and can be had; ``shown`` names it among what is left out."""
        if name not in self.settings.parts:
            return None
        found, why = attempt(compute)
        if why is not None:
            self.left_out[shown or name] = why
        return found

    def guarantees(self) -> tuple[Guarantee, ...]:
        found = guarantees(self.comparison.result)
        if not found:
            raise UsageError("no policy replayed here carries a guarantee (suffice fit certified)")
        return found

    def calibrators(self) -> CalibratorStudy:
        return calibrator_study(self.measures, eval_split=self.eval_split)

    def sweep(self) -> SweepResult:
        result = self.comparison.result
        settings = SweepSettings(
            rule=TEMPLATE,
            eval_split=self.eval_split,
            f1_kind=result.f1_kind,
            resamples=result.resamples,
            seed=result.seed,
        )
        return sweep(self.measures, settings)

    def search(self) -> SearchResult:
        result, wanted = self.comparison.result, self.settings.search
        if wanted is None:
            raise UsageError("no signals to search were named (--search A,B,...)")
        settings = replace(
            wanted,
            eval_split=self.eval_split,
            f1_kind=result.f1_kind,
            resamples=max(2, result.resamples),
            seed=result.seed,
        )
        return search(self.measures, settings)

    def diagnostics(self) -> Diagnostics:
        result = self.comparison.result
        settings = DiagnosticsSettings(
            eval_split=self.eval_split, resamples=result.resamples, seed=result.seed
        )
        return diagnose(self.measures, settings)

    def types(self) -> tuple[TypeBreakdown, ...]:
        if not any(each.type is not None for each in self.comparison.traces.questions):
            raise UsageError("no question has a type")
        return breakdown(self.comparison.measures, self.comparison.result)

    def selective(self) -> tuple[SelectiveResult, ...]:
        result = self.comparison.result
        if not result.labelled:
            raise UsageError("no question has gold answers")
        settings = SelectiveSettings(
            confidence=self.settings.confidence, resamples=result.resamples, seed=result.seed
        )
        found = selective_prediction(self.comparison.measures, result, settings)
        if not found:
            raise UsageError(
                "no policy replayed here has a confidence of its own (--confidence SIGNAL names one)"
            )
        return found
