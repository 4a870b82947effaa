"""Replay policies on recorded rounds: stop rounds, outcomes and costs there, paired intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, CostBook
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.fields import known
from suffice.numbers.intervals.bootstrap import resampled_means, with_rare_weights
from suffice.numbers.intervals.sums import SUMS_ABOVE, from_sums
from suffice.numbers.units import unit_means, unit_weights
from suffice.protocols import CoveragePolicy, StopPolicy
from suffice.replay.diagnose.selective import confidence_auroc, stop_confidence
from suffice.replay.run.answer_choice import answer_notes
from suffice.replay.run.answer_sets import Resampling, answer_sets
from suffice.replay.run.cuts import CutRecord, PastCuts, Reader, cut_notes
from suffice.replay.run.frontier import EQUAL_COSTS
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.run.paired import Layout, PairedIntervals
from suffice.replay.run.references import CLOSED_BOOK
from suffice.replay.run.results import (
    PolicyResult,
    ReplayResult,
    Taken,
    policy_notes,
    unscored_notes,
)
from suffice.replay.run.runs import Run, Runner, at_stop
from suffice.replay.run.tally import Tally, replay_parts
from suffice.scoring import F1Kind, Weights
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a replay is scored.

    ``baseline`` names the candidate that differences are taken against; ``split`` is stated in the
    results, ``notes`` and ``banners`` are carried there. ``cost`` is what policies are compared at, a name of
    :data:`suffice.costs.usage.COSTS` (``None``: the first of :data:`suffice.costs.usage.USUAL_COSTS`
    that tells fixed budgets apart); ``cost_model`` prices usage. ``answer`` says which of the answers up to
    the stop is scored, see :class:`suffice.scoring.AnswerChoice`; ``weights`` how explored questions stand
    for cut ones.
    """

    baseline: str
    split: str | None = None
    f1_kind: F1Kind = "hotpotqa"
    resamples: int = 1000
    seed: int = 42
    notes: tuple[str, ...] = ()
    banners: tuple[str, ...] = ()
    cost: str | None = None
    cost_model: CostModel = field(default_factory=CostModel)
    answer: str = "latest"
    weights: Weights = "augmented"

    def __post_init__(self) -> None:
        if self.resamples < 1 or self.seed < 0:
            raise UsageError(
                f"resamples must be at least 1 and the seed at least 0, found {self.resamples} and "
                f"{self.seed}"
            )


def stop_rounds(policy: StopPolicy, traces: TraceSet | Measures) -> NDArray[np.int16]:
    """The round each question stops at, clamped to its last recorded one, (n_questions,)."""
    return Measures.of(traces).stop_rounds(policy)


def replay(
    traces: TraceSet | Measures, candidates: Sequence[NamedPolicy], settings: ReplaySettings
) -> ReplayResult:
    """Score the candidates on every question of ``traces``, by the metric of their measures.

    A candidate that wants a round past a question's last recorded one takes that last one; how often
    is counted in ``beyond_record``.
    """
    names = [candidate.name for candidate in candidates]
    if settings.baseline not in names:
        raise UsageError(f"baseline {settings.baseline!r} is not among {', '.join(names)}")
    measures = Measures.of(traces)
    if from_sums(measures.traces.n_questions) and measures.seen is None:
        return _in_parts(measures, candidates, settings)
    n_rounds = measures.traces.n_rounds
    runner = Runner(measures, candidates, settings, n_rounds)
    scored, reader, book = runner.scored, runner.reader, runner.book
    axis = book.axis(settings.cost, runner.reads, beside=runner.beside())
    runs = [runner.run(candidate, axis.name) for candidate in candidates]
    intervals = _intervals(runner, runs, axis, settings)
    policies = tuple(
        _with_sets(
            _with_retrieval(_with_confidence(result, measures, scored), measures),
            measures,
            runner.draws,
        )
        for result in (_result(run, runner, intervals) for run in runs)
    )
    cut = CutRecord.of(measures, reader.seen, settings.weights)
    unscored = {run.candidate.label: runner.unscored(run) for run in runs}
    labelled = int(scored.labelled.sum())
    return ReplayResult(
        questions=measures.traces.n_questions,
        labelled=labelled,
        max_rounds=n_rounds,
        baseline=settings.baseline,
        split=settings.split,
        metric=measures.metric,
        f1_kind=settings.f1_kind,
        seed=settings.seed,
        resamples=settings.resamples,
        source=measures.traces.origin.source,
        policies=policies,
        frontier=intervals.frontier,
        full_costs=_full_costs(book, reader),
        question_ids=measures.traces.question_ids,
        banners=settings.banners,
        notes=(
            *settings.notes,
            *measures.unit_notes,
            *cut_notes(cut, {one.label: one.at_stops.past for one in policies}),
            *unscored_notes(unscored, labelled, measures.metric),
            *answer_notes(
                runner.choice,
                {
                    candidate.label: runner.answers[candidate.name].reads is not None
                    for candidate in candidates
                    if candidate.kind != CLOSED_BOOK
                },
                {candidate.label: candidate.policy for candidate in candidates},
            ),
            *policy_notes(policies, measures.traces.n_questions, measures.metric),
            *book.notes(axis),
        ),
        cost=axis,
        cost_model=settings.cost_model,
        answer=settings.answer,
        cut=cut,
    )


