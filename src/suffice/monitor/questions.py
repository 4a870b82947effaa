"""What monitors read of recorded questions: where the policy stops, its signals there, what was returned."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import stop_costs
from suffice.measures.costs import policy_reads
from suffice.numbers.fields import known
from suffice.numbers.series import running_best
from suffice.policies.file import policy_hash
from suffice.protocols import ConfidentPolicy, SetPolicy, StopPolicy
from suffice.scoring import AnswerChoice
from suffice.signals.registry import resolve
from suffice.signals.table import SignalTable, answer_votes, first_stops, signal_columns
from suffice.trace.rounds.records import CUTS, POLICY_STOP
from suffice.trace.rounds.schema import USAGE_COLUMNS
from suffice.trace.rounds.table import TraceSet

SAVED = ("rounds", "llm_calls", "evaluated_tokens", "seconds")
"""Costs of which it is watched what share stopping saves."""
STOP_ROUND = "stop round"
_DIGITS = 3
_KEPT = (
    *("answer", "gold_answers", "score", "propensity", "stopped_by", "policy_hash", "time"),
    *("signals", "probed"),
)
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The answer that a stop returns, with its own score where the record holds one."""

    answer: str | None = None
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question that ended."""

    id: str
    time: datetime | None = None
    rounds: int
    budget: int | None = None
    stop: int | None
    early: bool = False
    explored: bool = False
    propensity: float | None = None
    cut: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    at_stop: Returned = field(default_factory=Returned)
    at_end: Returned = field(default_factory=Returned)
    gold: tuple[str, ...] = ()
    saved: Mapping[str, float] = field(default_factory=dict)
    answers: Mapping[str, Any] = field(default_factory=dict)


class Reading:
    """Reads questions as one policy sees them."""

    def __init__(self, policy: StopPolicy, max_rounds: int | None = None) -> None:
        self._policy = policy
        self._hash = policy_hash(policy)
        self._max_rounds = max_rounds
        self._choice = AnswerChoice.parse(policy.needs.returns)

    @property
    def names(self) -> tuple[str, ...]:
        """What is watched of every question: each signal in round 1 and at the stop, and the stop."""
        signals = self._policy.signals
        return (*(n for name in signals for n in _places(name)), STOP_ROUND)

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The optional columns that are read; ``None``: all."""
        if isinstance(self._policy, SetPolicy):
            return None
        read = {c for spec in self._policy.specs for c in (*spec.needs, *spec.reads)}
        return tuple({*_KEPT, *(column.name for column in USAGE_COLUMNS), *read})

    def budget(self, traces: TraceSet) -> int | None:
        """The full budget of a record."""
        return self._max_rounds or traces.stated_rounds or self._policy.facts.max_rounds

    def questions(self, traces: TraceSet) -> Iterator[Asked]:
        """The questions that this policy ran on, or no other did, by id."""
        ours = [run in (None, self._hash) for run in traces.of_questions("policy_hash")]
        chosen = traces if all(ours) else traces.take(np.array(ours, bool))
        if chosen.n_questions:
            yield from _Batch(self, chosen).questions()

    @property
    def policy(self) -> StopPolicy:
        """Whose."""
        return self._policy

    @property
    def choice(self) -> AnswerChoice:
        """Which answer it returns."""
        return self._choice


def _places(signal: str) -> tuple[str, str]:
    return f"{signal} in round 1", f"{signal} at the stop"


