"""Replay policies on recorded rounds: stop rounds, outcomes and costs there, paired intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import ConfidentPolicy, CoveragePolicy, StopPolicy
from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.evaluation.replay.answers import (
    SCORES,
    AnswerRounds,
    AtStops,
    CutRecord,
    PastCuts,
    Reader,
    Resampling,
    answer_notes,
    answer_rounds,
    answer_sets,
    cut_notes,
)
from suffice.evaluation.replay.frontier import EQUAL_COSTS, PairedIntervals
from suffice.evaluation.replay.named_policies import (
    CLOSED_BOOK,
    ORACLES,
    NamedPolicy,
    closed_book_rounds,
    measure_together,
)
from suffice.evaluation.replay.results import (
    PolicyResult,
    ReplayResult,
    policy_notes,
    unscored_notes,
)
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.costs import CostAxis, CostBook, paid_together, policy_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import Seen, record_banners
from suffice.policies.rules.policy import coin_sides
from suffice.scoring import AnswerChoice
from suffice.stats.auroc import auroc
from suffice.stats.fields import known
from suffice.stats.intervals import Sums, from_sums, resampled_means, with_rare_weights
from suffice.stats.units import Array, equally_many, per_unit
from suffice.trace.rounds.trace_set import TraceSet


@dataclass(frozen=True, slots=True)
class Run:
    """A replayed candidate: rounds wanted and taken, (n_questions,) each, with scores and costs there."""

    candidate: NamedPolicy
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    answers: NDArray[np.int16]
    read: AtStops


def at_stop(values: Array, stops: NDArray[np.int16]) -> Array:
    """``values`` (n_questions, n_rounds) at each question's stop round, (n_questions,)."""
    return values[np.arange(len(stops)), stops - 1]