def again(result: ReplayResult, measures: Measures) -> ReplayResult:
    """The policies of a replay on some of its questions, of which it kept none."""
    candidates = [
        NamedPolicy(
            name=policy.name,
            kind=policy.kind,
            preset=policy.preset,
            policy=policy.policy,
            max_rounds=policy.max_rounds,
            label=policy.label,
        )
        for policy in result.policies
    ]
    settings = ReplaySettings(
        baseline=result.baseline,
        split=result.split,
        f1_kind=result.f1_kind,
        resamples=1,
        seed=result.seed,
        cost=result.cost.name,
        cost_model=result.cost_model,
        answer=result.answer,
    )
    return replay(measures, candidates, settings)


def _in_parts(
    measures: Measures, candidates: Sequence[NamedPolicy], settings: ReplaySettings
) -> ReplayResult:
    """The replay of a record too large to keep every question's figures: of one part after another."""
    units, n_rounds = measures.units, measures.traces.n_rounds
    # a unit lies in one part: in shards, which are read in turn, those of one question each
    alone = unit_weights(units) == 1.0

    def each(tallied: Callable[[Measures], Tally]) -> Iterator[Tally]:
        rest = np.ones(len(units), bool)
        if measures.in_shards:
            yield from measures.of_shards(tallied, alone)
            rest = ~alone
        sizes = np.bincount(units[rest], minlength=int(units.max()) + 1)
        block = ((np.cumsum(sizes) - sizes) // SUMS_ABOVE)[units]
        for number in np.unique(block[rest]):
            yield tallied(measures.take(rest & (block == number)))

    return replay_parts(each, candidates, settings, n_rounds, source=measures.traces.origin.source)


def _intervals(
    runner: Runner, runs: Sequence[Run], axis: CostAxis, settings: ReplaySettings
) -> PairedIntervals:
    """From the questions themselves; past cuts as wide as what a few of great weight leave open."""
    fixed = {name: runner.fixed_cost(name) for name in dict.fromkeys((axis.name, *EQUAL_COSTS))}
    layout = Layout(
        candidates=tuple(run.candidate.name for run in runs),
        n_rounds=runner.seen.budget,
        costs=tuple(name for name, paid in fixed.items() if paid is not None),
    )
    seen, labelled = runner.seen.of(runner.returned), runner.returned.labelled
    of_fixed = runner.fixed_scores()
    values = layout.columns(
        ([run.read.scores[runner.scored.metric.score] for run in runs], of_fixed),
        {name: ([run.read.costs[name] for run in runs], fixed[name]) for name in layout.costs},
    )[labelled]
    values = unit_means(values, runner.reader.units[labelled])

    def draws() -> NDArray[np.float64]:
        drawn = resampled_means(values, resamples=settings.resamples, seed=settings.seed)
        past = [
            one is not None and (one.weights != 1.0).any() for one in (r.read.past for r in runs)
        ]
        weighted = np.arange(1, seen.budget + 1) > seen.until[seen.weight != 1.0].min(
            initial=seen.budget
        )
        largest = np.array([*past, *weighted]) * seen.reach
        if not largest.any():
            return drawn
        scores, others = np.split(drawn, [layout.scores.stop], axis=1)
        wider = with_rare_weights(
            scores,
            values[:, layout.scores],
            largest,
            centred=settings.weights != "ht",
            seed=settings.seed,
        )
        return np.hstack([wider, others])

    rounds = np.arange(1, of_fixed.shape[1] + 1)
    past = (rounds > np.minimum(seen.until, seen.last)[:, None]) & (seen.cut & labelled)[:, None]
    return PairedIntervals(
        layout,
        baseline=settings.baseline,
        axis=axis.name,
        means=values.mean(axis=0) if labelled.any() else None,
        draws=draws,
        against=not np.isnan(of_fixed[past]).any(),
    )


def _full_costs(book: CostBook, reader: Reader) -> dict[str, float | None]:
    """What the full budget costs a question, as it would be run."""
    full = np.full_like(reader.seen.last, reader.seen.budget)
    paid, floors = book.at_stops(CostReads()), book.at_least(CostReads())
    return {
        name: None if of is None else known(reader.mean(reader.cost(name, of, full, floors)[0]))
        for name, of in paid.items()
    }


def _result(run: Run, runner: Runner, intervals: PairedIntervals) -> PolicyResult:
    candidate, name, read = run.candidate, run.candidate.name, run.read
    scored = runner.scored
    labelled = scored.labelled
    mean = runner.reader.mean
    means = {one: known(mean(values, labelled)) for one, values in read.scores.items()}
    score = means[scored.metric.score]
    full = intervals.full_budget()
    rounds = read.costs["rounds"]
    weights = unit_weights(runner.reader.units)
    weights = weights if read.past is None else weights * read.past.weights
    taken = Taken(stops=run.stops, answers=run.answers, weights=weights)
    return PolicyResult(
        name=name,
        kind=candidate.kind,
        preset=candidate.preset,
        hash=candidate.hash,
        em=means["em"],
        f1=means["f1"],
        acc=means["acc"],
        mean_rounds=np.nan if rounds is None else mean(rounds),
        costs={
            name: None if paid is None else known(mean(paid)) for name, paid in read.costs.items()
        },
        taken=taken,
        beyond_record=runner.beyond(run),
        metric=scored.metric,
        interval=intervals.score(name),
        delta=intervals.delta(name),
        retained=score / full if score is not None and full else None,
        delta_full=intervals.delta_full(name),
        frontier_gain=intervals.gain(name),
        against_fixed=intervals.against_fixed(name) if run.candidate.adaptive else (),
        p95_rounds=_p95(taken, read.past),
        policy=candidate.policy,
        label=candidate.label,
        max_rounds=candidate.max_rounds,
        at_stops=read,
    )


def _p95(taken: Taken, past: PastCuts | None) -> float:
    """The 95th percentile of stop rounds; of weighted ones the first that so much weight stops by."""
    if past is None and (taken.weights == 1.0).all():
        return float(np.percentile(taken.stops, 95))
    if past is not None and past.unseen:
        return np.nan
    order = np.argsort(taken.stops, kind="stable")
    passed = np.cumsum(taken.weights[order])
    return float(taken.stops[order][np.searchsorted(passed, 0.95 * passed[-1])])


def _with_confidence(result: PolicyResult, measures: Measures, scored: Outcomes) -> PolicyResult:
    if result.policy is None:
        return result
    table = measures.signals(result.policy.specs)
    confidence = stop_confidence(result.policy, table, result.answers)
    if confidence is None:
        return result
    past = result.at_stops.past
    if past is not None:
        return replace(result, confidence=np.where(past.weights > 0, confidence, np.nan))
    area = None
    if scored.metric.gold:
        area = confidence_auroc(confidence, at_stop(scored.em, result.answers))
    return replace(result, confidence=confidence, auroc=area)


def _with_retrieval(result: PolicyResult, measures: Measures) -> PolicyResult:
    if result.kind == CLOSED_BOOK or result.at_stops.past is not None:
        return result
    precision, recall = measures.retrieval().at(result.stops, unit_weights(measures.units))
    return replace(result, precision=precision, recall=recall)


def _with_sets(result: PolicyResult, measures: Measures, draws: Resampling) -> PolicyResult:
    policy = result.policy
    if not isinstance(policy, CoveragePolicy) or result.at_stops.past is not None:
        return result
    return replace(result, sets=answer_sets(policy, measures, result.stops, draws))