class _Batch:
    """Some questions, their columns read together."""

    def __init__(self, reading: Reading, traces: TraceSet) -> None:
        self._reading, self._traces = reading, traces
        self._budget = reading.budget(traces)
        recorded = traces.last_rounds.astype(np.intp)
        # what a longer recording holds past the full budget is not run
        self._last = np.minimum(recorded, self._budget or recorded)
        ends = zip(_of_last_rounds(traces, "stopped_by"), self._last < recorded, strict=True)
        self._ends = [None if past else end for end, past in ends]
        self._table = self._padded()

    def _padded(self) -> SignalTable:
        """The policy's signals, undefined in rounds that were not run, up to the full budget."""
        specs = self._reading.policy.specs
        columns = signal_columns(self._traces, specs)
        n_rounds = max(self._traces.n_rounds, self._budget or 0)
        more = n_rounds - self._traces.n_rounds
        absent = np.full((self._traces.n_questions, more), math.nan)
        exists = np.hstack([self._traces.exists, np.zeros(absent.shape, bool)])
        return SignalTable(
            values={
                spec.name: np.asfortranarray(np.hstack([values, absent]))
                for spec, values in zip(specs, columns, strict=True)
            },
            exists=exists,
            question_ids=self._traces.question_ids,
        )

    def _stops(self) -> list[int | None]:
        """Where the policy stops: as the record says, else replayed."""
        traces, last = self._traces, self._last.tolist()
        wanted = first_stops(self._reading.policy, self._table).tolist()
        said: Array = np.full((traces.n_questions, traces.n_rounds), math.nan)
        if POLICY_STOP in traces.signal_names:
            said = traces.stored_signal(POLICY_STOP)[0]
        runs = traces.of_questions("policy_hash")
        stops: list[int | None] = []
        for number, end in enumerate(self._ends):
            told = runs[number] is not None and not math.isnan(said[number, 0])
            first = np.flatnonzero(said[number] == 1.0)
            if told and len(first):
                stops.append(min(int(first[0]) + 1, last[number]))
            elif end == "policy":
                stops.append(last[number])
            elif not told and wanted[number] <= last[number] and not self._never(number, wanted):
                stops.append(int(wanted[number]))
            else:
                stops.append(None if end in CUTS else last[number])
        return stops

    def _never(self, number: int, wanted: Sequence[int]) -> bool:
        """Whether a stop in the last round of all may be none."""
        return wanted[number] == self._table.n_rounds and self._ends[number] in CUTS

    def questions(self) -> Iterator[Asked]:
        traces, policy = self._traces, self._reading.policy
        stops, last = self._stops(), self._last.tolist()
        ended = [stop or end for stop, end in zip(stops, last, strict=True)]
        rows = np.arange(traces.n_questions)
        at = np.array(ended, np.intp) - 1
        values: dict[str, list[float]] = {}
        for name in policy.signals:
            signal = self._table.signal(name)
            first, stopped = _places(name)
            values[first], values[stopped] = signal[:, 0].tolist(), signal[rows, at].tolist()
        confidence = policy.confidence(self._table) if isinstance(policy, ConfidentPolicy) else None
        chosen = self._answer_rounds(confidence)
        texts, scores = traces.table.column("answer").to_pylist(), traces.column("score")
        starts = traces.starts.tolist()
        times = _of_last_rounds(traces, "time")
        gold = traces.of_questions("gold_answers")
        propensity = traces.of_questions("propensity")
        saved = self._saved(at)
        sets = self._sets(ended, stops)

        def returned(number: int, round_number: int) -> Returned:
            column = int(chosen[number, round_number - 1]) - 1
            score = math.nan if scores is None else float(scores[number, column])
            return Returned(
                answer=texts[starts[number] + column], score=None if math.isnan(score) else score
            )

        for number, name in enumerate(traces.question_ids):
            stop, rounds = stops[number], last[number]
            by_policy = self._ends[number] == "policy"
            whole = self._budget is not None and rounds >= self._budget
            explored = stop is not None and stop < rounds and not by_policy
            sure = math.nan if confidence is None else float(confidence[number, at[number]])
            own = {key: significant(column[number]) for key, column in values.items()}
            drawn = propensity[number]
            yield Asked(
                id=name,
                time=times[number],
                rounds=rounds,
                budget=self._budget,
                stop=stop,
                early=explored or (by_policy and not whole),
                explored=explored,
                propensity=None if drawn is None or drawn >= 1 else float(f"{drawn:.6g}"),
                cut=self._ends[number] in CUTS and not by_policy and not whole,
                values={**own, STOP_ROUND: math.nan if stop is None else float(stop)},
                confidence=None if math.isnan(sure) else sure,
                at_stop=returned(number, ended[number]),
                at_end=returned(number, rounds),
                gold=tuple(answer for answer in gold[number] or () if answer),
                saved={
                    cost: share[number]
                    for cost, share in saved.items()
                    if explored and not math.isnan(share[number])
                },
                answers=sets[number] if sets else {},
            )

    def _answer_rounds(self, confidence: Array | None) -> NDArray[np.int16]:
        """The round, from 1, whose answer a stop in each round returns, (n_questions, n_rounds)."""
        traces, choice = self._traces, self._reading.choice
        if choice.rule == "most-confident":
            by = None if confidence is None else confidence[:, : traces.n_rounds]
        elif choice.rule == "majority":
            by = answer_votes(traces)
        elif choice.rule == "latest":
            by = None
        else:
            spec = resolve(choice.signal, also=(choice.signal,))
            by = signal_columns(traces, [spec])[0] * (-1.0 if choice.rule == "lowest" else 1.0)
        by = np.broadcast_to(np.nan, traces.exists.shape) if by is None else by
        known = np.where(traces.answered & np.isfinite(by), by, np.nan)
        return running_best(known, first=choice.first)

    def _saved(self, at: NDArray[np.intp]) -> Mapping[str, list[float]]:
        """What share of each cost up to the end the stop saves, in [0, 1]; NaN: unknown.

        What the answer at the stop costs is unknown where only the end has one.
        """
        costs = stop_costs(self._traces, reads=policy_reads(self._reading.policy))
        rows, last, answered = np.arange(len(at)), self._last - 1, self._traces.answered
        unasked = answered[rows, last] & ~answered[rows, at]
        shares: dict[str, list[float]] = {}
        for name in SAVED:
            paid = costs[name]
            if paid is None:
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                share = 1.0 - paid[rows, at] / paid[rows, last]
            told = np.isfinite(share) & ((name == "rounds") | ~unasked)
            known = np.where(told, np.clip(share, 0.0, 1.0), math.nan)
            shares[name] = known.tolist()
        return shares

    def _sets(
        self, ended: Sequence[int], stops: Sequence[int | None]
    ) -> list[Mapping[str, Any]] | None:
        """The answer set of each stop, the samples of its rounds and the values of round 1."""
        policy = self._reading.policy
        if not isinstance(policy, SetPolicy):
            return None
        first = {name: self._table.signal(name)[:, 0] for name in policy.signals}
        sets: list[Mapping[str, Any]] = []
        for number, record in enumerate(self._traces.records()):
            rounds = record.rounds[: ended[number]]
            held = policy.answer_set(rounds, stopped=stops[number] is not None)
            told = {name: known(values[number]) for name, values in first.items()}
            sets.append(
                {
                    "answer_set": held.to_json(),
                    "samples": [list(each.samples or ()) for each in rounds],
                    "reasons": [{"values": told}],
                }
            )
        return sets


def _of_last_rounds(traces: TraceSet, column: str) -> list[Any]:
    """A column's value in each last round; ``None`` where the record lacks it."""
    return traces.of_last_rounds(column) if traces.has(column) else [None] * traces.n_questions


def significant(value: float) -> float:
    """To three significant digits: as many distinct values as a stream needs, however long it is.

    >>> significant(0.123456), significant(98765.0)
    (0.123, 98800.0)
    """
    return float(f"{value:.{_DIGITS}g}") if math.isfinite(value) else math.nan
