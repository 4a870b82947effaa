"""The answer that a loop returns after its stop, with its score and cost, also of censored questions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import AnswerSet, ConfidentPolicy, CoveragePolicy, Retention, StopPolicy
from suffice.costs.usage import CostReads
from suffice.errors import UsageError, counted
from suffice.measures.contents import Exploration, exploration
from suffice.measures.costs import CostBook, KnownCosts, cost_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import Seen, Weighing
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import amount, percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.scoring import AnswerChoice, Metric, ScoreName
from suffice.signals.known_signals import SignalSpec
from suffice.signals.signal_table import answer_votes, declared
from suffice.stats.intervals import Interval, mean_interval, resampled_means
from suffice.stats.series import running_best
from suffice.stats.units import Array, Mask, equally_many, per_unit
from suffice.trace.rounds.records import POLICY_STOP


@dataclass(frozen=True, slots=True)
class Resampling:
    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetResult:
    alpha: float
    sets: tuple[AnswerSet, ...] = field(metadata={"json": None})
    coverage: Interval | None
    set_size: Interval
    answer_rate: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = field(default=(), metadata={"json": None})

    def to_json(self, question_ids: Sequence[str] | None = None) -> dict[str, Any]:
        entry = {
            **fields_as_json(self),
            "coverage": None if self.coverage is None else self.coverage.estimate,
            "coverage_interval": as_json(self.coverage),
            "set_size": self.set_size.estimate,
            "set_size_interval": as_json(self.set_size),
        }
        if question_ids is not None:
            entry["sets"] = dict(zip(question_ids, as_json(self.sets), strict=True))
        return entry


def answer_sets(
    policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16], draws: Resampling
) -> AnswerSetResult | None:
    """Return the sets of every question at its stop round (n_questions,), evaluated."""
    promise = policy.facts.coverage
    if promise is None:
        return None
    recorded = policy.recorded_sets(measures.traces, measures.signals(policy.specs), stops)
    if not measures.metric.gold:
        notes = (*recorded.notes, "coverage and objective need gold answers")
        recorded = replace(recorded, covered=None, objective=None, notes=notes)
    coverage = None
    if recorded.covered is not None:
        units = measures.units[measures.labelled]
        covered = per_unit(recorded.covered.astype(np.float64), units)
        coverage = _interval(covered, draws, 0.0, equally_many(units))
    told = np.array([[one.size, not one.cannot_answer] for one in recorded.sets], np.float64)
    means = per_unit(told.reshape(-1, 2), measures.units)
    return AnswerSetResult(
        alpha=promise.alpha,
        sets=recorded.sets,
        coverage=coverage,
        set_size=_interval(means[:, 0], draws),
        answer_rate=float(means[:, 1].mean()),
        objective=recorded.objective,
        retention=recorded.retention,
        notes=recorded.notes,
    )


def _interval(
    values: Array, draws: Resampling, least: float | None = None, size: float = np.inf
) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return mean_interval(values, means[:, 0], least, size=size)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRounds:
    """The round, from 1, whose answer is returned for every stop, (n_questions, n_rounds)."""

    rounds: NDArray[np.int16]
    reads: CostReads | None = None  # what choosing pays for; None: nothing is chosen

    def at(self, stops: NDArray[np.int16]) -> NDArray[np.int16]:
        """Return the answer rounds of these stops, (n_questions,)."""
        return self.rounds[np.arange(len(stops)), stops - 1]

    def returned(self, scored: Outcomes) -> Outcomes:
        if self.reads is None:
            return scored
        columns = self.rounds.astype(np.intp) - 1
        em, f1, acc = (
            np.take_along_axis(values, columns, axis=1)
            for values in (scored.em, scored.f1, scored.acc)
        )
        return replace(scored, em=em, f1=f1, acc=acc)


def answer_rounds(
    measures: Measures, choice: AnswerChoice, policy: StopPolicy | None
) -> AnswerRounds:
    """Return the round of a policy's answer for every stop; ``None``: a policy without signals."""
    n_questions, n_rounds = measures.traces.n_questions, measures.traces.n_rounds
    latest = np.broadcast_to(np.arange(1, n_rounds + 1, dtype=np.int16), (n_questions, n_rounds))
    if policy is not None:
        choice = choice.or_own(policy.needs.returns)
    if choice.rule == "latest":
        return AnswerRounds(rounds=latest)
    if measures.metric.agreement:
        raise UsageError(
            "agreement needs the full budget's latest answer; leave out --answer and policies that "
            "choose an answer, or compare by gold answers or scores (--metric f1, --metric score)"
        )
    values, reads = _preference(measures, choice, policy)
    if values is None:
        return AnswerRounds(rounds=latest)
    usable = np.isfinite(values) & measures.traces.exists
    if measures.metric.gold:
        usable &= measures.traces.answered
    best = running_best(np.where(usable, values, np.nan), first=choice.first)
    return AnswerRounds(rounds=best, reads=reads)