class Runner:
    def __init__(
        self, measures: Measures, candidates: Sequence[NamedPolicy], settings: ComparisonSettings
    ) -> None:
        self.measures = measures
        self._settings = settings
        self.candidates = candidates
        measure_together(measures, candidates, settings.f1_kind)
        self.scored: Outcomes = measures.scores(settings.f1_kind)
        self.choice: AnswerChoice = AnswerChoice.parse(settings.answer)
        of_fixed = answer_rounds(measures, self.choice, None)
        self.answers: Mapping[str, AnswerRounds] = {
            candidate.name: answer_rounds(measures, self.choice, candidate.policy)
            for candidate in candidates
        }
        self.reads: Mapping[str, CostReads] = {
            candidate.name: paid_together(
                self._reads(candidate), self.answers[candidate.name].reads
            )
            for candidate in candidates
        }
        self.returned: Outcomes = of_fixed.returned(self.scored)
        """What stopping after each round scores for fixed budgets."""
        self.draws: Resampling = Resampling(settings.resamples, settings.seed)
        self.seen: Seen = measures.seen or Seen.whole(measures.traces)
        labelled, units = self.scored.labelled, measures.units
        self.reader: Reader = Reader(self.seen, labelled, units, self.draws)
        self.book: CostBook = measures.costs(settings.cost_model, of_fixed.reads)

    def beside(self) -> CostBook | None:
        """Return the costs of the closed book, if it is a candidate."""
        if all(candidate.kind != CLOSED_BOOK for candidate in self.candidates):
            return None
        return closed_book_rounds(self.measures).costs(self._settings.cost_model)

    def run(self, candidate: NamedPolicy) -> Run:
        if candidate.kind == CLOSED_BOOK:
            return self._closed_book(candidate)
        last = self.measures.traces.last_rounds
        wanted = self._wanted(candidate.policy, candidate)
        stops, answers = np.minimum(wanted, last), self.answers[candidate.name]
        returned, reads = answers.returned(self.scored), self.reads[candidate.name]
        read = self.reader.read(returned, wanted, self.book, reads)
        # the mean over its coin says what a rule does on other questions; how it fell here does not
        sides = [
            (chance, self.reader.read(returned, self._wanted(side, candidate), self.book, reads))
            for chance, side in coin_sides(candidate.policy)
        ]
        return Run(candidate, wanted, stops, answers.at(stops), read.averaged(sides))

    def _wanted(self, policy: StopPolicy | None, candidate: NamedPolicy) -> NDArray[np.int16]:
        if policy is None:
            last = self.measures.traces.last_rounds
            wanted = ORACLES[candidate.name.partition("#")[0]](self.returned, last)
        else:
            wanted = self.measures.wanted_rounds(policy)
        most = min(candidate.max_rounds or np.inf, np.iinfo(np.int16).max)
        return np.minimum(wanted, most).astype(np.int16)

    def _closed_book(self, candidate: NamedPolicy) -> Run:
        rounds = closed_book_rounds(self.measures)
        at = rounds.traces.last_rounds
        paid = rounds.costs(self._settings.cost_model).at_stops(CostReads())
        costs = {**paid, "rounds": np.zeros((len(at), 1))}  # it is no round of retrieval
        none = np.zeros(self.measures.traces.n_questions, np.int16)
        scored = rounds.scores(self._settings.f1_kind)
        read = AtStops(
            scores={name: at_stop(getattr(scored, name), at) for name in SCORES},
            costs={
                name: None if paid is None else at_stop(paid, at) for name, paid in costs.items()
            },
        )
        return Run(candidate, none, none, none, read)

    def _reads(self, candidate: NamedPolicy) -> CostReads:
        """What a candidate pays for; an oracle must have seen the answers that it chooses among."""
        n_rounds = self.measures.traces.n_rounds
        budget = min(candidate.max_rounds or n_rounds, n_rounds)
        if candidate.policy is None:
            return CostReads(answers=True, until=budget)
        return policy_reads(candidate.policy, budget)

    def recorded(self, run: Run) -> AtStops:
        """Return the scores and costs of single questions at a run's stops; NaN past a cut."""
        if run.candidate.kind == CLOSED_BOOK:
            return run.read
        returned = self.answers[run.candidate.name].returned(self.scored)
        paid = self.book.at_stops(self.reads[run.candidate.name]).items()
        at = partial(Seen.bounds, stops=run.wanted, unseen=np.nan)
        scores = {one: at(self.seen.of(returned), getattr(returned, one)) for one in SCORES}
        return AtStops(scores, {one: None if of is None else at(self.seen, of) for one, of in paid})

    def weights(self, *runs: Run) -> Array:
        """Return how many questions each stands for at the latest stop of runs, (n_questions,); NaN: none."""
        seen = self.seen.of(self.scored)
        stops = seen.stops(np.maximum.reduce([run.wanted for run in runs]))
        return np.where(seen.lacking(stops), np.nan, seen.weights(stops))

    def reach(self, run: Run) -> float:
        """Return the greatest weight of a question in a run's scores; 0: none represents others."""
        past = run.read.past
        return self.seen.reach if past is not None and (past.weights != 1.0).any() else 0.0

    def equally_many(self, weighted: object) -> float:
        """Return how many questions of equal weight say as much of a score as the labeled ones."""
        seen, some = self.seen.of(self.returned), self.returned.labelled
        return equally_many(self.reader.units[some], seen.weight[some] if weighted else None)

    def unscored(self, run: Run) -> int:
        unknown = np.isnan(run.read.scores[self.scored.metric.score]) & self.scored.labelled
        if run.read.past is not None:
            unknown &= run.read.past.weights > 0
        return int(unknown.sum())

    def fixed_scores(self) -> Array:
        """Return the scores of fixed-1 .. fixed-R, (n_questions, n_rounds), NaN where unknown."""
        returned, name = self.returned, self.returned.metric.score
        return self._fixed(returned.compared, lambda at: self.reader.score(returned, name, at)[0])

    def fixed_cost(self, name: str) -> Array | None:
        """Return a cost of fixed-1 .. fixed-R, (n_questions, n_rounds); ``None``: unknown."""
        paid, floors = self.book.at_stops(CostReads())[name], self.book.at_least(CostReads())
        if paid is None:
            return None
        return self._fixed(paid, lambda at: self.reader.cost(name, paid, at, floors)[0])

    def _fixed(self, values: Array, at: Callable[[NDArray[np.int16]], Array]) -> Array:
        seen = self.seen
        if not seen.cut.any():
            return seen.matrix(values)
        every = np.arange(1, values.shape[1] + 1, dtype=np.int16)
        return np.column_stack([at(np.full_like(seen.last, k)) for k in every])


