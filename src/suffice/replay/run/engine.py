"""Replay policies on recorded rounds: stop rounds, outcomes and costs there, paired intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.costs.usage import CostModel, CostReads
from suffice.errors import InternalError, UsageError
from suffice.measures.costs import CostAxis, cost_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.policies.file import policy_hash
from suffice.protocols import CoveragePolicy, StopPolicy
from suffice.replay.diagnose.selective import confidence_auroc, stop_confidence
from suffice.replay.run.answer_sets import Resampling, answer_sets
from suffice.replay.run.frontier import Frontier, interpolate
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.run.references import (
    CLOSED_BOOK,
    ORACLES,
    closed_book_costs,
    closed_book_rounds,
)
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.scoring import F1Kind
from suffice.signals.registry import is_usual
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a replay is scored.

    ``baseline`` names the candidate that differences are taken against; ``split`` is stated in the
    results and ``notes`` are carried there. ``cost`` is what policies are compared at, a name of
    :data:`suffice.costs.usage.COSTS` (``None``: model calls where known, else rounds); ``cost_model``
    prices usage.
    """

    baseline: str
    split: str | None = None
    f1_kind: F1Kind = "hotpotqa"
    resamples: int = 1000
    seed: int = 42
    notes: tuple[str, ...] = ()
    cost: str | None = None
    cost_model: CostModel = field(default_factory=CostModel)

    def __post_init__(self) -> None:
        if self.resamples < 1 or self.seed < 0:
            raise UsageError(
                f"resamples must be at least 1 and the seed at least 0, found {self.resamples} and "
                f"{self.seed}"
            )


@dataclass(frozen=True, slots=True)
class _Run:
    """One candidate replayed: rounds wanted and taken, and the cost that candidates are compared at.

    Those have shape (n_questions,); ``costs`` are means of every cost. The answers are those of round
    ``at`` in ``scored``: of the stop round, except for the closed book.
    """

    candidate: NamedPolicy
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    paid: NDArray[np.float64]
    costs: Mapping[str, float | None]
    scored: Outcomes
    at: NDArray[np.int16]

    def scores(self, name: Literal["em", "f1", "acc"]) -> NDArray[np.float64]:
        """A score of each question's answer, (n_questions,)."""
        return at_stop(getattr(self.scored, name), self.at)


def stop_rounds(policy: StopPolicy, traces: TraceSet | Measures) -> NDArray[np.int16]:
    """The round each question stops at, clamped to its last recorded one, (n_questions,)."""
    return Measures.of(traces).stop_rounds(policy)


def at_stop(values: NDArray[np.float64], stops: NDArray[np.int16]) -> NDArray[np.float64]:
    """``values`` (n_questions, n_rounds) at each question's stop round, (n_questions,)."""
    return values[np.arange(len(stops)), stops - 1]


def replay(
    traces: TraceSet | Measures, candidates: Sequence[NamedPolicy], settings: ReplaySettings
) -> ReplayResult:
    """Score the candidates on every question of ``traces``.

    A candidate that wants a round past a question's last recorded one takes that last one; how often
    is counted in ``beyond_record``.

    Raises
    ------
    UsageError
        When the baseline is not among the candidates, or a policy or the cost asked for needs what the
        trace lacks.
    """
    names = [candidate.name for candidate in candidates]
    if settings.baseline not in names:
        raise UsageError(f"baseline {settings.baseline!r} is not among {', '.join(names)}")
    measures = Measures.of(traces)
    _measure_usual_signals(measures, candidates)
    scored = measures.scores(settings.f1_kind)
    book = measures.costs(settings.cost_model)
    axis = book.axis(settings.cost, {candidate.name: _reads(candidate) for candidate in candidates})
    runs = [
        _closed_book_run(measures, candidate, settings, axis)
        if candidate.kind == CLOSED_BOOK
        else _run(
            candidate,
            _wanted(measures, candidate, scored),
            scored,
            measures.traces.last_rounds,
            book.sums(_reads(candidate)),
            axis,
        )
        for candidate in candidates
    ]
    intervals = _Intervals(scored, runs, _fixed(measures, axis, settings.cost_model), settings)
    draws = Resampling(settings.resamples, settings.seed)
    policies = tuple(
        _with_sets(
            _with_retrieval(_with_confidence(result, measures, scored), measures), measures, draws
        )
        for result in (_result(run, scored, intervals, measures.traces) for run in runs)
    )
    return ReplayResult(
        questions=measures.traces.n_questions,
        labelled=int(scored.labelled.sum()),
        max_rounds=measures.traces.n_rounds,
        baseline=settings.baseline,
        split=settings.split,
        f1_kind=settings.f1_kind,
        seed=settings.seed,
        resamples=settings.resamples,
        source=measures.traces.origin.source,
        policies=policies,
        frontier=intervals.frontier,
        question_ids=measures.traces.question_ids,
        notes=(*settings.notes, *_notes(policies), *book.notes(axis)),
        cost=axis,
        cost_model=settings.cost_model,
    )


