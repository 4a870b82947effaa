"""Replay policies on recorded rounds: stop rounds, outcomes and costs there, paired intervals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.costs.usage import CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, CostBook, paid_together, policy_reads
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.measures.seen import Seen
from suffice.numbers.intervals.bootstrap import (
    Interval,
    percentile_interval,
    resampled_means,
    with_rare_weights,
)
from suffice.policies.file import policy_hash
from suffice.protocols import CoveragePolicy, StopPolicy
from suffice.replay.diagnose.selective import confidence_auroc, stop_confidence
from suffice.replay.run.answer_choice import AnswerRounds, answer_notes, answer_rounds
from suffice.replay.run.answer_sets import Resampling, answer_sets
from suffice.replay.run.cuts import SCORES, AtStops, CutRecord, Reader, cut_notes, seen_beside
from suffice.replay.run.frontier import (
    EQUAL_COSTS,
    AgainstFixed,
    BestMix,
    Frontier,
    best_mix,
    interpolate,
    of_mix,
)
from suffice.replay.run.named_policies import NamedPolicy, measure_usual_signals
from suffice.replay.run.references import (
    CLOSED_BOOK,
    ORACLES,
    closed_book_costs,
    closed_book_rounds,
    settled,
)
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.scoring import AnswerChoice, F1Kind, Metric, Weights
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
    weights: Weights = "ht"

    def __post_init__(self) -> None:
        if self.resamples < 1 or self.seed < 0:
            raise UsageError(
                f"resamples must be at least 1 and the seed at least 0, found {self.resamples} and "
                f"{self.seed}"
            )


@dataclass(frozen=True, slots=True)
class _Run:
    """One candidate replayed: rounds wanted and taken, (n_questions,) each, and scores and costs there.

    ``answers`` is the round whose answer is returned: the one taken, unless an earlier one is chosen.
    """

    candidate: NamedPolicy
    wanted: NDArray[np.int16]
    stops: NDArray[np.int16]
    answers: NDArray[np.int16]
    read: AtStops


def stop_rounds(policy: StopPolicy, traces: TraceSet | Measures) -> NDArray[np.int16]:
    """The round each question stops at, clamped to its last recorded one, (n_questions,)."""
    return Measures.of(traces).stop_rounds(policy)


def at_stop(values: NDArray[np.float64], stops: NDArray[np.int16]) -> NDArray[np.float64]:
    """``values`` (n_questions, n_rounds) at each question's stop round, (n_questions,)."""
    return values[np.arange(len(stops)), stops - 1]