def stop_rounds(policy: StopPolicy, traces: TraceSet | Measures) -> NDArray[np.int16]:
    """Return each question's stop round, at most its last recorded one, (n_questions,)."""
    return Measures.of(traces).stop_rounds(policy)


def replay(
    traces: TraceSet | Measures,
    candidates: Sequence[NamedPolicy],
    settings: ComparisonSettings,
    notes: Sequence[str] = (),
) -> ReplayResult:
    names = [candidate.name for candidate in candidates]
    if settings.baseline is None or settings.baseline not in names:
        raise UsageError(f"baseline {settings.baseline!r} is not among {', '.join(names)}")
    measures = Measures.of(traces)
    n_rounds = measures.traces.n_rounds
    runner = Runner(measures, candidates, settings)
    scored, reader, book = runner.scored, runner.reader, runner.book
    axis = book.axis(settings.cost, runner.reads, beside=runner.beside())
    runs = [runner.run(candidate) for candidate in candidates]
    intervals = _intervals(runner, runs, axis, settings)
    policies = tuple(_result(run, runner, intervals) for run in runs)
    cut = CutRecord.of(measures, reader.seen)
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
        banners=record_banners(measures.traces, measures.metric),
        notes=(
            *notes,
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


def _intervals(
    runner: Runner, runs: Sequence[Run], axis: CostAxis, settings: ComparisonSettings
) -> PairedIntervals:
    """From the questions themselves; past cuts as wide as what a few of great weight leave open."""
    fixed = {
        name: paid
        for name in dict.fromkeys((axis.name, *EQUAL_COSTS))
        if (paid := runner.fixed_cost(name)) is not None
    }
    names = [run.candidate.name for run in runs]
    compared = partial(
        PairedIntervals, names, list(fixed), baseline=str(settings.baseline), axis=axis.name
    )
    n_scores = len(runs) + runner.seen.budget
    seen, labelled = runner.seen.of(runner.returned), runner.returned.labelled
    of_fixed, score = runner.fixed_scores(), runner.scored.metric.score
    chosen = np.flatnonzero(labelled)

    def columns(some: slice) -> Array:
        rows = chosen[some]
        parts = [np.stack([run.read.scores[score][rows] for run in runs], axis=1), of_fixed[rows]]
        # an unknown value leaves its column unknown, also in draws without its question
        unknown = np.full(len(rows), np.nan)
        for name in fixed:
            paid = [run.read.costs[name] for run in runs]
            own = [unknown if of is None else of[rows] for of in paid]
            parts += [np.stack(own, axis=1), fixed[name][rows]]
        return np.hstack(parts)

    units = runner.reader.units[labelled]
    if from_sums(len(chosen)) and not seen.cut.any() and len(np.unique(units)) == len(units):
        sums = Sums.by_blocks(len(chosen), n_scores * (1 + len(fixed)), columns)
        drawn = partial(sums.draws, resamples=settings.resamples, seed=settings.seed)
        return compared(means=sums.mean, draws=drawn)
    values = per_unit(columns(slice(None)), units)
    weighted = np.arange(1, seen.budget + 1) > seen.until[seen.weight != 1.0].min(
        initial=seen.budget
    )
    largest = np.array([*map(runner.reach, runs), *(weighted * seen.reach)])
    equal = np.array([runner.equally_many(one > 0.0) for one in largest])

    def draws() -> Array:
        drawn = resampled_means(values, resamples=settings.resamples, seed=settings.seed)
        if not largest.any():
            return drawn
        scores, others = np.split(drawn, [n_scores], axis=1)
        wider = with_rare_weights(scores, values[:, :n_scores], largest, seed=settings.seed)
        return np.hstack([wider, others])

    rounds = np.arange(1, of_fixed.shape[1] + 1)
    published = settings.cost_model.charge == "published"  # as the papers have them
    cut = (rounds > np.minimum(seen.until, seen.last)[:, None]) & (seen.cut & labelled)[:, None]
    return compared(
        means=values.mean(axis=0) if labelled.any() else None,
        draws=draws,
        units=None if published else (values[:, :n_scores], equal),
        against=not np.isnan(of_fixed[cut]).any(),
    )


def _full_costs(book: CostBook, reader: Reader) -> dict[str, float | None]:
    full = np.full_like(reader.seen.last, reader.seen.budget)
    paid, floors = book.at_stops(CostReads()), book.at_least(CostReads())
    return {
        name: None if of is None else known(reader.mean(reader.cost(name, of, full, floors)[0]))
        for name, of in paid.items()
    }


def _result(run: Run, runner: Runner, intervals: PairedIntervals) -> PolicyResult:
    """With its confidence, what it retrieved and its answer sets, where its stops were seen."""
    candidate, name, read = run.candidate, run.candidate.name, run.read
    scored = runner.scored
    labelled = scored.labelled
    mean = runner.reader.mean
    means = {one: known(mean(values, labelled)) for one, values in read.scores.items()}
    score = means[scored.metric.score]
    full = None if intervals.frontier is None else intervals.frontier.scores[-1]
    rounds = read.costs["rounds"]
    weights, past = runner.weights(run), read.past
    measures, policy = runner.measures, candidate.policy
    more: dict[str, Any] = {}
    confidence = None
    if isinstance(policy, ConfidentPolicy):
        values = policy.confidence(measures.signals(policy.specs))
        confidence = None if values is None else at_stop(values, run.answers)
    if past is not None and confidence is not None:
        confidence = np.where(past.weights > 0, confidence, np.nan)
    if past is None and confidence is not None and scored.metric.gold:
        em = at_stop(scored.em, run.answers)
        usable = ~np.isnan(confidence) & ~np.isnan(em)
        more["auroc"] = known(auroc(confidence[usable], em[usable] == 1.0))
    if past is None and candidate.kind != CLOSED_BOOK:
        retrieval = measures.retrieval().at(run.stops)
        more["precision"], more["recall"] = retrieval
    if past is None and isinstance(policy, CoveragePolicy):
        more["sets"] = answer_sets(policy, measures, run.stops, runner.draws)
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
        stops=run.stops,
        answers=run.answers,
        weights=weights,
        beyond_record=int(((run.wanted > runner.seen.last) & ~runner.seen.cut).sum()),
        metric=scored.metric,
        retained=score / full if score is not None and full else None,
        **intervals.of(name, adaptive=candidate.adaptive),
        p95_rounds=_p95(run.stops, weights, past),
        policy=policy,
        confidence=confidence,
        **more,
        label=candidate.label,
        max_rounds=candidate.max_rounds,
        at_stops=read,
    )


def _p95(stops: NDArray[np.int16], weights: Array, past: PastCuts | None) -> float:
    """The 95th percentile of stop rounds; of weighted ones the first that so much weight stops by."""
    if past is None and (weights == 1.0).all():
        return float(np.percentile(stops, 95))
    if past is not None and past.unseen:
        return np.nan
    order = np.argsort(stops, kind="stable")
    passed = np.cumsum(weights[order])
    return float(stops[order][np.searchsorted(passed, 0.95 * passed[-1])])
