"""The monitors' view of recorded questions, with the loss and saving of each stop."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import AnswerSet, ConfidentPolicy, CoveragePolicy, StopPolicy
from suffice.costs.usage import find_cost, stop_costs
from suffice.errors import UsageError, counted
from suffice.measures.costs import policy_reads
from suffice.measures.scores import judged, own_metric
from suffice.measures.seen import stop_arms
from suffice.monitor.alarms import ProbabilityMonitor
from suffice.policies.policy_file import policy_hash
from suffice.policies.rules.policy import coin_sides
from suffice.results.as_json import as_json
from suffice.results.formats import about, bracket, percent
from suffice.results.table import Column, Table, Value
from suffice.scoring import METRICS, SCORES, AnswerChoice, Metric, ScoreName
from suffice.signals import plugins
from suffice.signals.known_signals import resolve
from suffice.signals.signal_table import SignalTable, answer_votes, signal_columns
from suffice.stats.betting import AnytimeMean, MeanSequence
from suffice.stats.fields import known
from suffice.stats.series import running_best
from suffice.trace.rounds.records import CUTS, POLICY_STOP
from suffice.trace.rounds.trace_set import TraceSet

SAVED = ("rounds", "llm_calls", "evaluated_tokens", "seconds")
"""Costs of which it is watched what share stopping saves."""
STOP_ROUND = "stop round"
CLOCK_S = 60.0  # by which clocks may differ or be set back
_COUNTS = (
    *("questions", "rounds", "early", "explored", "ran_on", "labelled", "cut"),
    *("unanswered", "misdated"),
)
_NUMBERS = range(1, 1_000_000)
_SHARES = ("early", "ran_on")  # of all questions, and of those explored
_OF_SHARE = 0.1  # of the level, for each of them
_OF_MEAN = 1.0 - len(_SHARES) * _OF_SHARE
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The answer that a stop returns, with its score if the record holds one, and its question's type."""

    answer: str | None = None
    score: float | None = None
    type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetReturned:
    """An answer set, every sampled answer of its rounds, and the policy's score in round 1."""

    held: AnswerSet
    samples: tuple[str, ...]
    first_score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    id: str
    time: datetime | None = None
    begun: datetime | None = None  # the end of its first round
    rounds: int
    budget: int | None = None
    stop: int | None
    early: bool = False  # its policy said stop before the budget, whether or not it ran on
    explored: bool = False  # so, and it was not stopped there
    propensity: float | None = None
    cut: bool = False
    misdated: bool = False
    values: Mapping[str, float] = field(default_factory=dict)
    confidence: float | None = None
    at_stop: Returned = field(default_factory=Returned)
    at_end: Returned = field(default_factory=Returned)
    tails: tuple[float, int, Returned] | None = None
    """Where nothing was stopped, the other side of the policy's coin: its chance, its stop, what it returns.
    ``stop`` is then that of heads, so that losses and savings are means over the coin, as elsewhere."""
    gold: tuple[str, ...] = ()
    saved: Mapping[str, float] = field(default_factory=dict)
    answer_set: SetReturned | None = None

    @property
    def ran_on(self) -> bool:
        """Whether it was explored, and the loop did not end by itself in the round of the stop."""
        return self.explored and self.stop is not None and self.stop < self.rounds


class Reading:
    def __init__(self, policy: StopPolicy, max_rounds: int | None = None) -> None:
        self._policy, self._hash, self._max_rounds = policy, policy_hash(policy), max_rounds
        read = (name for signal in policy.signals for name in _places(signal))
        self.names: tuple[str, ...] = (*read, STOP_ROUND)
        """What is watched of every question: each signal in round 1 and at the stop, and the stop."""

    def questions(self, traces: TraceSet) -> Iterator[Asked]:
        """Yield the questions that this policy or none ran on, by id."""
        ours = [run in (None, self._hash) for run in traces.of_questions("policy_hash")]
        if not all(ours):
            traces = traces.take(np.array(ours, bool))
        if traces.n_questions:
            with plugins.answered_by(self._policy, f"the {self._policy.kind} policy"):
                full = self._max_rounds or traces.stated_rounds or self._policy.facts.max_rounds
                yield from _asked(self._policy, traces, full)


def _places(signal: str) -> tuple[str, str]:
    return f"{signal} in round 1", f"{signal} at the stop"


