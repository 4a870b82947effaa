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
from suffice.measures.costs import CostAxis, CostBook, cost_reads
from suffice.measures.retrieval import RetrievalQuality, retrieval_quality
from suffice.measures.scores import Outcomes, outcomes
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.policies.file import policy_hash
from suffice.protocols import CoveragePolicy, Signal, StopPolicy
from suffice.replay.diagnose.selective import confidence_auroc, stop_confidence
from suffice.replay.run.answer_sets import Draws, answer_sets
from suffice.replay.run.candidates import Candidate
from suffice.replay.run.frontier import Frontier, interpolate
from suffice.replay.run.references import (
    CLOSED_BOOK,
    ORACLES,
    closed_book_costs,
    closed_book_rounds,
)
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.scoring import F1Kind
from suffice.signals.registry import is_usual
from suffice.signals.table import SignalTable, signal_table
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

    candidate: Candidate
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    paid: NDArray[np.float64]
    costs: Mapping[str, float | None]
    scored: Outcomes
    at: NDArray[np.int16]

    def scores(self, name: Literal["em", "f1", "acc"]) -> NDArray[np.float64]:
        """A score of each question's answer, (n_questions,)."""
        return at_stop(getattr(self.scored, name), self.at)


def stop_rounds(policy: StopPolicy, traces: TraceSet) -> NDArray[np.int16]:
    """The round each question stops at, clamped to its last recorded one, (n_questions,)."""
    table = signal_table(traces, policy.specs)
    return np.minimum(policy.stop_rounds(table), traces.last_rounds)


def at_stop(values: NDArray[np.float64], stops: NDArray[np.int16]) -> NDArray[np.float64]:
    """``values`` (n_questions, n_rounds) at each question's stop round, (n_questions,)."""
    return values[np.arange(len(stops)), stops - 1]