def _notes(policies: Sequence[PolicyResult]) -> list[str]:
    about_sets = [
        f"{policy.name}: {note}" for policy in policies if policy.sets for note in policy.sets.notes
    ]
    return [*_beyond_notes(policies), *_undefined_notes(policies), *about_sets]


def _undefined_notes(policies: Sequence[PolicyResult]) -> list[str]:
    undefined = [
        (policy.name, int(np.isnan(policy.confidence).sum()), len(policy.confidence))
        for policy in policies
        if policy.confidence is not None
    ]
    return [
        f"{name}: its confidence is undefined at the stop of {count} of {questions} questions"
        for name, count, questions in undefined
        if count
    ]


def _beyond_notes(policies: Sequence[PolicyResult]) -> list[str]:
    return [
        f"{policy.name}: {policy.beyond_record} questions end before the round it wanted; "
        "their last recorded round was taken"
        for policy in policies
        if policy.beyond_record
    ]


def _measure_usual_signals(measures: Measures, candidates: Sequence[NamedPolicy]) -> None:
    """What candidates read by its usual meaning, in one pass over the record."""
    measures.signals(
        spec
        for candidate in candidates
        if candidate.policy is not None
        for spec in candidate.policy.specs
        if is_usual(spec)
    )


def _reads(candidate: NamedPolicy) -> CostReads:
    return CostReads() if candidate.policy is None else cost_reads(candidate.policy.specs)


def _wanted(measures: Measures, candidate: NamedPolicy, scored: Outcomes) -> NDArray[np.int16]:
    if candidate.policy is None:
        oracle = ORACLES[candidate.name.partition("#")[0]]
        wanted = oracle(scored, measures.traces.last_rounds)
    else:
        wanted = measures.wanted_rounds(candidate.policy)
    if candidate.max_rounds is not None:
        most = min(candidate.max_rounds, np.iinfo(np.int16).max)
        wanted = np.minimum(wanted, most).astype(np.int16)
    return wanted


def _run(
    candidate: NamedPolicy,
    wanted: NDArray[np.int16],
    scored: Outcomes,
    last_rounds: NDArray[np.int16],
    sums: Mapping[str, NDArray[np.float64] | None],
    axis: CostAxis,
) -> _Run:
    stops = np.minimum(wanted, last_rounds)
    paid = at_stop(_known(sums[axis.name]), stops)
    return _Run(candidate, wanted, stops, paid, _means(sums, stops), scored, stops)


def _closed_book_run(
    measures: Measures, candidate: NamedPolicy, settings: ReplaySettings, axis: CostAxis
) -> _Run:
    rounds = closed_book_rounds(measures)
    sums = closed_book_costs(rounds, settings.cost_model, axis)
    at = rounds.traces.last_rounds
    none = np.zeros(measures.traces.n_questions, np.int16)
    paid = at_stop(_known(sums[axis.name]), at)
    return _Run(candidate, none, none, paid, _means(sums, at), rounds.scores(settings.f1_kind), at)


