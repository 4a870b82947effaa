"""Replay policies on recorded rounds: stop rounds, outcomes and costs there, paired intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.costs.usage import COSTS, round_costs
from suffice.errors import UsageError
from suffice.policies.file import policy_hash
from suffice.policies.outcomes import Outcomes, outcomes
from suffice.protocols import Signal, StopPolicy
from suffice.replay.bootstrap import Interval, percentile_interval, resampled_means
from suffice.replay.candidates import Candidate
from suffice.replay.frontier import Frontier, interpolate
from suffice.replay.oracle import ORACLES
from suffice.replay.results import PolicyResult, ReplayResult
from suffice.scoring import F1Kind
from suffice.signals.recorded import JUDGE_SUPPORT, LLM_STOP
from suffice.signals.registry import is_usual
from suffice.signals.table import SignalTable, signal_table
from suffice.trace.table import TraceSet

__all__ = ["ReplaySettings", "at_stop", "replay", "stop_rounds"]


_VERDICTS = frozenset({JUDGE_SUPPORT.name, LLM_STOP.name})  # each costs a further call a round


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a replay is scored.

    ``baseline`` names the candidate that differences are taken against; ``split`` is stated in the
    results and ``notes`` are carried there.
    """

    baseline: str
    split: str | None = None
    f1_kind: F1Kind = "hotpotqa"
    resamples: int = 1000
    seed: int = 42
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.resamples < 1 or self.seed < 0:
            raise UsageError(
                f"resamples must be at least 1 and the seed at least 0, found {self.resamples} and "
                f"{self.seed}"
            )


