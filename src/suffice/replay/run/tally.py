"""Replay of a record in parts: of each its tally, which add up to what is told of all questions.

No question's figures are kept, so a record of any size is replayed in the memory of one part. Sums of whole
numbers are the same however the record was split, others to their rounding; intervals come from sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import COSTS, USUAL_COSTS, RecordedUsage, UsageFacts, find_cost
from suffice.errors import InternalError
from suffice.measures.costs import CostAxis, cost_notes, usual_axis
from suffice.measures.measures import Measures, unit_notes
from suffice.numbers.auroc import auroc_of_counts
from suffice.numbers.fields import known
from suffice.numbers.intervals.sums import Sums
from suffice.numbers.units import unit_means, unit_weights
from suffice.protocols import CoveragePolicy
from suffice.replay.diagnose.selective import stop_confidence
from suffice.replay.run.answer_choice import answer_notes
from suffice.replay.run.answer_sets import Resampling, SetsTally, tally_sets
from suffice.replay.run.cuts import SCORES
from suffice.replay.run.frontier import EQUAL_COSTS
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.run.paired import Layout, PairedIntervals
from suffice.replay.run.references import CLOSED_BOOK
from suffice.replay.run.results import (
    Counted,
    PolicyResult,
    ReplayResult,
    counts_by_round,
    policy_notes,
    unscored_notes,
)
from suffice.replay.run.runs import Run, Runner, at_stop
from suffice.scoring import AnswerChoice, Metric, ScoreName

if TYPE_CHECKING:
    from suffice.replay.run.engine import ReplaySettings

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfidenceTally:
    """Questions by the confidence at their stop, and how many have none there.

    ``values`` (n,) are the distinct ones of labelled questions, in order; ``right`` and ``wrong`` (n,) count
    those.
    """

    values: Array
    right: Counts
    wrong: Counts
    undefined: int

    @classmethod
    def of(cls, confidence: Array, em: Array) -> ConfidenceTally:
        """That of questions, (n_questions,) each."""
        usable = ~np.isnan(confidence) & ~np.isnan(em)
        values, at = np.unique(confidence[usable], return_inverse=True)
        right = np.bincount(at[em[usable] == 1.0], minlength=len(values))
        return cls(
            values=values,
            right=right,
            wrong=np.bincount(at, minlength=len(values)) - right,
            undefined=int(np.isnan(confidence).sum()),
        )

    def add(self, other: ConfidenceTally) -> ConfidenceTally:
        """That of both parts."""
        values, at = np.unique(np.append(self.values, other.values), return_inverse=True)
        right, wrong = np.zeros((2, len(values)), np.int64)
        np.add.at(right, at, np.append(self.right, other.right))
        np.add.at(wrong, at, np.append(self.wrong, other.wrong))
        undefined = self.undefined + other.undefined
        return ConfidenceTally(values=values, right=right, wrong=wrong, undefined=undefined)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyTally:
    """What adds up of one candidate: sums over units, of labelled questions for scores, NaN: unknown.

    ``stops`` says how many units stop at round 0, 1, ..., ``beyond`` how many questions end before the round
    it wanted, ``unscored`` how many labelled ones have no score; ``retrieved`` are sums of precision and
    recall at the stop, and of what they are over; ``chooses``: something is known to choose an answer by.
    """

    name: str
    scores: Mapping[ScoreName, float]
    costs: Mapping[str, float]
    stops: Array
    beyond: int
    unscored: int
    retrieved: tuple[tuple[float, float], tuple[float, float]]
    chooses: bool
    confidence: ConfidenceTally | None
    sets: SetsTally | None

    def add(self, other: PolicyTally) -> PolicyTally:
        """That of both parts."""
        return PolicyTally(
            name=self.name,
            scores={name: total + other.scores[name] for name, total in self.scores.items()},
            costs={name: total + other.costs[name] for name, total in self.costs.items()},
            stops=self.stops + other.stops,
            beyond=self.beyond + other.beyond,
            unscored=self.unscored + other.unscored,
            retrieved=(
                _added(self.retrieved[0], other.retrieved[0]),
                _added(self.retrieved[1], other.retrieved[1]),
            ),
            chooses=self.chooses or other.chooses,
            confidence=None
            if self.confidence is None or other.confidence is None
            else self.confidence.add(other.confidence),
            sets=None if self.sets is None or other.sets is None else self.sets.add(other.sets),
        )


def _added(some: tuple[float, float], others: tuple[float, float]) -> tuple[float, float]:
    return some[0] + others[0], some[1] + others[1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tally:
    """What is told of a part of a record, or of several together; no unit lies in two.

    ``units`` are all, and those of labelled questions. ``own`` and ``charged`` are the facts of the parts
    themselves, and those that their costs were computed by: of the whole record. ``fixed_costs`` are sums
    over units of what fixed-1 .. fixed-R cost, (n_rounds,) each, NaN: unknown; ``sums`` those of the columns
    of a :class:`~suffice.replay.run.paired.Layout` over units of labelled questions.
    """

    questions: int
    labelled: int
    units: tuple[int, int]
    metric: Metric
    own: UsageFacts
    charged: UsageFacts
    policies: tuple[PolicyTally, ...]
    fixed_costs: Mapping[str, Array]
    sums: Sums

    def add(self, other: Tally) -> Tally:
        """That of both parts."""
        pairs = zip(self.policies, other.policies, strict=True)
        return Tally(
            questions=self.questions + other.questions,
            labelled=self.labelled + other.labelled,
            units=(self.units[0] + other.units[0], self.units[1] + other.units[1]),
            metric=self.metric,
            own=self.own.add(other.own),
            charged=self.charged.add(other.charged),
            policies=tuple(one.add(more) for one, more in pairs),
            fixed_costs={
                name: paid + other.fixed_costs[name] for name, paid in self.fixed_costs.items()
            },
            sums=self.sums.add(other.sums),
        )


def replay_parts(
    each: Callable[[Callable[[Measures], Tally]], Iterable[Tally]],
    candidates: Sequence[NamedPolicy],
    settings: ReplaySettings,
    n_rounds: int,
    *,
    source: str,
) -> ReplayResult:
    """The replay of a record in parts, none of whose questions was cut."""
    whole: UsageFacts | None = None
    candidates = [_to_send(candidate) for candidate in candidates]
    for _ in range(2):
        tallied = partial(
            tally, candidates=candidates, settings=settings, n_rounds=n_rounds, whole=whole
        )
        parts = list(each(tallied))
        whole = reduce(UsageFacts.add, (part.own for part in parts))
        if all(part.charged == whole for part in parts):
            return assemble(parts, candidates, settings, n_rounds, source=source)
    raise InternalError("the parts of a record changed while they were replayed")


def _to_send(candidate: NamedPolicy) -> NamedPolicy:
    """The same without what its policy keeps of earlier calls, which need not travel to a process."""
    policy = candidate.policy
    if policy is None or not is_dataclass(policy):
        return candidate
    return replace(candidate, policy=replace(policy))


def tally(
    measures: Measures,
    candidates: Sequence[NamedPolicy],
    settings: ReplaySettings,
    n_rounds: int,
    whole: UsageFacts | None = None,
) -> Tally:
    """That of the questions of one part; ``n_rounds`` is the full budget of the record.

    ``whole``: what how the record is charged depends on; ``None``: what this part says of it.
    """
    of_samples = any(
        spec.charges for one in candidates if one.policy is not None for spec in one.policy.specs
    )
    own = RecordedUsage(measures.traces).facts(of_samples=of_samples)
    whole = whole or own
    runner = Runner(measures, candidates, settings, n_rounds, whole)
    scored = runner.scored
    if settings.cost is not None:
        runner.book.axis(settings.cost, runner.reads, beside=runner.beside())
    runs = [runner.run(candidate, settings.cost) for candidate in candidates]
    layout = _layout([run.candidate for run in runs], settings, n_rounds)
    fixed = {name: runner.fixed_cost(name) for name in dict.fromkeys((*layout.costs, *COSTS))}
    columns = layout.columns(
        ([run.read.scores[scored.metric.score] for run in runs], runner.fixed_scores()),
        {name: ([run.read.costs[name] for run in runs], fixed[name]) for name in layout.costs},
    )
    units, labelled = measures.units, scored.labelled
    columns = unit_means(columns[labelled], units[labelled])
    return Tally(
        questions=measures.traces.n_questions,
        labelled=int(labelled.sum()),
        units=(len(np.unique(units)), len(columns)),
        metric=measures.metric,
        own=own,
        charged=whole,
        policies=tuple(_of_run(run, runner, measures, n_rounds) for run in runs),
        fixed_costs={
            name: np.full(n_rounds, np.nan) if paid is None else unit_means(paid, units).sum(axis=0)
            for name, paid in fixed.items()
        },
        sums=Sums.of(columns),
    )


def _layout(candidates: Sequence[NamedPolicy], settings: ReplaySettings, n_rounds: int) -> Layout:
    """Costs that may be the axis are among the columns: which one is, all parts together tell."""
    first = USUAL_COSTS if settings.cost is None else (find_cost(settings.cost).name,)
    return Layout(
        candidates=tuple(candidate.name for candidate in candidates),
        n_rounds=n_rounds,
        costs=tuple(dict.fromkeys((*first, *EQUAL_COSTS))),
    )


def _of_run(run: Run, runner: Runner, measures: Measures, n_rounds: int) -> PolicyTally:
    candidate, read, labelled = run.candidate, run.read, runner.scored.labelled
    units = measures.units
    weights = unit_weights(units)
    precision = recall = (0.0, 0.0)
    if candidate.kind != CLOSED_BOOK:
        quality = measures.retrieval()
        precision, recall = (
            (float(np.nansum(weights * shares)), float(weights[np.isfinite(shares)].sum()))
            for shares in (
                at_stop(quality.precision, run.stops),
                at_stop(quality.recall, run.stops),
            )
        )
    return PolicyTally(
        name=candidate.name,
        scores={
            name: float(unit_means(read.scores[name][labelled], units[labelled]).sum())
            for name in SCORES
        },
        costs={
            name: np.nan if paid is None else float(unit_means(paid, units).sum())
            for name, paid in read.costs.items()
        },
        stops=np.bincount(run.stops, weights, n_rounds + 1).astype(np.float64),
        beyond=runner.beyond(run),
        unscored=runner.unscored(run),
        retrieved=(precision, recall),
        chooses=runner.answers[candidate.name].reads is not None,
        confidence=_confidence(run, runner),
        sets=tally_sets(candidate.policy, measures, run.stops)
        if isinstance(candidate.policy, CoveragePolicy)
        else None,
    )


def _confidence(run: Run, runner: Runner) -> ConfidenceTally | None:
    policy = run.candidate.policy
    if policy is None:
        return None
    confidence = stop_confidence(policy, runner.table(policy), run.answers)
    if confidence is None:
        return None
    return ConfidenceTally.of(confidence, at_stop(runner.scored.em, run.answers))


# --- of all parts ------------------------------------------------------------------------------------
def assemble(
    tallies: Iterable[Tally],
    candidates: Sequence[NamedPolicy],
    settings: ReplaySettings,
    n_rounds: int,
    *,
    source: str,
) -> ReplayResult:
    """The result of all parts, whose costs were all charged by the facts of the whole record."""
    total = reduce(Tally.add, tallies)
    metric, choice = total.metric, AnswerChoice.parse(settings.answer)
    axis = _axis(total, settings)
    intervals = PairedIntervals(
        _layout(candidates, settings, n_rounds),
        baseline=settings.baseline,
        axis=axis.name,
        means=total.sums.mean if total.labelled else None,
        draws=lambda: total.sums.draws(resamples=settings.resamples, seed=settings.seed),
    )
    policies = tuple(
        _result(candidate, one, total, intervals, settings)
        for candidate, one in zip(candidates, total.policies, strict=True)
    )
    pairs = list(zip(candidates, total.policies, strict=True))
    unscored = {candidate.label: one.unscored for candidate, one in pairs}
    chooses = {
        candidate.label: one.chooses for candidate, one in pairs if candidate.kind != CLOSED_BOOK
    }
    counts_calls = not np.isnan(total.fixed_costs["llm_calls"]).any()
    return ReplayResult(
        questions=total.questions,
        labelled=total.labelled,
        max_rounds=n_rounds,
        baseline=settings.baseline,
        split=settings.split,
        metric=metric,
        f1_kind=settings.f1_kind,
        seed=settings.seed,
        resamples=settings.resamples,
        source=source,
        policies=policies,
        frontier=intervals.frontier,
        full_costs={
            name: known(paid[-1] / total.units[0]) for name, paid in total.fixed_costs.items()
        },
        question_ids=None,
        banners=settings.banners,
        notes=(
            *settings.notes,
            *unit_notes(total.questions, total.units[0]),
            *unscored_notes(unscored, total.labelled, metric),
            *answer_notes(
                choice, chooses, {candidate.label: candidate.policy for candidate in candidates}
            ),
            *policy_notes(policies, total.questions, metric),
            *cost_notes(
                axis, settings.cost_model, total.charged, counts_calls=lambda: counts_calls
            ),
        ),
        cost=axis,
        cost_model=settings.cost_model,
        answer=settings.answer,
    )


def _axis(total: Tally, settings: ReplaySettings) -> CostAxis:
    if settings.cost is not None:
        cost = find_cost(settings.cost)
        return CostAxis(name=cost.name, label=cost.label, unit=cost.unit)
    known = {
        name: total.fixed_costs[name] / total.units[0]
        for name in USUAL_COSTS
        if not np.isnan(total.fixed_costs[name]).any()
        and not any(np.isnan(one.costs[name]) for one in total.policies)
    }
    return usual_axis(known, settings.cost_model)


def _result(
    candidate: NamedPolicy,
    counted: PolicyTally,
    total: Tally,
    intervals: PairedIntervals,
    settings: ReplaySettings,
) -> PolicyResult:
    name, metric, n_units = candidate.name, total.metric, total.units[0]
    means: dict[ScoreName, float | None] = {
        score: known(of / total.units[1]) if total.labelled else None
        for score, of in counted.scores.items()
    }
    score, full = means[metric.score], intervals.full_budget()
    confidence, precision, recall = counted.confidence, *counted.retrieved
    return PolicyResult(
        name=name,
        kind=candidate.kind,
        preset=candidate.preset,
        hash=candidate.hash,
        em=means["em"],
        f1=means["f1"],
        acc=means["acc"],
        mean_rounds=counted.costs["rounds"] / n_units,
        costs={cost: known(paid / n_units) for cost, paid in counted.costs.items()},
        beyond_record=counted.beyond,
        metric=metric,
        interval=intervals.score(name),
        delta=intervals.delta(name),
        retained=score / full if score is not None and full else None,
        delta_full=intervals.delta_full(name),
        frontier_gain=intervals.gain(name),
        against_fixed=intervals.against_fixed(name) if candidate.adaptive else (),
        p95_rounds=_percentile(counted.stops, 0.95),
        precision=precision[0] / precision[1] if precision[1] else None,
        recall=recall[0] / recall[1] if recall[1] else None,
        policy=candidate.policy,
        auroc=None
        if confidence is None or not metric.gold
        else known(auroc_of_counts(confidence.right, confidence.wrong)),
        sets=None
        if counted.sets is None
        else counted.sets.result(Resampling(settings.resamples, settings.seed)),
        label=candidate.label,
        max_rounds=candidate.max_rounds,
        counted=Counted(
            stops=counts_by_round(np.arange(len(counted.stops)), counted.stops),
            undefined=None if confidence is None else confidence.undefined,
        ),
    )


def _percentile(counts: Array, share: float) -> float:
    """A percentile of rounds, of which so many stop at 0, 1, ..., between two in the usual way."""
    place = share * float(counts.sum() - 1)
    passed = np.cumsum(counts)
    low, high = (int(np.searchsorted(passed, int(at), "right")) for at in (place, np.ceil(place)))
    return low + (high - low) * (place - int(place))