def replay(
    traces: TraceSet | Measures, candidates: Sequence[NamedPolicy], settings: ReplaySettings
) -> ReplayResult:
    """Score the candidates on every question of ``traces``, by the metric of their measures.

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
    measure_usual_signals(measures, candidates)
    scored = measures.scores(settings.f1_kind)
    choice = AnswerChoice.parse(settings.answer)
    of_fixed = answer_rounds(measures, choice, None)
    answers = {
        candidate.name: answer_rounds(measures, choice, candidate.policy)
        for candidate in candidates
    }
    reads = {
        candidate.name: paid_together(_reads(candidate), answers[candidate.name].reads)
        for candidate in candidates
    }
    returned = of_fixed.returned(scored)
    draws = Resampling(settings.resamples, settings.seed)
    seen = seen_beside(measures, [candidate.policy for candidate in candidates])
    reader = Reader(seen, settings.weights, scored.labelled, draws)
    book = measures.costs(settings.cost_model, of_fixed.reads)
    axis = book.axis(
        settings.cost,
        reads,
        beside=closed_book_rounds(measures).costs(settings.cost_model)
        if any(candidate.kind == CLOSED_BOOK for candidate in candidates)
        else None,
    )
    runs = [
        _closed_book_run(measures, candidate, settings, axis)
        if candidate.kind == CLOSED_BOOK
        else _run(
            measures,
            candidate,
            reader,
            _Choice(scored, returned, answers[candidate.name]),
            _Paid(book, reads[candidate.name]),
        )
        for candidate in candidates
    ]
    intervals = _Intervals(runs, _fixed(returned, book, axis, reader), measures.metric, settings)
    policies = tuple(
        _with_sets(
            _with_retrieval(_with_confidence(result, measures, scored), measures), measures, draws
        )
        for result in (_result(run, scored, intervals, reader.seen) for run in runs)
    )
    cut = CutRecord.of(measures, seen, settings.weights)
    return ReplayResult(
        questions=measures.traces.n_questions,
        labelled=int(scored.labelled.sum()),
        max_rounds=measures.traces.n_rounds,
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
            *cut_notes(cut, {one.label: one.at_stops.past for one in policies}),
            *_unscored_notes(runs, scored),
            *answer_notes(
                choice,
                {
                    candidate.label: answers[candidate.name]
                    for candidate in candidates
                    if candidate.kind != CLOSED_BOOK
                },
            ),
            *_notes(policies, measures.metric),
            *book.notes(axis),
        ),
        cost=axis,
        cost_model=settings.cost_model,
        answer=settings.answer,
        cut=cut,
    )


def _full_costs(book: CostBook, reader: Reader) -> dict[str, float | None]:
    """What the full budget costs a question, as it would be run."""
    full = np.full_like(reader.seen.last, reader.seen.budget)
    return {
        name: None if paid is None else _known(reader.cost(paid, full).mean())
        for name, paid in book.at_stops(CostReads()).items()
    }


def _unscored_notes(runs: Sequence[_Run], scored: Outcomes) -> list[str]:
    unscored = []
    for run in runs:
        unknown = np.isnan(run.read.scores[scored.metric.score]) & scored.labelled
        if run.read.past is not None:
            unknown &= run.read.past.weights > 0
        unscored.append((run.candidate.label, int(unknown.sum())))
    named = [f"{name} ({count})" for name, count in unscored if count]
    if not named:
        return []
    return [
        f"no score is known of {', '.join(named)}: in so many of {int(scored.labelled.sum())} questions "
        f"{scored.metric.scored} it stops at a round {scored.metric.untold}; {scored.metric.remedy}"
    ]


def _notes(policies: Sequence[PolicyResult], metric: Metric) -> list[str]:
    about_sets = [
        f"{policy.label}: {note}"
        for policy in policies
        if policy.sets
        for note in policy.sets.notes
    ]
    sure = [policy.label for policy in policies if policy.confidence is not None]
    untold = [] if metric.gold or not sure else [f"AUROC needs gold answers: {', '.join(sure)}"]
    past = [
        policy.label
        for policy in policies
        if policy.at_stops.past is not None and (policy.adaptive or policy.kind == "oracle")
    ]
    if past:
        said = (
            "AUROC, precision, recall and answer sets are not given where a policy stops past a cut"
        )
        untold.append(f"{said}: {', '.join(past)}")
    return [*_beyond_notes(policies), *_undefined_notes(policies), *untold, *about_sets]


def _undefined_notes(policies: Sequence[PolicyResult]) -> list[str]:
    undefined = [
        (policy.label, int(np.isnan(policy.confidence).sum()), len(policy.confidence))
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
        f"{policy.label}: {policy.beyond_record} questions end before the round it wanted; "
        "their last recorded round was taken"
        for policy in policies
        if policy.beyond_record
    ]


def _reads(candidate: NamedPolicy) -> CostReads:
    """An oracle must have seen the answers that it chooses among."""
    if candidate.policy is None:
        return CostReads(answers=True, until=candidate.max_rounds)
    return policy_reads(candidate.policy, candidate.max_rounds)


@dataclass(frozen=True, slots=True)
class _Choice:
    """What rounds score, what stopping there does for fixed budgets, and whose answer a policy returns."""

    scored: Outcomes
    fixed: Outcomes
    answers: AnswerRounds


@dataclass(frozen=True, slots=True)
class _Paid:
    """The costs, and what of them a policy pays."""

    book: CostBook
    reads: CostReads


def _run(
    measures: Measures, candidate: NamedPolicy, reader: Reader, choice: _Choice, paid: _Paid
) -> _Run:
    last, seen = measures.traces.last_rounds, reader.seen
    if candidate.policy is None:
        name = candidate.name.partition("#")[0]
        ends = np.where(seen.cut | seen.explored, seen.budget, last).astype(np.int16)
        wanted = ORACLES[name](choice.fixed, ends)
        reader = reader.looking_ahead(settled(name, choice.fixed, seen))
    else:
        wanted = measures.wanted_rounds(candidate.policy)
    if candidate.max_rounds is not None:
        most = min(candidate.max_rounds, np.iinfo(np.int16).max)
        wanted = np.minimum(wanted, most).astype(np.int16)
    stops = np.minimum(wanted, last)
    returned = choice.answers.returned(choice.scored)
    read = reader.read(returned, wanted, paid.book, paid.reads)
    return _Run(candidate, wanted, stops, choice.answers.at(stops), read)


def _closed_book_run(
    measures: Measures, candidate: NamedPolicy, settings: ReplaySettings, axis: CostAxis
) -> _Run:
    rounds = closed_book_rounds(measures)
    costs = closed_book_costs(rounds, settings.cost_model, axis)
    at = rounds.traces.last_rounds
    none = np.zeros(measures.traces.n_questions, np.int16)
    scored = rounds.scores(settings.f1_kind)
    read = AtStops(
        scores={name: at_stop(getattr(scored, name), at) for name in SCORES},
        costs={name: None if paid is None else at_stop(paid, at) for name, paid in costs.items()},
    )
    return _Run(candidate, none, none, none, read)


@dataclass(frozen=True, slots=True)
class _Fixed:
    """What fixed-1 .. fixed-R score, (n_questions, n_rounds), and by name what they cost, alike.

    ``seen``: whether nothing of them lies past a cut that nothing stands for; ``past``, (n_rounds,): whether
    some of it is weighted, at most by ``reach``.
    """

    axis: CostAxis
    labelled: NDArray[np.bool_]
    scores: NDArray[np.float64]
    costs: Mapping[str, NDArray[np.float64]]
    seen: bool
    past: NDArray[np.bool_]
    reach: float


def _fixed(returned: Outcomes, book: CostBook, axis: CostAxis, reader: Reader) -> _Fixed:
    """Their scores, and their costs at the axis and at all of :data:`EQUAL_COSTS` that are known."""
    paid = book.at_stops(CostReads())
    seen = reader.seen.of(returned)
    full = np.full_like(seen.last, seen.budget)
    return _Fixed(
        axis=axis,
        labelled=returned.labelled,
        scores=seen.matrix(returned.compared, weights=reader.weights, among=returned.labelled),
        costs={
            name: reader.seen.matrix(of, weights=reader.weights)
            for name in dict.fromkeys((axis.name, *EQUAL_COSTS))
            if (of := paid[name]) is not None
        },
        seen=not seen.lacking(full)[returned.labelled].any(),
        past=np.arange(1, seen.budget + 1)
        > seen.until[seen.weight != 1.0].min(initial=seen.budget),
        reach=seen.reach,
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Means over some drawn questions, a row a draw: scores and, by name, costs of runs and of fixed-k."""

    scores: NDArray[np.float64]
    fixed_scores: NDArray[np.float64]
    costs: Mapping[str, NDArray[np.float64]]
    fixed_costs: Mapping[str, NDArray[np.float64]]


