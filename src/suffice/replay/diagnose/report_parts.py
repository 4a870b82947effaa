"""What a report shows beside the comparison: each part where the record allows it, else the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from suffice.costs.usage import COSTS
from suffice.errors import UsageError, attempt, unknown_name
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, TEMPLATE
from suffice.replay.choose.guarantees import Guarantee, guarantees
from suffice.replay.choose.search import search
from suffice.replay.choose.search_results import SearchResult
from suffice.replay.choose.sweep import SweepResult, sweep
from suffice.replay.diagnose.breakdown import TypeBreakdown, breakdown
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.selective import (
    SelectiveResult,
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, diagnose
from suffice.replay.run.compare import Comparison
from suffice.replay.settings import DiagnosticsSettings, SearchSettings, SweepSettings
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSettings:
    """Which parts, by the names of :data:`PARTS`.

    ``search`` says what to search (``None``: nothing; its eval split, F1, resamples and seed are the
    comparison's), ``naive`` whether intervals that ignore the size of the search are shown as well.
    ``confidence`` names a signal that stands in for the policies' own confidence.
    """

    parts: tuple[str, ...] = field(default_factory=lambda: PARTS)
    search: SearchSettings | None = None
    naive: bool = False
    confidence: str | None = None

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise UsageError(unknown_name("part", unknown[0], PARTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParts:
    """The parts by name; ``left_out`` says of the others that were wanted why they are not there.

    ``parts["search"]`` is a part, or what stands for it where it is missing: ``None``, or ``()`` for a
    part of several results. ``choice`` is what a report is of that a choice wrote.
    """

    contents: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    naive: bool = False

    def __getitem__(self, name: str) -> Any:
        """The part of this name."""
        missing = _PARTS[name].missing if name in _PARTS else None
        return self.contents.get(name, missing)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null for what is not there; the costs stand in the replay's own document."""
        documents = {name: self._document(name) for name in _PARTS if name != "costs"}
        return {**documents, "left_out": dict(self.left_out)}

    def _document(self, name: str) -> Any:
        part = self[name]
        if isinstance(part, tuple):
            return [result.to_json() for result in part]
        if isinstance(part, SearchResult):
            return part.to_json(naive=self.naive)
        return None if part is None else part.to_json()


def report_parts(
    traces: TraceSet | Measures, comparison: Comparison, settings: PartsSettings | None = None
) -> ReportParts:
    """Compute what the record allows."""
    measures = Measures.of(traces).by(comparison.result.metric.name)
    gathering = _Gathering(measures, comparison, settings or PartsSettings())
    parts, left_out = {}, {}
    for name, part in _PARTS.items():
        if (part.beside or name) in gathering.settings.parts:
            computed, why = attempt(partial(_computed, part, gathering))
            if why is None:
                parts[name] = computed
            else:
                left_out[part.named or name] = why
    return ReportParts(contents=parts, left_out=left_out, naive=gathering.settings.naive)


def _computed(part: _Part, gathering: _Gathering) -> Any:
    metric = gathering.measures.metric
    if part.of_gold and not metric.gold:
        raise UsageError(f"it needs gold answers, and {metric.stands_for_gold}")
    return part.compute(gathering)


class _Gathering:
    """What parts are computed from; one that cannot be had raises an error that says why."""

    def __init__(self, measures: Measures, comparison: Comparison, settings: PartsSettings) -> None:
        self.measures = measures
        self.comparison = comparison
        self.settings = settings
        split = comparison.result.split
        self.eval_split = EVAL_SPLIT if split in (None, FIT_SPLIT) else str(split)

    def guarantees(self) -> tuple[Guarantee, ...]:
        promises = guarantees(self.comparison.result)
        if not promises:
            raise UsageError("no policy replayed here carries a guarantee (suffice fit certified)")
        return promises

    def calibrators(self) -> CalibratorStudy:
        return calibrator_study(self.measures, eval_split=self.eval_split)

    def sweep(self) -> SweepResult:
        result = self.comparison.result
        settings = SweepSettings(
            rule=TEMPLATE,
            eval_split=self.eval_split,
            metric=result.metric.name,
            answer=result.answer,
            f1_kind=result.f1_kind,
            cost=result.cost.name,
            cost_model=result.cost_model,
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
            metric=result.metric.name,
            answer=result.answer,
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
        if not self.comparison.traces.has("question_type"):
            raise UsageError("no question has a type")
        return breakdown(self.comparison.measures, self.comparison.result)

    def selective(self) -> tuple[SelectiveResult, ...]:
        result = self.comparison.result
        if not result.labelled:
            raise UsageError("no question has gold answers")
        settings = SelectiveSettings(
            confidence=self.settings.confidence, resamples=result.resamples, seed=result.seed
        )
        results = selective_prediction(self.comparison.measures, result, settings)
        if not results:
            raise UsageError(
                "no policy replayed here has a confidence of its own (--confidence SIGNAL names one)"
            )
        return results

    def costs(self) -> tuple[CostAxis, ...]:
        """All costs there are, known or not."""
        return tuple(
            CostAxis(name=cost.name, label=cost.label, unit=cost.unit) for cost in COSTS.values()
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """How a part is computed, and what stands for it where it is ``missing``.

    One ``beside`` another is wanted with it; ``named`` is what it is called where it is left out. One
    ``of_gold`` says what something is worth against gold answers.
    """

    compute: Callable[[_Gathering], Any]
    missing: Any = None
    beside: str | None = None
    named: str | None = None
    of_gold: bool = False


_PARTS: Mapping[str, _Part] = {
    "guarantees": _Part(compute=_Gathering.guarantees, missing=()),
    "calibrators": _Part(compute=_Gathering.calibrators, of_gold=True),
    "sweep": _Part(compute=_Gathering.sweep),
    "search": _Part(compute=_Gathering.search),
    "diagnostics": _Part(compute=_Gathering.diagnostics, of_gold=True),
    "types": _Part(
        compute=_Gathering.types,
        missing=(),
        beside="diagnostics",
        named="question types",
        of_gold=True,
    ),
    "selective": _Part(compute=_Gathering.selective, missing=(), of_gold=True),
    "costs": _Part(compute=_Gathering.costs, missing=()),
}
PARTS: tuple[str, ...] = tuple(name for name, part in _PARTS.items() if part.beside is None)