def _asked(policy: StopPolicy, traces: TraceSet, full: int | None) -> Iterator[Asked]:
    recorded = traces.last_rounds.astype(np.intp)
    # what a longer recording holds past the full budget is not run
    last = np.minimum(recorded, full or recorded)
    told = zip(_of_last_rounds(traces, "stopped_by"), last < recorded, strict=True)
    ended_by = [None if past else end for end, past in told]
    table = _padded(policy, traces, full)
    plugins.refuse_otherwise_live(policy, table)
    ends = list(zip(last.tolist(), ended_by, strict=True))
    sides = () if "policy" in ended_by else coin_sides(policy)
    said = _said(sides[0][1] if sides else policy, traces, table, ends, recorded=not sides)
    # a loop that no stop cut short ends where the policy's would
    stops = [one or (at, None)[end in CUTS] for one, (at, end) in zip(said, ends, strict=True)]
    ended = [stop or int(end) for stop, end in zip(stops, last, strict=True)]
    by_policy = np.array([end == "policy" for end in ended_by], bool)
    never = np.iinfo(np.intp).max
    arms = stop_arms(np.array([one or never for one in said]), by_policy, full or never)
    halted, explored = (arm.tolist() for arm in arms)
    rows, at = np.arange(traces.n_questions), np.array(ended, np.intp) - 1

    values: dict[str, list[float]] = {}
    for name in policy.signals:
        signal, (first, stopped) = table.signal(name), _places(name)
        values[first], values[stopped] = signal[:, 0].tolist(), signal[rows, at].tolist()
    confidence = policy.confidence(table) if isinstance(policy, ConfidentPolicy) else None
    chosen = _answer_rounds(policy, traces, confidence)
    texts, scores = traces.table.column("answer").to_pylist(), traces.column("score")
    starts = traces.starts.tolist()
    times, gold = _of_last_rounds(traces, "time"), traces.of_questions("gold_answers")
    begun = traces.of_questions("time")
    propensity, types = (traces.of_questions(n) for n in ("propensity", "question_type"))
    fell: NDArray[np.bool_] = np.zeros(len(last), bool)
    if traces.has("time"):
        moments = traces.dense(pc.cast(traces.table.column("time"), pa.int64()))
        fell = np.any(np.diff(moments, axis=1) < -1e6 * CLOCK_S, axis=1)
    saved = _saved(policy, traces, at, last - 1)
    tails: list[int] = []
    if sides:
        (heads, _), (chance, side) = sides
        other = _said(side, traces, table, ends, recorded=False)
        tails = [stop or int(end) for stop, end in zip(other, last, strict=True)]
        there = _saved(policy, traces, np.array(tails, np.intp) - 1, last - 1)
        saved = {name: heads * share + chance * there[name] for name, share in saved.items()}
    sets = None
    if isinstance(policy, CoveragePolicy):
        sets = _sets(policy, traces, table, ended, stops)

    def returned(number: int, round_number: int) -> Returned:
        column = int(chosen[number, round_number - 1]) - 1
        score = None if scores is None else known(scores[number, column])
        return Returned(answer=texts[starts[number] + column], score=score, type=types[number])

    for number, name in enumerate(traces.question_ids):
        stop, rounds = stops[number], int(last[number])
        whole = full is not None and rounds >= full
        own = {key: significant(column[number]) for key, column in values.items()}
        drawn = propensity[number]
        yield Asked(
            id=name,
            time=times[number],
            begun=begun[number],
            rounds=rounds,
            budget=full,
            stop=stop,
            early=halted[number] or explored[number],
            explored=explored[number],
            propensity=None if drawn is None or drawn >= 1 else float(f"{drawn:.6g}"),
            cut=ended_by[number] in CUTS and not by_policy[number] and not whole,
            misdated=bool(fell[number]),
            values={**own, STOP_ROUND: math.nan if stop is None else float(stop)},
            confidence=None if confidence is None else known(confidence[number, at[number]]),
            at_stop=returned(number, ended[number]),
            at_end=returned(number, rounds),
            tails=(chance, tails[number], returned(number, tails[number])) if tails else None,
            gold=tuple(answer for answer in gold[number] or () if answer),
            saved={
                cost: float(share[number])
                for cost, share in saved.items()
                if not math.isnan(share[number])
            },
            answer_set=sets[number] if sets else None,
        )