class _Intervals:
    """Paired intervals of all runs from one set of draws over the labelled questions."""

    def __init__(
        self, runs: Sequence[_Run], fixed: _Fixed, metric: Metric, settings: ReplaySettings
    ) -> None:
        self._index = {run.candidate.name: number for number, run in enumerate(runs)}
        self._baseline = self._index[settings.baseline]
        self._axis = fixed.axis.name
        self._against = fixed.seen
        self.frontier: Frontier | None = None
        if not fixed.labelled.any():
            return
        parts = [np.stack([run.read.scores[metric.score] for run in runs], axis=1), fixed.scores]
        for name, of_fixed in fixed.costs.items():
            paid = [run.read.costs[name] for run in runs]
            unknown = np.full(len(of_fixed), np.nan)
            parts.append(np.stack([unknown if own is None else own for own in paid], axis=1))
            parts.append(of_fixed)
        self._ends = np.cumsum([part.shape[1] for part in parts])[:-1]
        self._costs = tuple(fixed.costs)
        # an unknown value leaves its column unknown, also in draws without its question
        values = np.hstack(parts)[fixed.labelled]
        self._means = self._parts(values.mean(axis=0)[None, :])
        if np.isnan(self._means.fixed_scores).all():
            return
        draws = resampled_means(values, resamples=settings.resamples, seed=settings.seed)
        past = [
            one is not None and (one.weights != 1.0).any() for one in (r.read.past for r in runs)
        ]
        scores = slice(0, len(runs) + len(fixed.past))
        draws[:, scores] = with_rare_weights(
            draws[:, scores],
            values[:, scores],
            np.array([*past, *fixed.past]) * fixed.reach,
            centred=settings.weights != "ht",
            seed=settings.seed,
        )
        self._draws = self._parts(draws)
        self.frontier = Frontier(
            cost_name=self._axis,
            costs=tuple(map(_known, self._means.fixed_costs[self._axis][0].tolist())),
            scores=tuple(map(_known, self._means.fixed_scores[0].tolist())),
        )

    def _parts(self, rows: NDArray[np.float64]) -> _Drawn:
        scores, fixed_scores, *costs = np.split(rows, self._ends, axis=1)
        return _Drawn(
            scores,
            fixed_scores,
            dict(zip(self._costs, costs[::2], strict=True)),
            dict(zip(self._costs, costs[1::2], strict=True)),
        )

    def score(self, name: str) -> Interval | None:
        return self._interval(lambda drawn: drawn.scores[:, self._index[name]])

    def delta(self, name: str) -> Interval | None:
        return self._interval(
            lambda drawn: drawn.scores[:, self._index[name]] - drawn.scores[:, self._baseline]
        )

    def delta_full(self, name: str) -> Interval | None:
        """The score minus that of the full budget."""
        return self._interval(
            lambda drawn: drawn.scores[:, self._index[name]] - drawn.fixed_scores[:, -1]
        )

    def gain(self, name: str) -> Interval | None:
        """The score over the fixed-k frontier at the policy's own cost."""
        if not self._against:
            return None

        def gain(drawn: _Drawn) -> NDArray[np.float64]:
            paid = drawn.costs[self._axis][:, self._index[name]]
            frontier = interpolate(drawn.fixed_costs[self._axis], drawn.fixed_scores, paid)
            return np.asarray(drawn.scores[:, self._index[name]] - frontier)

        return self._interval(gain)

    def against_fixed(self, name: str) -> tuple[AgainstFixed, ...]:
        """The score over the best that fixed-k reach for its cost, at each of :data:`EQUAL_COSTS` known."""
        if self.frontier is None or not self._against:
            return ()
        number = self._index[name]
        compared = []
        for cost in EQUAL_COSTS:
            if cost not in self._costs or np.isnan(self._means.costs[cost][0, number]):
                continue
            if np.isnan(self._means.scores[0, number]):
                continue

            def best(drawn: _Drawn, cost: str = cost) -> BestMix:
                return best_mix(
                    drawn.fixed_costs[cost], drawn.fixed_scores, drawn.costs[cost][:, number]
                )

            means = best(self._means)
            own, drawn = self._draws.scores[:, number], self._draws
            gain = float(self._means.scores[0, number] - means.score[0])
            named = of_mix(
                drawn.fixed_costs[cost], drawn.fixed_scores, drawn.costs[cost][:, number], means
            )
            compared.append(
                AgainstFixed(
                    cost=cost,
                    fixed=means.names[0],
                    gain=percentile_interval(gain, own - best(drawn).score),
                    held=percentile_interval(gain, own - named),
                )
            )
        return tuple(compared)

    def full_budget(self) -> float | None:
        return None if self.frontier is None else self.frontier.scores[-1]

    def _interval(self, of: Callable[[_Drawn], NDArray[np.float64]]) -> Interval | None:
        if self.frontier is None:
            return None
        estimate = float(of(self._means)[0])
        return None if np.isnan(estimate) else percentile_interval(estimate, of(self._draws))