@dataclass(frozen=True, slots=True)
class _Run:
    """One candidate replayed: rounds wanted and taken and the cost up to there, each (n_questions,)."""

    candidate: Candidate
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    costs: Mapping[str, NDArray[np.float64] | None]


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
        When the baseline is not among the candidates, or a policy needs what the trace lacks.
    """
    names = [each.name for each in candidates]
    if settings.baseline not in names:
        raise UsageError(f"baseline {settings.baseline!r} is not among {', '.join(names)}")
    scored = outcomes(traces, settings.f1_kind)
    tables = _Tables(traces, candidates)
    runs = [_run(traces, each, scored, tables) for each in candidates]
    intervals = _Intervals(traces, scored, runs, settings)
    policies = tuple(_result(run, scored, intervals, traces) for run in runs)
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
        notes=(*settings.notes, *_beyond_notes(policies)),
    )


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

    def of(self, policy: StopPolicy) -> SignalTable:
        if all(is_usual(spec) for spec in policy.specs):
            return self._usual
        return signal_table(self._traces, policy.specs)


def _reads_samples(candidate: Candidate) -> bool:
    return candidate.policy is not None and any(
        "samples" in spec.needs for spec in candidate.policy.specs
    )


def _reads_verdicts(candidate: Candidate) -> bool:
    return candidate.policy is not None and not _VERDICTS.isdisjoint(candidate.policy.signals)


def _run(traces: TraceSet, candidate: Candidate, scored: Outcomes, tables: _Tables) -> _Run:
    if candidate.policy is None:
        wanted = ORACLES[candidate.name.partition("#")[0]](scored, traces.last_rounds)
    else:
        wanted = candidate.policy.stop_rounds(tables.of(candidate.policy))
    if candidate.max_rounds is not None:
        wanted = np.minimum(wanted, candidate.max_rounds).astype(np.int16)
    stops = np.minimum(wanted, traces.last_rounds)
    per_round = round_costs(
        traces,
        reads_samples=_reads_samples(candidate),
        reads_verdicts=_reads_verdicts(candidate),
    )
    costs = {
        name: None if values is None else at_stop(np.cumsum(values, axis=1), stops)
        for name, values in per_round.items()
    }
    return _Run(candidate, wanted, stops, costs)


class _Intervals:
    """Paired intervals of all runs from one set of draws over the labelled questions."""

    def __init__(
        self, traces: TraceSet, scored: Outcomes, runs: Sequence[_Run], settings: ReplaySettings
    ) -> None:
        self._index = {run.candidate.name: number for number, run in enumerate(runs)}
        self._baseline = self._index[settings.baseline]
        self._n_runs = len(runs)
        self.frontier: Frontier | None = None
        if not scored.labelled.any():
            return
        fixed_stops = np.minimum(
            np.arange(1, traces.n_rounds + 1)[None, :], traces.last_rounds[:, None]
        ).astype(np.int16)  # (n_questions, n_rounds)
        cost_name, run_costs, fixed_costs = _cost_axis(traces, runs, fixed_stops)
        run_f1 = np.stack([at_stop(scored.f1, run.stops) for run in runs], axis=1)
        fixed_f1 = np.take_along_axis(scored.f1, fixed_stops.astype(np.int64) - 1, axis=1)
        columns = np.hstack([run_f1, run_costs, fixed_f1, fixed_costs])[scored.labelled]
        self._means = columns.mean(axis=0)[None, :]
        self._draws = resampled_means(columns, resamples=settings.resamples, seed=settings.seed)
        _, _, f1, costs = self._parts(self._means)
        self.frontier = Frontier(
            cost_name=cost_name, costs=tuple(costs[0].tolist()), f1=tuple(f1[0].tolist())
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


def _cost_axis(
    traces: TraceSet, runs: Sequence[_Run], fixed_stops: NDArray[np.int16]
) -> tuple[str, NDArray[np.float64], NDArray[np.float64]]:
    """The cost that policies are compared at: calls where known for all, else rounds."""
    calls = round_costs(traces, reads_samples=False)["llm_calls"]
    run_calls = [run.costs["llm_calls"] for run in runs]
    known = [each for each in run_calls if each is not None]
    if calls is not None and len(known) == len(runs):
        spent = np.cumsum(calls, axis=1)
        fixed = np.take_along_axis(spent, fixed_stops.astype(np.int64) - 1, axis=1)
        return "llm_calls", np.stack(known, axis=1), fixed
    return (
        "rounds",
        np.stack([run.stops for run in runs], axis=1).astype(float),
        fixed_stops.astype(float),
    )


def _result(run: _Run, scored: Outcomes, intervals: _Intervals, traces: TraceSet) -> PolicyResult:
    candidate, name = run.candidate, run.candidate.name
    f1 = _mean_score(scored.f1, run.stops, scored.labelled)
    full = intervals.full_budget_f1()
    return PolicyResult(
        name=name,
        kind=candidate.kind,
        preset=candidate.preset,
        hash=_hash(candidate),
        em=_mean_score(scored.em, run.stops, scored.labelled),
        f1=f1,
        acc=_mean_score(scored.acc, run.stops, scored.labelled),
        mean_rounds=float(run.stops.mean()),
        costs={
            cost: None if (paid := run.costs[cost]) is None else float(paid.mean())
            for cost in COSTS
        },
        stops=run.stops,
        beyond_record=int((run.wanted > traces.last_rounds).sum()),
        f1_interval=intervals.f1(name),
        delta_f1=intervals.delta(name),
        retained_f1=f1 / full if f1 is not None and full else None,
        frontier_gain=intervals.gain(name),
        p95_rounds=float(np.percentile(run.stops, 95)),
        policy=candidate.policy,
    )


def _mean_score(
    values: NDArray[np.float64], stops: NDArray[np.int16], labelled: NDArray[np.bool_]
) -> float | None:
    return float(at_stop(values, stops)[labelled].mean()) if labelled.any() else None


def _hash(candidate: Candidate) -> str:
    if candidate.policy is not None:
        return policy_hash(candidate.policy)
    return hashlib.sha256(f"{candidate.kind}:{candidate.name}:{VERSION}".encode()).hexdigest()[:12]