def _padded(policy: StopPolicy, traces: TraceSet, full: int | None) -> SignalTable:
    more = ((0, 0), (0, max(traces.n_rounds, full or 0) - traces.n_rounds))
    values: dict[str, Array] = {}
    for spec, one in zip(policy.specs, signal_columns(traces, policy.specs), strict=True):
        values[spec.name] = np.asfortranarray(np.pad(one, more, constant_values=math.nan))
        values[spec.name].flags.writeable = False
    exists = np.pad(traces.exists, more)
    return SignalTable(values=values, exists=exists, question_ids=traces.question_ids)


def _said(
    policy: StopPolicy,
    traces: TraceSet,
    table: SignalTable,
    ends: Sequence[tuple[int, str | None]],
    *,
    recorded: bool = True,
) -> list[int | None]:
    """Return the round in which the policy first said stop, as ``recorded``, else as replayed."""
    said: Array = np.full((traces.n_questions, traces.n_rounds), math.nan)
    if recorded and POLICY_STOP in traces.signal_names:
        said = traces.stored_signal(POLICY_STOP)[0]
    runs, fires = traces.of_questions("policy_hash"), plugins.mask_of(policy, table)
    stops: list[int | None] = []
    for number, (last, end) in enumerate(ends):
        told = runs[number] is not None and not math.isnan(said[number, 0])
        first = np.flatnonzero((said[number] == 1.0 if told else fires[number])[:last])
        by = last if end == "policy" else None
        stops.append(int(first[0]) + 1 if len(first) and (told or by is None) else by)
    return stops


def _answer_rounds(
    policy: StopPolicy, traces: TraceSet, confidence: Array | None
) -> NDArray[np.int16]:
    choice = AnswerChoice.parse(policy.needs.returns)
    by: Array | None = None
    if choice.rule == "most-confident" and confidence is not None:
        by = confidence[:, : traces.n_rounds]
    elif choice.rule == "majority":
        by = answer_votes(traces)
    elif choice.signal:
        spec = resolve(choice.signal, also=(choice.signal,))
        by = signal_columns(traces, [spec])[0] * (-1.0 if choice.rule == "lowest" else 1.0)
    by = np.full(traces.exists.shape, math.nan) if by is None else by
    usable = np.where(traces.answered & np.isfinite(by), by, np.nan)
    return running_best(usable, first=choice.first)


def _saved(
    policy: StopPolicy, traces: TraceSet, at: NDArray[np.intp], end: NDArray[np.intp]
) -> Mapping[str, Array]:
    costs = stop_costs(traces, reads=policy_reads(policy))
    rows, answered = np.arange(len(at)), traces.answered
    unasked = answered[rows, end] & ~answered[rows, at]
    shares: dict[str, Array] = {}
    for name in SAVED:
        paid = costs[name]
        if paid is None:
            continue
        with np.errstate(divide="ignore", invalid="ignore"):
            share = 1.0 - paid[rows, at] / paid[rows, end]
        told = np.isfinite(share) & ((name == "rounds") | ~unasked)
        shares[name] = np.where(told, np.clip(share, 0.0, 1.0), math.nan)
    return shares


def _sets(
    policy: CoveragePolicy,
    traces: TraceSet,
    table: SignalTable,
    ended: Sequence[int],
    stops: Sequence[int | None],
) -> list[SetReturned]:
    first = policy.scores(table)[:, 0].tolist()
    sets = []
    for number, record in enumerate(traces.records()):
        rounds = record.rounds[: ended[number]]
        returned = SetReturned(
            held=policy.answer_set(rounds, stopped=stops[number] is not None),
            samples=tuple(sample for one in rounds for sample in one.samples or ()),
            first_score=first[number],
        )
        sets.append(returned)
    return sets


def _of_last_rounds(traces: TraceSet, column: str) -> list[Any]:
    return traces.of_last_rounds(column) if traces.has(column) else [None] * traces.n_questions


def significant(value: float) -> float:
    """Round to three significant digits, so that a stream has few distinct values.

    >>> significant(0.123456), significant(98765.0)
    (0.123, 98800.0)
    """
    return float(f"{value:.3g}") if math.isfinite(value) else math.nan