def _result(run: _Run, scored: Outcomes, intervals: _Intervals, seen: Seen) -> PolicyResult:
    candidate, name, read = run.candidate, run.candidate.name, run.read
    means = {one: _mean_score(values, scored.labelled) for one, values in read.scores.items()}
    score = means[scored.metric.score]
    full = intervals.full_budget()
    rounds = read.costs["rounds"]
    return PolicyResult(
        name=name,
        kind=candidate.kind,
        preset=candidate.preset,
        hash=_hash(candidate),
        em=means["em"],
        f1=means["f1"],
        acc=means["acc"],
        mean_rounds=np.nan if rounds is None else float(rounds.mean()),
        costs={
            name: None if paid is None else _known(paid.mean()) for name, paid in read.costs.items()
        },
        stops=run.stops,
        answers=run.answers,
        beyond_record=int(((run.wanted > seen.last) & ~seen.cut).sum()),
        metric=scored.metric,
        interval=intervals.score(name),
        delta=intervals.delta(name),
        retained=score / full if score is not None and full else None,
        delta_full=intervals.delta_full(name),
        frontier_gain=intervals.gain(name),
        against_fixed=intervals.against_fixed(name) if run.candidate.adaptive else (),
        p95_rounds=_p95(run),
        policy=candidate.policy,
        label=candidate.label,
        at_stops=read,
    )


def _known(mean: float) -> float | None:
    return None if np.isnan(mean) else float(mean)


def _p95(run: _Run) -> float:
    """The 95th percentile of stop rounds; of weighted ones the first that so much weight stops by."""
    past = run.read.past
    if past is None:
        return float(np.percentile(run.stops, 95))
    if past.unseen:
        return np.nan
    order = np.argsort(run.stops, kind="stable")
    passed = np.cumsum(past.weights[order])
    return float(run.stops[order][np.searchsorted(passed, 0.95 * passed[-1])])


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
    precision, recall = measures.retrieval().at(result.stops)
    return replace(result, precision=precision, recall=recall)


def _with_sets(result: PolicyResult, measures: Measures, draws: Resampling) -> PolicyResult:
    policy = result.policy
    if not isinstance(policy, CoveragePolicy) or result.at_stops.past is not None:
        return result
    return replace(result, sets=answer_sets(policy, measures, result.stops, draws))


def _mean_score(values: NDArray[np.float64], labelled: NDArray[np.bool_]) -> float | None:
    """``None`` where nothing is labelled, or some question that is has no score there."""
    return _known(values[labelled].mean()) if labelled.any() else None


def _hash(candidate: NamedPolicy) -> str:
    if candidate.policy is not None:
        return policy_hash(candidate.policy)
    return hashlib.sha256(f"{candidate.kind}:{candidate.name}:{VERSION}".encode()).hexdigest()[:12]