def _preference(
    measures: Measures, choice: AnswerChoice, policy: StopPolicy | None
) -> tuple[Array | None, CostReads]:
    """Return the preference for each round's answer, (n_questions, n_rounds), and its costs."""
    traces = measures.traces
    if choice.rule == "majority":
        return measures.derived(answer_votes)[0], cost_reads([declared("abstained", traces)])
    if choice.signal:
        specs: Sequence[SignalSpec] = (declared(choice.signal, traces),)
    elif isinstance(policy, ConfidentPolicy):
        specs = policy.specs
    else:
        return None, CostReads()
    table = measures.signals(specs)
    if isinstance(policy, ConfidentPolicy) and not choice.signal:
        return policy.confidence(table), cost_reads(specs)
    values = table.signal(specs[0].name)
    return -values if choice.rule == "lowest" else values, cost_reads(specs)


def answer_notes(
    choice: AnswerChoice,
    chooses: Mapping[str, bool],
    policies: Mapping[str, StopPolicy | None] = MappingProxyType({}),
) -> Sequence[str]:
    if choice.rule == "latest":
        own = {
            name: choice.or_own(policy.needs.returns)
            for name, policy in policies.items()
            if policy is not None
        }
        return [
            f"{name} returns one of the answers up to its stop, with {by}, and pays for all of these "
            "answers"
            for name, by in own.items()
            if by != choice
        ]
    notes = [
        f"the answer returned is the one up to the stop with {choice}; policies pay for all of these "
        "answers"
    ]
    unsure = [name for name, known in chooses.items() if not known]
    if unsure:
        notes.append(
            f"no confidence is known of {', '.join(unsure)}, so the latest answer is returned; to choose "
            "by a signal: --answer highest:NAME"
        )
    return notes


Stops = NDArray[np.int16]

