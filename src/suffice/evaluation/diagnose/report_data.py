"""Contents of a report: its parts beside the comparison, promises, and histories of questions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import AnswerSet, CalibratedPolicy, Facts, StopPolicy
from suffice.costs.usage import COSTS
from suffice.errors import UsageError, attempt, unknown_name
from suffice.evaluation.choose.bounds import allowed_in_words
from suffice.evaluation.choose.search import SearchResult, search
from suffice.evaluation.diagnose.diagnosis import breakdown, selective_prediction
from suffice.evaluation.diagnose.reliability import Reliability, calibrator_study, reliability
from suffice.evaluation.diagnose.signal_diagnostics import diagnose
from suffice.evaluation.replay.compare import Comparison
from suffice.evaluation.replay.named_policies import CLOSED_BOOK
from suffice.evaluation.replay.results import PolicyResult, ReplayResult
from suffice.evaluation.settings import DiagnosisSettings, SearchSettings
from suffice.measures.costs import CostAxis
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import record_banners
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.results.as_json import as_json
from suffice.scoring import ScoreName
from suffice.signals.columns.arrays import Texts
from suffice.signals.signal_table import SignalTable, decide, given_signals
from suffice.stats.units import Array
from suffice.trace.rounds.records import LoopView, QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet

_TEXTS = ("path", "loss", "metric", "correction", "cost")
_NUMBERS = (
    *("max_loss", "confidence", "tested", "certified", "p_value", "measured_loss", "units"),
    *(
        "questions_needed",
        "questions_needed_most",
        "questions_at_least",
        "mean_cost",
        "full_budget_cost",
        "min_rounds",
    ),
)
LOSSES_TESTED = ("together_with", "not_proven")
_KNOWN = frozenset(
    {*_TEXTS, *_NUMBERS, *LOSSES_TESTED, "bounds", "fell_back", "seed", "bounded", "saved"}
)


def guarantees(result: ReplayResult) -> tuple[dict[str, Any], ...]:
    return tuple(
        guarantee_of(one.name, one.policy.facts, result.source)
        for one in result.policies
        if one.policy is not None and one.policy.facts.guarantee
    )


def guarantee_of(name: str, facts: Facts, replayed: str) -> dict[str, Any]:
    """Return a policy's promise with every term that is known, ``None`` for one that is not stated."""
    terms = facts.guarantee
    fell_back = terms.get("fell_back")
    source = _text(facts.fitted_on.get("source"))
    listed = terms.get("bounds")
    bounds = [
        {
            "of": str(bound.get("of")),
            "at_most": _number(bound.get("at_most")),
            "measured": _number(bound.get("measured")),
        }
        for bound in (listed if isinstance(listed, list) else [])
        if isinstance(bound, Mapping)
    ]
    cost = _text(terms.get("cost"))
    label = cost if (known := COSTS.get(cost or "")) is None else known.label
    stated: dict[str, Any] = {
        **{key: _text(terms.get(key)) for key in _TEXTS},
        **{key: _number(terms.get(key)) for key in _NUMBERS},
        **{key: _numbers(terms.get(key)) for key in LOSSES_TESTED},
        "bounds": bounds,
    }
    return {
        **stated,
        "policy": name,
        "rule": facts.summary,
        "fell_back": fell_back if isinstance(fell_back, bool) else None,
        "source": source,
        "split": _text(facts.fitted_on.get("split")),
        "cost_label": label,
        "allowed": allowed_in_words(stated),
        "elsewhere": source is not None and source != replayed,
        "more": {str(key): str(value) for key, value in terms.items() if key not in _KNOWN},
    }


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return value if math.isfinite(value) else None


def _numbers(value: object) -> list[float] | None:
    return [*filter(None, map(_number, value))] if isinstance(value, list) else None