# --- what stopping costs -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """The watched loss, its score, and its promised bound (``None``: no promise)."""

    metric: Metric
    score: ScoreName
    loss: str = "signed"
    most: float | None = None

    @classmethod
    def by(cls, policy: StopPolicy, metric: str | None, most: float | None) -> Promised:
        """Return the loss that a certified policy promises, unless another metric or bound is named."""
        if most is not None and not 0.0 <= most <= 1.0:
            raise UsageError(f"a promised loss lies in [0, 1], found {most!r}")
        terms = policy.facts.guarantee
        loss, stated = _bound_of(terms)
        certified = {
            known.key(score): (known, score) for known in METRICS.values() for score in SCORES
        }.get(str(terms.get("metric")))
        if metric is None and certified is not None:
            known, score = certified
            return cls(metric=known, score=score, loss=loss, most=stated if most is None else most)
        if metric is None and (own := terms.get("metric")):
            way = own if ":" in str(own) else "score"
            raise UsageError(f"the promise is of metric {own!r}; name one to watch: --metric {way}")
        named = METRICS.get(metric or "f1") or own_metric(metric or "")
        theirs = certified[0] is named if certified else terms.get("metric") == named.name
        most = stated if theirs and most is None else most
        return cls(metric=named, score=named.score, most=most)

    @property
    def least(self) -> float:
        """The least possible loss; the greatest is 1."""
        return -1.0 if self.loss == "signed" else 0.0

    def lost_by(self, asked: Asked, gold: Sequence[str]) -> float:
        """Return the loss of a question's stop, the mean over its policy's coin; NaN: unknown."""
        lost = self.lost(asked.at_stop, asked.at_end, gold)
        if asked.tails is None:
            return lost
        chance, _, returned = asked.tails
        return (1.0 - chance) * lost + chance * self.lost(returned, asked.at_end, gold)

    def lost(self, stop: Returned, end: Returned, gold: Sequence[str]) -> float:
        """Return the loss of a stop against running on; NaN: unknown."""
        if self.metric.agreement:
            gold = () if end.answer is None else (end.answer,)
        at_stop, at_end = self._value(stop, gold), self._value(end, gold)
        if math.isnan(at_stop) or math.isnan(at_end):
            return math.nan
        if self.loss == "wrong-stop":
            return float(at_end == 1.0 and at_stop != 1.0)
        return max(at_end - at_stop, self.least)

    def _value(self, returned: Returned, gold: Sequence[str]) -> float:
        if self.metric.against == "scores":
            own = math.nan if returned.score is None else returned.score
            exact = {"f1": own, "em": float(own == 1.0), "acc": float(own > 0.0)}
            return math.nan if math.isnan(own) else exact[self.score]
        if returned.answer is None or not gold:
            return math.nan
        if self.metric.source:
            return judged(self.metric, returned.answer, gold)
        return self.metric.of(self.score, returned.answer, gold, returned.type)

    def in_words(self, verb: str = " lost") -> str:
        kind = {"signed": "", "drop": " in drops", "wrong-stop": " in wrong stops"}[self.loss]
        return f"{self.metric.head(self.score)}{verb}{kind}"


def _bound_of(terms: Mapping[str, Any]) -> tuple[str, float | None]:
    bounds: list[Any] = [{"of": terms.get("loss"), "at_most": terms.get("max_loss")}]
    bounds += [bound for bound in terms.get("bounds") or () if isinstance(bound, Mapping)]
    for bound in bounds:
        kind, most = bound.get("of"), bound.get("at_most")
        if kind in ("signed", "drop", "wrong-stop") and isinstance(most, int | float):
            return str(kind), float(most)
    return "signed", None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerQuestion:
    """A mean change over all questions, estimated from those that ran on past their stop."""

    name: str
    explored: int
    estimate: float
    low: float
    high: float