SCORES: tuple[ScoreName, ...] = ("em", "f1", "acc")
_FEW = 10  # explored questions, with fewer of which an interval says little


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Bounds of a mean over unseen questions; a ``high`` of ``None``: no upper bound."""

    low: float
    high: float | None
    interval: tuple[float, float] | None = None

    @property
    def estimate(self) -> None:
        """There is none."""
        return

    @property
    def with_error(self) -> str | None:
        return None if self.interval is None else "-".join(map(percent, self.interval))

    def shown(self, *, share: bool) -> str:
        """Return the range as a text, a ``share`` in percent.

        >>> Range(low=0.41, high=0.873).shown(share=True), Range(low=3.5, high=None).shown(share=False)
        ('41.0-87.3', '>= 3.50')
        """
        form = percent if share else amount
        return (
            f">= {form(self.low)}" if self.high is None else f"{form(self.low)}-{form(self.high)}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCuts:
    weights: Array = field(metadata={"json": None})
    weighing: Weighing
    unseen: int
    ranges: Mapping[str, Range]
    few: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRecord:
    """Counts of cut questions by cause (``cut``), and of their explored representatives."""

    cut: Mapping[str, int]
    explored: int
    stood_for: int
    unseen: int
    untold: int
    exploration: Exploration

    @classmethod
    def of(cls, measures: Measures, seen: Seen) -> CutRecord | None:
        if measures.seen is None:
            return None
        return cls(
            cut=seen.causes,
            explored=int(seen.explored.sum()),
            stood_for=int(seen.stood_for.sum()),
            unseen=int(seen.unseen.sum()),
            untold=seen.untold,
            exploration=exploration(seen, measures.scores().labelled),
        )


@dataclass(frozen=True, slots=True)
class AtStops:
    """Scores and costs at a policy's stops, each (n_questions,), and the ranges of unknown means."""

    scores: Mapping[ScoreName, Array] = field(default_factory=dict)
    costs: Mapping[str, Array | None] = field(default_factory=dict)
    past: PastCuts | None = None
    ranges: Mapping[str, Range] = field(default_factory=dict)
    tossed: Mapping[ScoreName, Array] = field(default_factory=dict)  # as its coin fell

    def averaged(self, sides: Sequence[tuple[float, AtStops]]) -> AtStops:
        """Return the mean over the sides of a coin, with their chances; itself if a side is not known."""
        if not sides or any(side.ranges for _, side in sides):
            return self

        def mean(values: Sequence[Array | None]) -> Array | None:
            known = [one for one in values if one is not None]
            chances = [chance for chance, _ in sides]
            return np.average(known, axis=0, weights=chances) if len(known) == len(sides) else None

        scores = {n: mean([side.scores[n] for _, side in sides]) for n in self.scores}
        return replace(
            self,
            scores={name: values for name, values in scores.items() if values is not None},
            costs={name: mean([side.costs[name] for _, side in sides]) for name in self.costs},
            tossed=self.scores,
        )


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of scores and costs at stops; cut questions are estimated, NaN: nothing represents them."""

    seen: Seen
    labelled: Mask
    units: NDArray[np.intp]
    draws: Resampling = field(default_factory=Resampling)

    def read(self, scored: Outcomes, wanted: Stops, book: CostBook, reads: CostReads) -> AtStops:
        stops, seen = self.seen.stops(wanted), self.seen.of(scored)
        paid, floors = book.at_stops(reads), book.at_least(reads)
        read = {name: self.score(scored, name, stops) for name in SCORES}
        of_costs = {
            name: (None, None) if of is None else self.cost(name, of, stops, floors)
            for name, of in paid.items()
        }
        scores = {name: values for name, (values, _) in read.items()}
        costs = {name: values for name, (values, _) in of_costs.items()}
        lacking = seen.lacking(stops)
        if not lacking.any() and not (stops > seen.until).any():
            return AtStops(scores, costs, ranges=dict(self._unanswered(scores)))
        ranges = {name: one for name, (_, one) in [*read.items(), *of_costs.items()] if one}
        weights = seen.weights(stops)
        past = PastCuts(
            weights=np.where(lacking, np.nan, weights),
            weighing=seen.weighing(stops),
            unseen=int(lacking.sum()),
            ranges=ranges,
            few=bool(ranges) and not lacking.any(),
        )
        return AtStops(scores, costs, past, ranges)

    def _unanswered(self, scores: Mapping[ScoreName, Array]) -> Iterator[tuple[str, Range]]:
        """Yield the range of each mean score that some questions lack."""
        for name, values in scores.items():
            if 0 < (unknown := np.isnan(values) & self.labelled).sum() < self.labelled.sum():
                low, high = (np.where(unknown, end, values) for end in (0.0, 1.0))
                among = self.labelled
                yield name, Range(low=self.mean(low, among), high=self.mean(high, among))

    def mean(self, values: Array, among: Mask | None = None) -> float:
        """Return the mean over units of some questions; NaN: none."""
        some = slice(None) if among is None else among
        means = per_unit(values[some], self.units[some])
        return float(means.mean()) if len(means) else np.nan

    def score(self, scored: Outcomes, name: ScoreName, stops: Stops) -> tuple[Array, Range | None]:
        """Return a score of every question at its stop, (n_questions,), and the range of an unknown mean."""
        seen, values, some = self.seen.of(scored), getattr(scored, name), self.labelled
        at = seen.at(values, stops, among=some)
        lacking, explored = seen.lacking(stops) & some, self._explored(seen, stops, some)
        if not some.any() or (explored is None and not lacking.any()):
            return at, None
        if lacking.any() and explored != 0:
            ends = [seen.at(values, stops, unseen=end, among=some) for end in (0.0, 1.0)]
        elif explored == 0:
            ends = [seen.bounds(values, stops, end) for end in (0.0, 1.0)]
        elif -1e-9 <= self.mean(at, some) <= 1.0 + 1e-9:
            return at, None
        else:
            ends, explored = [at, at], 0
        drawn = resampled_means(
            per_unit(np.stack(ends, axis=1)[some], self.units[some]),
            resamples=self.draws.resamples,
            seed=self.draws.seed,
        )
        low, high = (
            float(np.clip(np.nanpercentile(column, share), 0.0, 1.0))
            for column, share in zip(drawn.T, (2.5, 97.5), strict=True)
        )
        means = (low, high) if ends[0] is ends[1] else [self.mean(end, some) for end in ends]
        between = Range(low=means[0], high=means[1], interval=(low, high))
        return (at if explored else np.where(stops > seen.until, np.nan, at)), between

    def cost(
        self, name: str, paid: Array, stops: Stops, floors: KnownCosts
    ) -> tuple[Array, Range | None]:
        """Return a cost of every question at its stop, and the range of an unknown mean."""
        seen, rows = self.seen, np.arange(len(stops))
        at = seen.at(paid, stops)
        lacking, explored = seen.lacking(stops), self._explored(seen, stops)
        if explored is None and not lacking.any():
            return at, None
        past = seen.weights(stops) != 1.0
        if explored and not lacking.any():
            shown = seen.bounds(paid, stops, np.nan)[past & (seen.weight > 0)]
            slack = 1e-9 * max(1.0, float(np.abs(shown).max()))
            if shown.min() - slack <= at[past].mean() <= shown.max() + slack:
                return at, None
        unknown = np.where(past, np.nan, at)
        floor = floors[name]
        if floor is None:
            return unknown, None
        # a stop that depends on what lies past may be any
        most = np.where(seen.last == 0, seen.budget, stops).astype(np.float64)
        ends = [floor[rows, np.maximum(seen.last, 1) - 1], most][: 1 + (name == "rounds")]
        if lacking.any() and explored != 0:
            sides = [seen.at(paid, stops, unseen=end) for end in ends]
        else:
            sides = [seen.bounds(paid, stops, end) for end in ends]
        low, *high = (self.mean(side) for side in sides)
        return unknown, Range(low=low, high=high[0] if high else None)

    def _explored(self, seen: Seen, stops: Stops, some: Mask | None = None) -> int | None:
        """Count explored questions past their policy's stop; ``None``: no question is past one."""
        past = (seen.weights(stops) != 1.0) & (True if some is None else some)
        return int((past & (seen.weight > 0)).sum()) if past.any() else None