_PARTS: Mapping[str, tuple[()] | None] = {
    "guarantees": (),
    "calibrators": None,
    "search": None,
    "diagnostics": None,
    "types": (),
    "selective": (),
    "costs": (),
}
"""Values of missing parts."""
_OF_GOLD = frozenset({"calibrators", "diagnostics", "types", "selective"})
"""Parts that need gold answers."""
PARTS: tuple[str, ...] = tuple(name for name in _PARTS if name != "types")
"""Names of parts; types belong to diagnostics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartsSettings:
    parts: tuple[str, ...] = field(default_factory=lambda: PARTS)
    search: SearchSettings | None = None
    confidence: str | None = None

    def __post_init__(self) -> None:
        unknown = [part for part in self.parts if part not in PARTS]
        if unknown:
            raise UsageError(unknown_name("part", unknown[0], PARTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportParts:
    """The parts by name, and the reasons why others are ``left_out``."""

    contents: Mapping[str, Any] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.contents.get(name, _PARTS.get(name))

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON, null for missing parts; the replay's own document has the costs."""
        documents = {name: as_json(self[name]) for name in _PARTS if name != "costs"}
        if isinstance(searched := self["search"], SearchResult):
            documents["search"] = searched.to_json()
        return {**documents, "left_out": dict(self.left_out)}