def _means(
    sums: Mapping[str, NDArray[np.float64] | None], at: NDArray[np.int16]
) -> Mapping[str, float | None]:
    return {
        name: None if summed is None else float(at_stop(summed, at).mean())
        for name, summed in sums.items()
    }


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Stop rounds and costs of fixed-1 .. fixed-R, each (n_questions, n_rounds), and the cost meant."""

    axis: CostAxis
    stops: NDArray[np.int64]
    costs: NDArray[np.float64]


def _fixed(measures: Measures, axis: CostAxis, model: CostModel) -> _Fixed:
    rounds = np.arange(1, measures.traces.n_rounds + 1)[None, :]
    stops = np.minimum(rounds, measures.traces.last_rounds[:, None]).astype(np.int64)
    summed = _known(measures.costs(model).sums(CostReads())[axis.name])
    return _Fixed(axis, stops, np.take_along_axis(summed, stops - 1, axis=1))


def _known(values: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """What the choice of the axis made sure of."""
    if values is None:
        raise InternalError("the cost that policies are compared at is unknown")
    return values


class _Intervals:
    """Paired intervals of all runs from one set of draws over the labelled questions."""

    def __init__(
        self, scored: Outcomes, runs: Sequence[_Run], fixed: _Fixed, settings: ReplaySettings
    ) -> None:
        self._index = {run.candidate.name: number for number, run in enumerate(runs)}
        self._baseline = self._index[settings.baseline]
        self._n_runs = len(runs)
        self.frontier: Frontier | None = None
        if not scored.labelled.any():
            return
        run_costs = np.stack([run.paid for run in runs], axis=1)
        run_f1 = np.stack([run.scores("f1") for run in runs], axis=1)
        fixed_f1 = np.take_along_axis(scored.f1, fixed.stops - 1, axis=1)
        columns = np.hstack([run_f1, run_costs, fixed_f1, fixed.costs])[scored.labelled]
        self._means = columns.mean(axis=0)[None, :]
        self._draws = resampled_means(columns, resamples=settings.resamples, seed=settings.seed)
        _, _, f1, costs = self._parts(self._means)
        self.frontier = Frontier(
            cost_name=fixed.axis.name, costs=tuple(costs[0].tolist()), f1=tuple(f1[0].tolist())
        )

    def _parts(self, rows: NDArray[np.float64]) -> tuple[NDArray[np.float64], ...]:
        """(F1 of runs, costs of runs, F1 of fixed-k, costs of fixed-k)."""
        n_rounds = (rows.shape[1] - 2 * self._n_runs) // 2
        ends = np.cumsum([self._n_runs, self._n_runs, n_rounds])
        return tuple(np.split(rows, ends, axis=1))

    def f1(self, name: str) -> Interval | None:
        return self._interval(lambda rows: rows[:, self._index[name]])

    def delta(self, name: str) -> Interval | None:
        return self._interval(lambda rows: rows[:, self._index[name]] - rows[:, self._baseline])

    def gain(self, name: str) -> Interval | None:
        """F1 over the fixed-k frontier at the policy's own cost."""

        def gain(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            run_f1, run_costs, fixed_f1, fixed_costs = self._parts(rows)
            number = self._index[name]
            frontier = interpolate(fixed_costs, fixed_f1, run_costs[:, number])
            return np.asarray(run_f1[:, number] - frontier)

        return self._interval(gain)

    def full_budget_f1(self) -> float | None:
        return None if self.frontier is None else self.frontier.f1[-1]

    def _interval(
        self, of: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    ) -> Interval | None:
        if self.frontier is None:
            return None
        return percentile_interval(float(of(self._means)[0]), of(self._draws))


def _result(run: _Run, scored: Outcomes, intervals: _Intervals, traces: TraceSet) -> PolicyResult:
    candidate, name = run.candidate, run.candidate.name
    f1 = _mean_score(run.scores("f1"), scored.labelled)
    full = intervals.full_budget_f1()
    return PolicyResult(
        name=name,
        kind=candidate.kind,
        preset=candidate.preset,
        hash=_hash(candidate),
        em=_mean_score(run.scores("em"), scored.labelled),
        f1=f1,
        acc=_mean_score(run.scores("acc"), scored.labelled),
        mean_rounds=float(run.stops.mean()),
        costs=run.costs,
        stops=run.stops,
        beyond_record=int((run.wanted > traces.last_rounds).sum()),
        f1_interval=intervals.f1(name),
        delta_f1=intervals.delta(name),
        retained_f1=f1 / full if f1 is not None and full else None,
        frontier_gain=intervals.gain(name),
        p95_rounds=float(np.percentile(run.stops, 95)),
        policy=candidate.policy,
    )


def _with_confidence(result: PolicyResult, measures: Measures, scored: Outcomes) -> PolicyResult:
    if result.policy is None:
        return result
    table = measures.signals(result.policy.specs)
    confidence = stop_confidence(result.policy, table, result.stops)
    if confidence is None:
        return result
    area = confidence_auroc(confidence, at_stop(scored.em, result.stops))
    return replace(result, confidence=confidence, auroc=area)


def _with_retrieval(result: PolicyResult, measures: Measures) -> PolicyResult:
    if result.kind == CLOSED_BOOK:
        return result
    precision, recall = measures.retrieval().at(result.stops)
    return replace(result, precision=precision, recall=recall)


def _with_sets(result: PolicyResult, measures: Measures, draws: Resampling) -> PolicyResult:
    policy = result.policy
    if not isinstance(policy, CoveragePolicy):
        return result
    return replace(result, sets=answer_sets(policy, measures, result.stops, draws))


def _mean_score(values: NDArray[np.float64], labelled: NDArray[np.bool_]) -> float | None:
    return float(values[labelled].mean()) if labelled.any() else None


def _hash(candidate: NamedPolicy) -> str:
    if candidate.policy is not None:
        return policy_hash(candidate.policy)
    return hashlib.sha256(f"{candidate.kind}:{candidate.name}:{VERSION}".encode()).hexdigest()[:12]
