"""What a report shows beside the comparison, promises among it, each where the record allows it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from suffice.contracts import Facts
from suffice.costs.usage import COSTS
from suffice.errors import UsageError, attempt, unknown_name
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT, TEMPLATE
from suffice.replay.choose.search import SearchResult, search
from suffice.replay.choose.sweep import SweepResult, sweep
from suffice.replay.diagnose.calibrator_study import calibrator_study
from suffice.replay.diagnose.diagnosis import breakdown
from suffice.replay.diagnose.selective import SelectiveSettings, selective_prediction
from suffice.replay.diagnose.signal_diagnostics import diagnose
from suffice.replay.run.compare import Comparison
from suffice.replay.run.results import ReplayResult
from suffice.replay.settings import DiagnosticsSettings, SearchSettings, SweepSettings
from suffice.results.as_json import as_json
from suffice.trace.rounds.table import TraceSet

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


def guarantees(result: ReplayResult) -> tuple[dict[str, Any], ...]:
    """The promise of every replayed policy that carries one, in the replay's order.

    The terms are those of the policy file, see :meth:`suffice.replay.choose.proof.Row.document`, ``None``
    where it does not say, or says what makes no sense; costs are means per question of the cost named
    ``cost``, in words ``cost_label``. ``learn`` and ``test`` are the sizes of the halves of a learned family,
    ``source`` and ``split`` where all questions were drawn, ``elsewhere`` on traces other than those
    replayed. ``bounds`` are all that is promised together, empty where it is the loss alone; ``min_rounds``
    is the first round at which it may stop. ``cost_counted_to`` is what a question counts at most in a
    bounded cost, which ``cost_above`` tested ones passed. ``more`` are terms that this version does not know.
    """
    return tuple(
        _guarantee(one.name, one.policy.facts, result.source)
        for one in result.policies
        if one.policy is not None and one.policy.facts.guarantee
    )


def _guarantee(name: str, facts: Facts, replayed: str) -> dict[str, Any]:
    terms = facts.guarantee
    halves = terms.get("questions")
    sizes = halves if isinstance(halves, Mapping) else {}
    fell_back = terms.get("fell_back")
    source = _text(facts.fitted_on.get("source"))
    listed = terms.get("bounds")
    cost = _text(terms.get("cost"))
    known = COSTS.get(cost or "")
    return {
        **{key: _text(terms.get(key)) for key in _TEXTS},
        **{key: _number(terms.get(key)) for key in (*_NUMBERS, *_SELDOM)},
        "policy": name,
        "rule": facts.summary,
        "fell_back": fell_back if isinstance(fell_back, bool) else None,
        "learn": _number(sizes.get("learn")),
        "test": _number(sizes.get("test")),
        "source": source,
        "split": _text(facts.fitted_on.get("split")),
        "cost_label": cost if known is None else known.label,
        "elsewhere": source is not None and source != replayed,
        "more": {str(key): str(value) for key, value in terms.items() if key not in _KNOWN},
        "bounds": [
            {
                "of": str(bound.get("of")),
                "at_most": _number(bound.get("at_most")),
                "measured": _number(bound.get("measured")),
            }
            for bound in (listed if isinstance(listed, list) else [])
            if isinstance(bound, Mapping)
        ],
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


_PARTS: Mapping[str, tuple[()] | None] = MappingProxyType(
    {
        "guarantees": (),
        "calibrators": None,
        "sweep": None,
        "search": None,
        "diagnostics": None,
        "types": (),
        "selective": (),
        "costs": (),
    }
)
"""What stands for a part that is missing."""
_OF_GOLD = frozenset({"calibrators", "diagnostics", "types", "selective"})
"""Those that say what something is worth against gold answers."""
PARTS: tuple[str, ...] = tuple(name for name in _PARTS if name != "types")
"""Those that can be named; types are told with diagnostics."""


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
        return self.contents.get(name, _PARTS.get(name))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null for what is not there; the costs stand in the replay's own document."""
        documents = {name: as_json(self[name]) for name in _PARTS if name != "costs"}
        if isinstance(searched := self["search"], SearchResult):
            documents["search"] = searched.to_json(naive=self.naive)
        documents["guarantees"] = [
            # what only some promises have is left out of others
            {
                name: value
                for name, value in terms.items()
                if value or name not in ("bounds", *_SELDOM)
            }
            for terms in self["guarantees"]
        ]
        return {**documents, "left_out": dict(self.left_out)}


def report_parts(
    traces: TraceSet | Measures, comparison: Comparison, settings: PartsSettings | None = None
) -> ReportParts:
    """Compute what the record allows; of what cannot be had the error says why."""
    settings = settings or PartsSettings()
    result, compared = comparison.result, comparison.measures
    measures = Measures.of(traces).by(result.metric.name)
    split = EVAL_SPLIT if result.split in (None, FIT_SPLIT) else str(result.split)
    drawn: dict[str, Any] = {"resamples": result.resamples, "seed": result.seed}
    # what a search and a sweep take over from the comparison
    tuned: dict[str, Any] = {
        "eval_split": split,
        "metric": result.metric.name,
        "answer": result.answer,
        "f1_kind": result.f1_kind,
        **drawn,
    }

    def promises() -> tuple[dict[str, Any], ...]:
        if not (found := guarantees(result)):
            raise UsageError("no policy replayed here carries a guarantee (suffice fit certified)")
        return found

    def swept() -> SweepResult:
        costs: dict[str, Any] = {"cost": result.cost.name, "cost_model": result.cost_model}
        return sweep(measures, SweepSettings(rule=TEMPLATE, **costs, **tuned))

    def searched() -> SearchResult:
        if settings.search is None:
            raise UsageError("no signals to search were named (--search A,B,...)")
        more = {**tuned, "resamples": max(2, result.resamples)}
        return search(measures, replace(settings.search, **more))

    def types() -> tuple[dict[str, Any], ...]:
        if not comparison.traces.has("question_type"):
            raise UsageError("no question has a type")
        return breakdown(compared, result)

    def selective() -> tuple[dict[str, Any], ...]:
        if not result.labelled:
            raise UsageError("no question has gold answers")
        asked = SelectiveSettings(confidence=settings.confidence, **drawn)
        if not (found := selective_prediction(compared, result, asked)):
            raise UsageError(
                "no policy replayed here has a confidence of its own (--confidence SIGNAL names one)"
            )
        return found

    def costs() -> tuple[CostAxis, ...]:
        """All there are, known or not."""
        return tuple(
            CostAxis(name=cost.name, label=cost.label, unit=cost.unit) for cost in COSTS.values()
        )

    computed: dict[str, Callable[[], Any]] = {
        "guarantees": promises,
        "calibrators": lambda: calibrator_study(measures, eval_split=split),
        "sweep": swept,
        "search": searched,
        "diagnostics": lambda: diagnose(measures, DiagnosticsSettings(eval_split=split, **drawn)),
        "types": types,
        "selective": selective,
        "costs": costs,
    }
    parts, left_out = {}, {}
    for name, compute in computed.items():
        if ("diagnostics" if name == "types" else name) not in settings.parts:
            continue
        found: Any = None
        why: str | None = f"it needs gold answers, and {measures.metric.stands_for_gold}"
        if name not in _OF_GOLD or measures.metric.gold:
            found, why = attempt(compute)
        if why is None:
            parts[name] = found
        else:
            left_out["question types" if name == "types" else name] = why
    return ReportParts(contents=parts, left_out=left_out, naive=settings.naive)