def report_parts(
    traces: TraceSet | Measures, comparison: Comparison, settings: PartsSettings | None = None
) -> ReportParts:
    settings = settings or PartsSettings()
    result, compared = comparison.result, comparison.measures
    measures = Measures.of(traces).by(result.metric.name)
    split = EVAL_SPLIT if result.split in (None, FIT_SPLIT) else str(result.split)
    drawn: dict[str, Any] = {"resamples": result.resamples, "seed": result.seed}
    asked_of = np.random.default_rng(result.seed).permutation(measures.traces.n_questions)
    some = measures.take(asked_of < _MOST_MEASURED)
    # what a search takes over from the comparison
    tuned: dict[str, Any] = {
        "eval_split": split,
        "metric": result.metric.name,
        "answer": result.answer,
        "f1_kind": result.f1_kind,
        **drawn,
    }

    def promises() -> tuple[dict[str, Any], ...]:
        if not (found := guarantees(result)):
            raise UsageError("no policy replayed here carries a promise (suffice choose makes one)")
        return found

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
        asked = DiagnosisSettings(confidence=settings.confidence, **drawn)
        if not (found := selective_prediction(compared, result, asked)):
            raise UsageError(
                "no policy replayed here has its own confidence (--confidence SIGNAL names one)"
            )
        return found

    computed: dict[str, Callable[[], Any]] = {
        "guarantees": promises,
        "calibrators": lambda: calibrator_study(some, eval_split=split),
        "search": searched,
        "diagnostics": lambda: diagnose(some, DiagnosisSettings(eval_split=split, **drawn)),
        "types": types,
        "selective": selective,
        "costs": lambda: tuple(
            CostAxis(name=c.name, label=c.label, unit=c.unit) for c in COSTS.values()
        ),
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
    if some is not measures and parts.keys() & {"calibrators", "diagnostics"}:
        left_out["questions"] = (
            f"signals and calibrators are measured on {_MOST_MEASURED:,} of "
            f"{measures.traces.n_questions:,}, drawn by the seed"
        )
    return ReportParts(contents=parts, left_out=left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStop:
    """A policy's stop on a question, the round of its answer, the reason in words, and its answer set."""

    policy: str
    round: int
    answer_round: int
    reason: str
    answers: AnswerSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionStory:
    """A question with its rounds; ``scores`` by name, the one that judges a round first."""

    record: QuestionRecord
    scores: Mapping[ScoreName, Array]
    signals: Mapping[str, Array]
    stops: tuple[PolicyStop, ...]
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    result: ReplayResult
    stories: tuple[QuestionStory, ...]
    main: str  # the policy by whose stops questions are told
    scale: str
    left_out: int
    reliability: Mapping[str, tuple[Reliability, ...]]
    run: Mapping[str, object]
    parts: ReportParts = field(default_factory=ReportParts)
    warnings: tuple[str, ...] = ()


def report_data(
    traces: TraceSet | Measures, result: ReplayResult, parts: ReportParts | None = None
) -> ReportData:
    measures = Measures.of(traces).by(result.metric.name)
    record, scored = measures.traces, measures.scores(result.f1_kind)
    read = {
        policy.name: measures.signals(policy.policy.specs)
        for policy in result.policies
        if policy.policy is not None
    }
    parts = ReportParts() if parts is None else parts
    adaptive = (policy.name for policy in result.policies if policy.adaptive)
    choice = parts["choice"]
    main = next(adaptive, result.baseline) if choice is None else choice.chosen.policy.name
    kinds = _kinds(record, [result.policy(name) for name in (main, result.baseline)], scored)
    drawn = _in_turn(kinds, result.seed)[:_MOST_STORIES]
    turns = np.argsort(drawn).tolist()
    told = measures.take(np.isin(np.arange(record.n_questions), drawn))
    names = given_signals(record)
    table = told.signals(names)
    shown = {name: of for name in names if np.isfinite(of := table.signal(name)).any()}
    metric = scored.metric
    judging: Sequence[ScoreName] = ("f1",) if metric.against == "scores" else ("em", "f1")
    scores = {name: getattr(scored, name) for name in (*judging, metric.score)}
    stories = tuple(
        QuestionStory(
            record=one,
            scores={name: of[index] for name, of in scores.items()},
            signals={name: of[place] for name, of in shown.items()},
            stops=tuple(
                _stop(index, one, policy, read.get(policy.name)) for policy in result.policies
            ),
            turn=turn,
        )
        for place, (index, turn, one) in enumerate(
            zip(np.sort(drawn).tolist(), turns, told.traces.records(), strict=True)
        )
    )
    return ReportData(
        result=result,
        stories=stories,
        main=main,
        scale=scored.scale,
        left_out=record.n_questions - len(stories),
        reliability={
            policy.name: tuple(reliability(policy.policy, read[policy.name], scored))
            for policy in result.policies
            if isinstance(policy.policy, CalibratedPolicy)
            and policy.policy.calibrators
            and scored.metric.gold
        },
        run=record.origin.run,
        parts=parts,
        warnings=record_banners(record, measures.metric),
    )


_UNKNOWN, _MOST_STORIES, _MOST_MEASURED = -1.0, 500, 20_000


def _kinds(record: TraceSet, both: Sequence[PolicyResult], scored: Outcomes) -> NDArray[np.int64]:
    """Tell questions apart by type and by how the two policies' answers score, (n_questions,)."""
    rows = np.arange(record.n_questions)
    types = Texts.of(record.first_rounds("question_type"))
    own, other = (scored.compared[rows, np.maximum(one.answers, 1) - 1] for one in both)
    went = np.column_stack([types.codes, other == 1.0, np.sign(own - other)])
    went[np.isnan(went)] = _UNKNOWN
    return np.unique(went, axis=0, return_inverse=True)[1].reshape(-1)


def _in_turn(kinds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return all questions by index: one of each kind, then another, in random order within a kind."""
    drawn = np.random.default_rng(seed).permutation(len(kinds))
    drawn = drawn[np.argsort(kinds[drawn], kind="stable")]
    kinds = kinds[drawn]
    turn = np.arange(len(kinds)) - np.searchsorted(kinds, kinds)
    return drawn[np.lexsort((kinds, turn))]


def _stop(
    index: int, record: QuestionRecord, policy: PolicyResult, table: SignalTable | None
) -> PolicyStop:
    stop = int(policy.stops[index])
    if policy.kind == CLOSED_BOOK:
        reason = "the answer without passages, round 0"
    elif policy.policy is None or table is None:
        reason = "the oracle knows the gold answers"
    else:
        read = {name: table.signal(name)[index, :stop].tolist() for name in policy.policy.signals}
        reason = stop_reason(policy.policy, stop, read, record)
    if (returned := int(policy.answers[index])) != stop:
        reason = f"{reason}; the answer of round {returned} is returned"
    answers = None if policy.sets is None else policy.sets.sets[index]
    return PolicyStop(
        policy=policy.name, round=stop, answer_round=returned, reason=reason, answers=answers
    )


def stop_reason(
    policy: StopPolicy, stop: int, signals: Mapping[str, list[float]], record: QuestionRecord
) -> str:
    loop = LoopView(record.question.text, record.rounds[:stop])
    decision = decide(policy, SignalTable.of_loop(loop, signals, record.question.id))
    if decision.stop:
        return decision.reason
    return f"the record or the budget ends here; {decision.reason}"
