"""What a report shows beside the comparison, promises among it, each where the record allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any

from suffice.costs.usage import COSTS
from suffice.errors import UsageError, attempt, unknown_name
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, TEMPLATE
from suffice.protocols import Facts
from suffice.replay.choose.search import search
from suffice.replay.choose.search_results import SearchResult
from suffice.replay.choose.sweep import SweepResult, sweep
from suffice.replay.diagnose.calibrator_study import CalibratorStudy, calibrator_study
from suffice.replay.diagnose.diagnosis import TypeBreakdown, breakdown
from suffice.replay.diagnose.selective import (
    SelectiveResult,
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.diagnose.signal_diagnostics import Diagnostics, diagnose
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import DiagnosticsSettings, SearchSettings, SweepSettings
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTerms:
    """One of several bounds of a promise; ``None`` where its file does not say."""

    of: str
    at_most: float | None
    measured: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Guarantee:
    """A policy's promise; ``None`` where its file does not say, or says what makes no sense.

    The names are those of the policy file, see :meth:`suffice.replay.choose.proof.Row.document`; costs are
    means per question of the cost named ``cost``, in words ``cost_label``. ``learn`` and ``test`` are the
    sizes of the halves of a learned family, ``source`` and ``split`` where all questions were drawn.
    ``elsewhere``: on traces other than those replayed. ``more`` are terms that this version does not
    know.

    ``bounds`` are all that is promised together, empty where it is the loss alone; ``min_rounds`` is the
    first round at which it may stop. ``cost_counted_to`` is what a question counts at most in a
    bounded cost, which ``cost_above`` tested ones passed.
    """

    policy: str
    rule: str
    fell_back: bool | None
    path: str | None
    loss: str | None
    metric: str | None
    max_loss: float | None
    confidence: float | None
    family: str | None
    members: float | None
    duplicates: float | None
    tested: float | None
    certified: float | None
    correction: str | None
    p_value: float | None
    measured_loss: float | None
    units: float | None
    learn: float | None
    test: float | None
    questions_needed: float | None
    cost: str | None
    mean_cost: float | None
    full_budget_cost: float | None
    source: str | None
    split: str | None
    cost_label: str | None
    elsewhere: bool
    more: Mapping[str, str]
    bounds: tuple[BoundTerms, ...] = ()
    min_rounds: float | None = None
    cost_counted_to: float | None = None
    cost_above: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; what only some promises have is left out of others."""
        document = {attribute.name: getattr(self, attribute.name) for attribute in fields(self)}
        document["more"] = dict(self.more)
        document["bounds"] = [asdict(bound) for bound in self.bounds]
        absent = [name for name in ("bounds", *_SELDOM) if not document[name]]
        return {name: value for name, value in document.items() if name not in absent}


_TEXTS = ("path", "loss", "metric", "family", "correction", "cost")
_NUMBERS = (
    *("max_loss", "confidence", "members", "duplicates", "tested", "certified", "p_value"),
    *("measured_loss", "units", "questions_needed"),
    *("mean_cost", "full_budget_cost"),
)
_SELDOM = ("min_rounds", "cost_counted_to", "cost_above")
_KNOWN = frozenset(
    {*_TEXTS, *_NUMBERS, *_SELDOM, "bounds", "fell_back", "questions", "seed", "bounded", "saved"}
)


def guarantees(result: ReplayResult) -> tuple[Guarantee, ...]:
    """The promise of every replayed policy that carries one, in the replay's order."""
    return tuple(
        _guarantee(one.name, one.policy.facts, result.source)
        for one in result.policies
        if one.policy is not None and one.policy.facts.guarantee
    )


def _guarantee(name: str, facts: Facts, replayed: str) -> Guarantee:
    terms = facts.guarantee
    halves = terms.get("questions")
    sizes = halves if isinstance(halves, Mapping) else {}
    fell_back = terms.get("fell_back")
    source = _text(facts.fitted_on.get("source"))
    texts = {key: _text(terms.get(key)) for key in _TEXTS}
    numbers = {key: _number(terms.get(key)) for key in (*_NUMBERS, *_SELDOM)}
    known: dict[str, Any] = {**texts, **numbers}
    cost = COSTS.get(texts["cost"] or "")
    return Guarantee(
        policy=name,
        rule=facts.summary,
        fell_back=fell_back if isinstance(fell_back, bool) else None,
        learn=_number(sizes.get("learn")),
        test=_number(sizes.get("test")),
        source=source,
        split=_text(facts.fitted_on.get("split")),
        cost_label=texts["cost"] if cost is None else cost.label,
        elsewhere=source is not None and source != replayed,
        bounds=_bounds(terms.get("bounds")),
        more={str(key): str(value) for key, value in terms.items() if key not in _KNOWN},
        **known,
    )


def _bounds(stated: object) -> tuple[BoundTerms, ...]:
    listed = stated if isinstance(stated, list) else []
    return tuple(
        BoundTerms(
            of=str(bound.get("of")),
            at_most=_number(bound.get("at_most")),
            measured=_number(bound.get("measured")),
        )
        for bound in listed
        if isinstance(bound, Mapping)
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


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


@dataclass(frozen=True, slots=True)
class _Gathering:
    """What parts are computed from; one that cannot be had raises an error that says why."""

    measures: Measures
    comparison: Comparison
    settings: PartsSettings

    @property
    def eval_split(self) -> str:
        split = self.comparison.result.split
        return EVAL_SPLIT if split in (None, FIT_SPLIT) else str(split)

    @property
    def _drawn(self) -> dict[str, Any]:
        result = self.comparison.result
        return {"resamples": result.resamples, "seed": result.seed}

    @property
    def _tuned(self) -> dict[str, Any]:
        """What a search and a sweep take over from the comparison."""
        result = self.comparison.result
        return {
            "eval_split": self.eval_split,
            "metric": result.metric.name,
            "answer": result.answer,
            "f1_kind": result.f1_kind,
            **self._drawn,
        }

    def guarantees(self) -> tuple[Guarantee, ...]:
        promises = guarantees(self.comparison.result)
        if not promises:
            raise UsageError("no policy replayed here carries a guarantee (suffice fit certified)")
        return promises

    def calibrators(self) -> CalibratorStudy:
        return calibrator_study(self.measures, eval_split=self.eval_split)

    def sweep(self) -> SweepResult:
        result = self.comparison.result
        costs: dict[str, Any] = {"cost": result.cost.name, "cost_model": result.cost_model}
        return sweep(self.measures, SweepSettings(rule=TEMPLATE, **costs, **self._tuned))

    def search(self) -> SearchResult:
        wanted = self.settings.search
        if wanted is None:
            raise UsageError("no signals to search were named (--search A,B,...)")
        settings = replace(
            wanted, **{**self._tuned, "resamples": max(2, self.comparison.result.resamples)}
        )
        return search(self.measures, settings)

    def diagnostics(self) -> Diagnostics:
        settings = DiagnosticsSettings(eval_split=self.eval_split, **self._drawn)
        return diagnose(self.measures, settings)

    def types(self) -> tuple[TypeBreakdown, ...]:
        if not self.comparison.traces.has("question_type"):
            raise UsageError("no question has a type")
        return breakdown(self.comparison.measures, self.comparison.result)

    def selective(self) -> tuple[SelectiveResult, ...]:
        result = self.comparison.result
        if not result.labelled:
            raise UsageError("no question has gold answers")
        settings = SelectiveSettings(confidence=self.settings.confidence, **self._drawn)
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