def cut_notes(record: CutRecord | None, past: Mapping[str, PastCuts | None]) -> Iterable[str]:
    if record is None:
        return
    if record.explored:
        yield (
            f"censored questions: {record.explored:,} explored ones represent {record.stood_for:,} that "
            "were stopped early, by doubly robust estimates, with inverse-propensity weights"
        )
    few = [
        f"{name} ({one.weighing.past})"
        for name, one in past.items()
        if one and not one.unseen and (one.few or one.weighing.past < _FEW)
    ]
    if few:
        yield (
            f"too few explored questions for {', '.join(few)}: the intervals are unreliable. An estimate "
            "outside the possible range, or without any explored question, is given as a range"
        )
    if record.untold:
        yield (
            f"a propensity of {counted(record.untold, 'question')}, but the record does not say where the "
            f"policy stopped (signal '{POLICY_STOP}': 1 at the stop, 0 before). Explored and complete "
            "questions look alike, so none is weighted"
        )
    unseen = ", ".join(
        f"{name} ({one.unseen:,})" for name, one in past.items() if one and one.unseen
    )
    if unseen:
        yield (
            f"known only within ranges: {unseen}, for so many censored questions. A score there is "
            "between 0 and 1, a cost at least what was paid. Differences to these policies are not "
            "given, nor the gain over fixed budgets if one of these is among them. Ranges exclude "
            "sampling error; the table of censored questions adds it. To know more, explore a share "
            "(Watch with explore=0.05)"
        )
    if unseen and record.cut.get("gold"):
        yield (
            f"{counted(record.cut['gold'], 'question')} stopped because right, so later rounds are known "
            "for wrong ones only. What more rounds cost or spoil is bounded, not estimated"
        )
    yield from record.exploration.notes()


def cut_table(
    record: CutRecord | None, past: Mapping[str, PastCuts | None], metric: Metric
) -> Table | None:
    """Return a table of the seen share of every policy's figures; ``None``: every stop was seen."""
    if record is None or not any(past.values()):
        return None
    columns = [
        Column(name="policy", most=20),
        Column(name="unseen", kind="count", head="not\nseen"),
        Column(name=metric.name, kind="percent", head=f"{metric.label}\nwithin", interval=True),
        Column(name=f"{metric.name}_interval", head="with sampling\nerror, 95%"),
        Column(name="rounds", kind="number", digits=2, head="rounds\nwithin", interval=True),
        Column(name="explored", kind="count", head="explored,\nlater rounds"),
        Column(name="effective", kind="number", digits=1, head="effective\nnumber"),
    ]
    rows: list[list[Value]] = []
    for name, one in past.items():
        if one is None:
            continue
        score, rounds = one.ranges.get(metric.score), one.ranges.get("rounds")
        weighing, explored = one.weighing, one.weighing.past
        rows.append(
            [
                *(name, one.unseen),
                None if score is None else Cell(score, score.shown(share=True)),
                None if score is None else score.with_error,
                None if rounds is None else Cell(rounds, rounds.shown(share=False)),
                Cell(explored, f"{explored:,}, too few") if one.few else explored,
                weighing.effective,
            ]
        )
    ranged = [n for n in (2, 3, 4) if any(row[n] is not None for row in rows)]
    shown = [0, 1, *ranged, *((5, 6) if record.explored else ())]
    columns, rows = [columns[n] for n in shown], [[row[n] for n in shown] for row in rows]
    return Table(
        name="cuts",
        title="Censored questions: how much of their later rounds was seen.",
        columns=columns,
        rows=rows,
        notes=(
            "Policies not listed stop where every question was seen. Not seen: questions that stopped "
            "before the policy does, and that no explored question represents. Explored: questions that "
            "ran on; they are weighted to represent the others.",
        ),
    )