class Stopping:
    """Counts, and losses and savings of stopping per question, with intervals that hold at all times.

    Savings are shares of the cost of the same loop without the stop.

    The mean per question is a product: the share of questions stopped early, the share of those explored
    that ran on and did not end by themselves in the round of the stop, and the mean of these. The product of
    their intervals, at 0.1, 0.1 and 0.8 of the level, holds for it. It does not matter in which order or how
    many of the last ones are labelled, if that does not depend on the outcome. Weights of 1/propensity would
    need the other questions' labels too, for intervals as wide.
    """

    def __init__(self, promised: Promised, level: float) -> None:
        self._promised, self._level = promised, level
        self.counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self.means: dict[str, MeanSequence] = {
            name: MeanSequence(0.0, 1.0) for name in (*_SHARES, *SAVED)
        }
        self.means["loss"] = MeanSequence(promised.least, 1.0)
        self.draws: ProbabilityMonitor = ProbabilityMonitor(level)
        # of questions with a budget: run, left to it by those stopped; left and run by those explored
        self._rounds: defaultdict[str, float] = defaultdict(float)

    def take(self, asked: Asked) -> None:
        counts = self.counts
        counts["questions"] += 1
        for name in ("rounds", "early", "explored", "ran_on", "cut", "misdated"):
            counts[name] += getattr(asked, name)
        self.means["early"].take(float(asked.early))
        if asked.explored:
            self.means["ran_on"].take(float(asked.ran_on))
        for name, share in asked.saved.items() if asked.ran_on else ():
            self.means[name].take(share)
        if asked.budget is not None:
            rounds, stop = self._rounds, float(asked.stop or asked.rounds)
            if asked.tails is not None:
                stop += asked.tails[0] * (asked.tails[1] - stop)
            rounds["run"] += asked.rounds
            if asked.explored:
                rounds["explored left"] += asked.budget - stop
                rounds["explored run"] += asked.rounds - stop
            elif asked.early:
                rounds["left"] += asked.budget - asked.rounds
        if asked.early and asked.propensity is not None:
            self.draws.update(asked.propensity, float(asked.explored))

    def lose(self, loss: float) -> bool:
        """Take the loss of a question that ran on, or NaN; return whether the loss is proven too high."""
        if math.isnan(loss):
            self.counts["unanswered"] += 1
            return False
        self.means["loss"].take(loss)
        most = self._promised.most
        return most is not None and self.loss.estimate > most and self.loss.low > most

    @property
    def loss(self) -> PerQuestion:
        """The loss per question."""
        return self._per_question(self._promised.in_words(), self.means["loss"])

    @property
    def saved(self) -> list[PerQuestion]:
        return [
            self._per_question(name, self.means[name]) for name in SAVED if self.means[name].count
        ]

    def _per_question(self, name: str, held: MeanSequence) -> PerQuestion:
        parts = self._shares
        shares = math.prod(part.estimate for part in parts) if self.counts["explored"] else math.nan
        parts.append(held.at(_OF_MEAN * self._level))
        ends = [math.prod(end) for end in product(*((part.low, part.high) for part in parts))]
        return PerQuestion(
            name=name,
            explored=held.count,
            estimate=shares * (held.mean if shares else 0.0),  # none that ran on lost anything
            low=min(ends),
            high=max(ends),
        )

    @property
    def _shares(self) -> list[AnytimeMean]:
        return [self.means[name].at(_OF_SHARE * self._level) for name in _SHARES]

    @property
    def full_rounds(self) -> float | None:
        """Rounds that all loops would have run without the stop, as those explored did; ``None``: unknown."""
        rounds = self._rounds
        run, left = rounds["explored run"], rounds["explored left"]
        if rounds["left"] and not left:
            return None
        return rounds["run"] + (rounds["left"] * run / left if left else 0.0)

    @property
    def rounds_saved(self) -> float | None:
        """Share of these rounds that were not run, explored questions included."""
        full = self.full_rounds
        return 1.0 - self._rounds["run"] / full if full else None

    @property
    def needed(self) -> int | None:
        """Questions that ran on, of known loss, that would prove the promise, if they lose as these do.

        If there are none yet: if none loses anything. ``None``: no promise, or no number would.
        """
        most, losses = self._promised.most, self.means["loss"]
        if most is None:
            return None
        if not losses.count:
            losses = MeanSequence(self._promised.least, 1.0)
            losses.take(0.0)
        share = math.prod(part.high for part in self._shares)

        def proven(count: int) -> bool:
            return share * losses.at(_OF_MEAN * self._level, count).high <= most

        found = bisect_left(_NUMBERS, True, key=proven)
        return _NUMBERS[found] if found < len(_NUMBERS) else None

    def to_json(self) -> dict[str, Any]:
        """Return counts and figures as strict JSON."""
        told = {
            **self.counts,
            "stopped_early": self.means["early"].at(self._level),
            "loss": self.loss,
            "saved": self.saved,
            "full_rounds": self.full_rounds,
            "rounds_saved": self.rounds_saved,
            "questions_needed": self.needed,
        }
        return {name: as_json(value) for name, value in told.items()}

    # --- in words ----------------------------------------------------------------------------------
    def told(self, of: str = "") -> str:
        counts = self.counts
        return (
            f"{counted(counts['questions'], 'question')}{of}, {counts['rounds']:,} rounds. "
            f"{counts['early']:,} stopped early, {counts['explored']:,} of them explored. Labels that count: "
            f"{counts['labelled']:,} known"
        )

    @property
    def decided(self) -> tuple[str, str]:
        most, loss = self._promised.most, self.loss
        if most is None:
            return "no promise", "state one with suffice monitor --max-loss"
        if not self.counts["early"]:
            return "kept", "no question was stopped early, so nothing was lost or saved"
        if self._unknown:
            return "not shown", self._unknown
        kept = loss.high <= most
        said = f"{percent(loss.estimate)} {bracket(loss)}"
        said = f"at most {percent(max(loss.high, 0.0))}" if kept else said
        return "kept" if kept else "not shown", (
            f"stopping loses {said} points of {self._promised.in_words('')} per question, promised at most "
            f"{percent(most)} ({100 * (1 - self._level):g}% confidence)"
        )

    @property
    def _unknown(self) -> str:
        """Why the loss is unknown; empty: it is known."""
        if not self.counts["explored"]:
            return "no question was explored (explore=0.05)"
        return "no explored question has both scores" if math.isnan(self.loss.estimate) else ""

    def _notes(self) -> list[str]:
        counts, notes = self.counts, list[str]()
        if self.rounds_saved and self._rounds["left"]:
            notes.append(
                f"Stopping saved {percent(self.rounds_saved)}% of the rounds that the loops would have run "
                "without it, explored questions included."
            )
        if counts["explored"]:
            level = 100 * (1 - self._level)
            notes.append(
                "A question that no stop cuts short loses and saves 0, and counts in the means. Savings are "
                "means of each question's share; choose and replay compare total costs. Intervals "
                f"hold at all times together, each with {level:g}% confidence, if the means do not change."
            )
        if self._unknown:
            notes.append(f"The loss of stopping is unknown: {self._unknown}.")
        if self.decided[0] == "not shown":
            notes.append(self._more())
        if 0 < counts["misdated"] < counts["questions"]:
            notes.append(
                f"The clock was wrong or is unknown for {counted(counts['misdated'], 'question')}: no "
                "time, one in the future, or rounds that go back. Their place in the record counts."
            )
        if counts["unanswered"]:
            ran_on = f"{counted(counts['unanswered'], 'explored question')} lack"
            notes.append(
                f"{ran_on} your score at the stop: observe(..., score=...), or --metric em."
                if self._promised.metric.against == "scores"
                else f"{ran_on} an answer at the stop; suffice probe asks for it."
            )
        if counts["cut"]:
            notes.append(
                f"{counted(counts['cut'], 'question')} ended by a budget, an error or the user; their "
                "last answer counts as that of the full budget."
            )
        return notes

    def _more(self) -> str:
        needed, known, counts = self.needed, self.loss.explored, self.counts
        if needed is None:
            return "No number of questions like these would show that the promise is kept."
        losing = "if they lose as these do" if known else "if none loses anything"
        waiting = counts["ran_on"] - known - counts["unanswered"]
        share = counts["ran_on"] / counts["explored"] if counts["ran_on"] else 1.0
        asked = math.ceil(needed * counts["questions"] / (counts["early"] * share))
        return (
            f"{about(needed).capitalize()} labeled questions that ran on would show it, {losing}. There are "
            f"{known:,}, and {waiting:,} lack a label. With explore=1 {about(asked)} questions give so many, "
            "with explore=0.1 ten times as many."
        )

    def table(self, name: str, title: str) -> Table:
        """Return losses and savings, with notes."""
        columns = (
            Column(name="per_question", head="over all questions"),
            Column(name="explored", kind="count", head="ran on"),
            Column(name="mean", kind="percent", interval=True, head="mean, %"),
            Column(name="promised", kind="percent", head="promised"),
        )
        loss, rows = self.loss, list[list[Value]]()
        if loss.explored:
            rows.append([loss.name, loss.explored, loss, self._promised.most])
        rows += [
            [f"{find_cost(part.name).label} saved", part.explored, part, None]
            for part in self.saved
        ]
        return Table(name=name, title=title, columns=columns, rows=rows, notes=self._notes())
