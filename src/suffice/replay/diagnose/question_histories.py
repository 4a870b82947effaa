"""What happened to single questions: every round, and where each policy stops and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import AnswerSet, CalibratedPolicy, StopPolicy
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import record_banners
from suffice.replay.diagnose.reliability import Reliability, reliability
from suffice.replay.diagnose.report_parts import ReportParts
from suffice.replay.run.named_policies import CLOSED_BOOK
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.signals.columns.arrays import Texts
from suffice.signals.table import SignalTable, decide, given_signals
from suffice.trace.rounds.records import LoopView, QuestionRecord
from suffice.trace.rounds.table import TraceSet

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStop:
    """Where a policy stops on a question, and why, in words; ``answers`` if it gives a set of them."""

    policy: str
    round: int
    reason: str
    answers: AnswerSet | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionStory:
    """A recorded question with every policy's stop; what it scores and its signals, by round, NaN: undefined.

    Without gold answers there are no ``scores``. Where not all can be shown, those of the first ``turn`` are:
    one of each kind, then another of each.
    """

    record: QuestionRecord
    scores: Mapping[str, Array]
    signals: Mapping[str, Array]
    stops: tuple[PolicyStop, ...]
    turn: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything a report shows; it computes no number itself.

    ``left_out`` questions are not among the stories; ``run`` is what produced the traces; ``parts`` is
    what goes beyond the comparison. ``warnings`` stand above everything.
    """

    result: ReplayResult
    stories: tuple[QuestionStory, ...]
    left_out: int
    reliability: Mapping[str, tuple[Reliability, ...]]
    run: Mapping[str, object]
    parts: ReportParts = field(default_factory=ReportParts)
    warnings: tuple[str, ...] = ()


def report_data(
    traces: TraceSet | Measures,
    result: ReplayResult,
    parts: ReportParts | None = None,
    *,
    most_stories: int = 500,
) -> ReportData:
    """Gather what the report shows of a replay of ``traces``; ``parts`` go with it.

    Of more than ``most_stories`` questions as many of each kind are told as there are room for, drawn by the
    replay's seed. A kind is a question type and an outcome: right or wrong at the full budget and where the
    first policy that decides by what it reads stops.
    """
    measures = Measures.of(traces).by(result.metric.name)
    record, scored = measures.traces, measures.scores(result.f1_kind)
    names = given_signals(record)
    table = measures.signals(names)
    shown = {name: of for name in names if np.isfinite(of := table.signal(name)).any()}
    read = {
        policy.name: measures.signals(policy.policy.specs)
        for policy in result.policies
        if policy.policy is not None
    }
    drawn = _in_turn(_kinds(record, result, scored), result.seed)[:most_stories]
    turns = np.argsort(drawn).tolist()
    told = record.take(np.isin(np.arange(record.n_questions), drawn)).records()
    scores = {"em": scored.em, "f1": scored.f1} if scored.metric.gold else {}
    stories = tuple(
        QuestionStory(
            record=one,
            scores={name: of[index] for name, of in scores.items()},
            signals={name: of[index] for name, of in shown.items()},
            stops=tuple(
                _stop(index, one, policy, read.get(policy.name)) for policy in result.policies
            ),
            turn=turn,
        )
        for index, turn, one in zip(np.sort(drawn).tolist(), turns, told, strict=True)
    )
    return ReportData(
        result=result,
        stories=stories,
        left_out=record.n_questions - len(stories),
        reliability={
            policy.name: tuple(reliability(policy.policy, read[policy.name], scored))
            for policy in result.policies
            if isinstance(policy.policy, CalibratedPolicy)
            and policy.policy.calibrators
            and scored.metric.gold
        },
        run=record.origin.run,
        parts=ReportParts() if parts is None else parts,
        warnings=record_banners(record),
    )


_UNKNOWN = -1.0


def _kinds(record: TraceSet, result: ReplayResult, scored: Outcomes) -> NDArray[np.int64]:
    """Equal where questions are of one type and went alike, by these in words, (n_questions,)."""
    adaptive = (policy for policy in result.policies if policy.adaptive)
    deciding = next(adaptive, None)
    rows = np.arange(record.n_questions)
    ends = [record.last_rounds, *([] if deciding is None else [np.maximum(deciding.answers, 1)])]
    types = Texts.of(record.first_rounds("question_type"))
    went = np.column_stack([types.codes, *(scored.em[rows, at - 1] for at in ends)])
    went[np.isnan(went)] = _UNKNOWN
    kinds, of_question = np.unique(went, axis=0, return_inverse=True)
    names = [*types.distinct.to_pylist(), None]
    told = [
        str((names[int(code)], *("" if one == _UNKNOWN else str(one) for one in outcome)))
        for code, *outcome in kinds.tolist()
    ]
    return np.argsort(np.argsort(told))[of_question.reshape(-1)]


def _in_turn(kinds: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """All questions by index: one of each kind, then another of each, within a kind in drawn order."""
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
    return PolicyStop(policy=policy.name, round=stop, reason=reason, answers=answers)


def stop_reason(
    policy: StopPolicy, stop: int, signals: Mapping[str, list[float]], record: QuestionRecord
) -> str:
    """Why a policy stops a question at a round, in words; ``signals`` are those it read up to there."""
    loop = LoopView(record.question.text, record.rounds[:stop])
    decision = decide(policy, SignalTable.of_loop(loop, signals, record.question.id))
    if decision.stop:
        return decision.reason
    return f"the record or the budget ends here; {decision.reason}"