def replay(
    traces: TraceSet, candidates: Sequence[Candidate], settings: ReplaySettings
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
    names = [each.name for each in candidates]
    if settings.baseline not in names:
        raise UsageError(f"baseline {settings.baseline!r} is not among {', '.join(names)}")
    scored = outcomes(traces, settings.f1_kind)
    tables = _Tables(traces, candidates)
    book = CostBook(traces, settings.cost_model)
    axis = book.axis(settings.cost, {each.name: _reads(each) for each in candidates})
    runs = [
        _closed_book_run(traces, each, settings, axis)
        if each.kind == CLOSED_BOOK
        else _run(
            each,
            _wanted(traces, each, scored, tables),
            scored,
            traces.last_rounds,
            book.sums(_reads(each)),
            axis,
        )
        for each in candidates
    ]
    intervals = _Intervals(scored, runs, _fixed(traces, book, axis), settings)
    found = [
        _with_confidence(_result(run, scored, intervals, traces), tables, scored) for run in runs
    ]
    quality = retrieval_quality(traces)
    draws = Draws(settings.resamples, settings.seed)
    policies = tuple(
        _with_retrieval(_with_sets(each, traces, tables, draws), quality) for each in found
    )
    return ReplayResult(
        questions=traces.n_questions,
        labelled=int(scored.labelled.sum()),
        max_rounds=traces.n_rounds,
        baseline=settings.baseline,
        split=settings.split,
        f1_kind=settings.f1_kind,
        seed=settings.seed,
        resamples=settings.resamples,
        source=traces.origin.source,
        policies=policies,
        frontier=intervals.frontier,
        question_ids=traces.question_ids,
        notes=(*settings.notes, *_notes(policies), *book.notes(axis)),
        cost=axis,
        cost_model=settings.cost_model,
    )


def _notes(policies: Sequence[PolicyResult]) -> list[str]:
    about_sets = [
        f"{each.name}: {note}" for each in policies if each.sets for note in each.sets.notes
    ]
    return [*_beyond_notes(policies), *_undefined_notes(policies), *about_sets]


def _undefined_notes(policies: Sequence[PolicyResult]) -> list[str]:
    found = [
        (each.name, int(np.isnan(each.confidence).sum()), len(each.confidence))
        for each in policies
        if each.confidence is not None
    ]
    return [
        f"{name}: its confidence is undefined at the stop of {count} of {questions} questions"
        for name, count, questions in found
        if count
    ]


def _beyond_notes(policies: Sequence[PolicyResult]) -> list[str]:
    return [
        f"{each.name}: {each.beyond_record} questions end before the round it wanted; "
        "their last recorded round was taken"
        for each in policies
        if each.beyond_record
    ]


class _Tables:
    """Signal tables, shared by policies that mean the same by a name."""

    def __init__(self, traces: TraceSet, candidates: Sequence[Candidate]) -> None:
        self._traces = traces
        usual: dict[str, Signal] = {}
        for each in candidates:
            for spec in () if each.policy is None else each.policy.specs:
                if is_usual(spec):
                    usual[spec.name] = spec
        self._usual = signal_table(traces, usual.values())
        self._own: dict[int, SignalTable] = {}

    def of(self, policy: StopPolicy) -> SignalTable:
        if all(is_usual(spec) for spec in policy.specs):
            return self._usual
        if id(policy) not in self._own:  # a network reads every text for it
            self._own[id(policy)] = signal_table(self._traces, policy.specs)
        return self._own[id(policy)]


def _reads(candidate: Candidate) -> CostReads:
    return CostReads() if candidate.policy is None else cost_reads(candidate.policy.specs)


def _wanted(
    traces: TraceSet, candidate: Candidate, scored: Outcomes, tables: _Tables
) -> NDArray[np.int16]:
    if candidate.policy is None:
        wanted = ORACLES[candidate.name.partition("#")[0]](scored, traces.last_rounds)
    else:
        wanted = candidate.policy.stop_rounds(tables.of(candidate.policy))
    if candidate.max_rounds is not None:
        most = min(candidate.max_rounds, np.iinfo(np.int16).max)
        wanted = np.minimum(wanted, most).astype(np.int16)
    return wanted


def _run(
    candidate: Candidate,
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
    traces: TraceSet, candidate: Candidate, settings: ReplaySettings, axis: CostAxis
) -> _Run:
    rounds = closed_book_rounds(traces)
    sums = closed_book_costs(rounds, settings.cost_model, axis)
    at, none = rounds.last_rounds, np.zeros(traces.n_questions, np.int16)
    paid = at_stop(_known(sums[axis.name]), at)
    scored = outcomes(rounds, settings.f1_kind)
    return _Run(candidate, none, none, paid, _means(sums, at), scored, at)


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


def _fixed(traces: TraceSet, book: CostBook, axis: CostAxis) -> _Fixed:
    rounds = np.arange(1, traces.n_rounds + 1)[None, :]
    stops = np.minimum(rounds, traces.last_rounds[:, None]).astype(np.int64)
    summed = _known(book.sums(CostReads())[axis.name])
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


def _with_confidence(result: PolicyResult, tables: _Tables, scored: Outcomes) -> PolicyResult:
    if result.policy is None:
        return result
    confidence = stop_confidence(result.policy, tables.of(result.policy), result.stops)
    if confidence is None:
        return result
    area = confidence_auroc(confidence, at_stop(scored.em, result.stops))
    return replace(result, confidence=confidence, auroc=area)


def _with_retrieval(result: PolicyResult, quality: RetrievalQuality) -> PolicyResult:
    if result.kind == CLOSED_BOOK:
        return result
    precision, recall = quality.at(result.stops)
    return replace(result, precision=precision, recall=recall)


def _with_sets(
    result: PolicyResult, traces: TraceSet, tables: _Tables, draws: Draws
) -> PolicyResult:
    policy = result.policy
    if not isinstance(policy, CoveragePolicy):
        return result
    found = answer_sets(policy, traces, tables.of(policy), result.stops, draws)
    return replace(result, sets=found)


def _mean_score(values: NDArray[np.float64], labelled: NDArray[np.bool_]) -> float | None:
    return float(values[labelled].mean()) if labelled.any() else None


def _hash(candidate: Candidate) -> str:
    if candidate.policy is not None:
        return policy_hash(candidate.policy)
    return hashlib.sha256(f"{candidate.kind}:{candidate.name}:{VERSION}".encode()).hexdigest()[:12]
