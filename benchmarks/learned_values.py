"""Does any learned combination of a record's signals beat its best rule at equal cost, on unseen questions?

``python -m benchmarks.learned_values [--cost COST] [--keep FOLDER] [--permuted] RECORD ...`` prints the
tables of docs/results/learned.md; question types of 200 or more are rows of their own, too. Needs the extra
``learn`` and scikit-learn. What ``--keep`` holds of a record already is not computed again. Costs are
those named where a record knows them, else what replay takes by default; of a cut record rounds.

Every question is scored by candidates fitted and chosen on other questions (five folds), under three
divisions into folds, of whose scores and costs the mean counts. Within the
questions fitted on, four inner folds choose what there is to choose. At three caps of the mean cost,
spread between what fixed-1 costs and what reading every answer to the full budget costs, each candidate takes
the member (``mixed``: or mix of two by a coin) with the best score for the cap: ``rule`` an OR or AND of
one or two conditions of certified choice's family, to which ``round`` and every signal alone over search's
grid, in both directions, are added; the others a threshold on values
learned from the signals (``network``: Stop-RAG's, on its own validation part). Held out, a
candidate's gain is its score over the best mix of fixed budgets at
its own mean cost, as run, averaged over the caps; intervals resample questions, all candidates alike.

``--permuted``: what a candidate is fitted to and chosen by is dealt anew among the questions fitted on, so
that nothing is left to learn but what every question shares; a gain that stays is no signal's.
"""

from __future__ import annotations

import argparse
import pickle
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from suffice.costs.usage import COSTS, CostModel, CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, cost_reads, fixed_stops
from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_counts
from suffice.numbers.intervals.simultaneous import questions_to_tell
from suffice.numbers.logistic import LogisticFit, fit_logistic, sigmoids
from suffice.numbers.tests.p_values import holm
from suffice.numbers.tests.tails import student_t_upper
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.stop_rag.settings import SIGNAL_SETTINGS
from suffice.policies.stop_rag.signal_network import ALL, free_inputs, train_signal_network
from suffice.policies.stop_rag.training import Trajectories
from suffice.policies.thresholds import first_stops
from suffice.replay.choose.families import FamilySettings, build_family
from suffice.replay.run.frontier import Frontier, best_mix
from suffice.signals.registry import resolve
from suffice.signals.store import with_values
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

FOLDS, DIVISIONS, INNER, RESAMPLES, SEED, FEWEST, STEPS = 5, 3, 4, 2000, 42, 200, 500
OPERAND = "rule_"
"""Before the names of signals that only rules read."""
GRID = 40
SHARES = (0.25, 0.5, 0.75)
PART = "- "
"""Before the names of question types."""
LEARNED = ("network", "logistic", "boosted")
NAMES = ("rule", *LEARNED)
MODES = (ALONE, MIXED) = ("alone", "mixed")
Array = NDArray[np.float64]
Stops = NDArray[np.int16]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Questions with what stopping after each round scores, (n, T); past their end that of their last round.

    ``inputs``: signals by whether those that cost calls, and the record's own, are among them. ``seen`` are
    the last rounds recorded, ``last`` those of what never stops: later where a question was cut. Rounds past
    a cut score 0 and cost a round each, the worst there is.
    """

    name: str
    measures: Measures
    scores: Array
    seen: Stops
    last: Stops
    cut: Chosen
    axis: CostAxis
    inputs: Mapping[str, tuple[str, ...]]
    paid: dict[CostReads, Array] = field(default_factory=dict)

    @property
    def n_rounds(self) -> int:
        """T."""
        return int(self.scores.shape[1])

    def costs(self, reads: CostReads) -> Array:
        """What stopping after each round costs who reads so much, (n, T)."""
        if reads not in self.paid:
            if self.cut.any():
                of = np.broadcast_to(np.arange(1.0, self.n_rounds + 1), self.scores.shape)
            else:
                known = self.measures.costs(CostModel()).known(self.axis, reads)
                of = np.take_along_axis(known, fixed_stops(self.last, self.n_rounds) - 1, axis=1)
            self.paid[reads] = np.asarray(of)
        return self.paid[reads]

    def caps(self, rows: Chosen) -> Array:
        """Mean costs that may not be exceeded, (3,)."""
        low = self.costs(CostReads())[rows, 0].mean()
        high = self.costs(CostReads(answers=True))[rows, -1].mean()
        return np.asarray(low + np.array(SHARES) * (high - low))

    def fixed(self) -> tuple[Array, Array]:
        """Costs and scores of fixed-1 .. fixed-T, (n, T) each."""
        return self.costs(CostReads()), self.scores


def record_of(name: str, measures: Measures, cost: str | None) -> Record:
    """The labelled questions, ready for the study."""
    measures = measures.take(measures.scores().labelled)
    traces, scored = measures.traces, measures.scores().compared
    seen = traces.last_rounds
    cut = np.zeros(len(seen), bool) if measures.seen is None else measures.seen.unseen
    ends = fixed_stops(seen, traces.n_rounds)
    scores = np.take_along_axis(scored, ends.astype(np.int64) - 1, axis=1)
    past = np.arange(1, traces.n_rounds + 1) > seen[:, None]
    scores = np.where(cut[:, None] & past, 0.0, scores)
    named = tuple(name for name in free_inputs(measures, [ALL]) if not name.startswith(OPERAND))
    inputs = {"free": free_inputs(measures), "all": named}
    readers = {what: reads_of(names) for what, names in inputs.items()}
    readers["answers"] = CostReads(answers=True)
    costs = measures.costs(CostModel())
    try:
        axis = costs.axis("rounds" if cut.any() else cost, readers)
    except UsageError:
        axis = costs.axis(None, readers)
    return Record(
        name=name,
        measures=measures,
        scores=scores,
        seen=seen,
        last=np.where(cut, traces.n_rounds, seen).astype(np.int16),
        cut=cut,
        axis=axis,
        inputs={what: names for what, names in inputs.items() if names},
    )


def reads_of(names: Sequence[str]) -> CostReads:
    """What a policy over these signals pays for."""
    return cost_reads(tuple(resolve(name, also=tuple(names)) for name in names))


# --- choosing a member under each cap ------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the members taken at the three caps score, cost and whether they pass a cut, (n, 3) each."""

    scores: Array
    costs: Array
    past: Array

    @classmethod
    def none(cls, n_questions: int) -> Outcome:
        """To be filled."""
        shape = (n_questions, len(SHARES))
        return cls(
            scores=np.full(shape, np.nan), costs=np.full(shape, np.nan), past=np.zeros(shape)
        )

    def fill(self, rows: Chosen, other: Outcome) -> None:
        """Those of some questions."""
        self.scores[rows], self.costs[rows], self.past[rows] = other.scores, other.costs, other.past

    @classmethod
    def mean(cls, outcomes: Sequence[Outcome]) -> Outcome:
        """Over several divisions into folds."""
        return cls(
            scores=np.mean([one.scores for one in outcomes], axis=0),
            costs=np.mean([one.costs for one in outcomes], axis=0),
            past=np.mean([one.past for one in outcomes], axis=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a candidate makes of the questions held out, and what was chosen for it."""

    outcome: Outcome
    chosen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """Two members, by number, of which a coin takes the second with the chance ``share``."""

    low: int
    high: int
    share: float


def outcome(
    record: Record, rows: Chosen, stops: Stops, reads: Sequence[CostReads], mixes: Sequence[Mix]
) -> Outcome:
    """Of a mix by cap of members with ``stops`` (m, n_rows), in the mean over coins."""
    here, parts = np.flatnonzero(rows), []
    for mix in mixes:
        of_mix = np.zeros((3, len(here)))
        for member, share in ((mix.low, 1.0 - mix.share), (mix.high, mix.share)):
            at = stops[member].astype(np.int64) - 1
            past = record.cut[here] & (at >= record.seen[here])
            paid = record.costs(reads[member])[here, at]
            of_mix += share * np.stack([record.scores[here, at], paid, past])
        parts.append(of_mix)
    scores, costs, past = np.stack(parts, axis=-1)
    return Outcome(scores=scores, costs=costs, past=past)


def choose(
    record: Record, rows: Chosen, stops: Stops, reads: Sequence[CostReads]
) -> Mapping[str, list[Mix]]:
    """By mode and cap the best of the members ``stops`` (m, n_rows), or mix of two, else the cheapest."""
    caps, here, at = record.caps(rows), np.flatnonzero(rows), stops.astype(np.int64) - 1
    scores = record.scores[here, at].mean(axis=1).round(12)
    costs, kinds = np.empty(len(stops)), {kind: n for n, kind in enumerate(dict.fromkeys(reads))}
    of = np.array([kinds[kind] for kind in reads])
    for kind, number in kinds.items():
        costs[of == number] = record.costs(kind)[here, at[of == number]].mean(axis=1).round(12)
    order = np.lexsort((costs, -scores))
    cheapest = np.lexsort((-scores, costs))[:1]
    within = [[*order[costs[order] <= cap + 1e-9], *cheapest][0] for cap in caps]
    alone = [Mix(low=int(member), high=int(member), share=0.0) for member in within]
    line = Frontier(cost_name="", costs=tuple(costs.tolist()), scores=tuple(scores.tolist())).best
    corners = [int(np.flatnonzero((costs == cost) & (scores == score))[0]) for cost, score in line]
    mixes = []
    for cap in caps:
        number = max(0, int(np.searchsorted(costs[corners], cap, side="right")) - 1)
        low, high = corners[number], corners[min(number + 1, len(corners) - 1)]
        width = costs[high] - costs[low]
        share = float((cap - costs[low]) / width) if width > 0 and cap > costs[low] else 0.0
        mixes.append(Mix(low=low, high=high, share=share))
    return {ALONE: alone, MIXED: mixes}


def gain(record: Record, rows: Chosen, made: Outcome) -> float:
    """The mean gain over fixed budgets on these questions."""
    means = [
        values[rows].mean(axis=0)[None] for values in (*record.fixed(), made.scores, made.costs)
    ]
    return float(gains(*means)[0])


def gains(costs: Array, scores: Array, own: Array, paid: Array) -> Array:
    """Gains of means over drawn questions, a row a draw, averaged over the caps, (n_draws,)."""
    best = [best_mix(costs, scores, paid[:, cap]).score for cap in range(paid.shape[1])]
    return np.asarray((own - np.stack(best, axis=1)).mean(axis=1))


def divided(rows: Chosen, count: int, seed: int) -> Iterator[tuple[Chosen, Chosen]]:
    """The questions in ``rows`` (n,) as (fitted on, held out), ``count`` times."""
    fold = np.full(len(rows), -1)
    order = np.random.default_rng(seed).permutation(int(rows.sum()))
    fold[np.flatnonzero(rows)[order]] = np.arange(len(order)) % count
    for number in range(count):
        yield rows & (fold != number), fold == number


# --- rules ---------------------------------------------------------------------------------------
def by_rules(record: Record, train: Chosen, test: Chosen) -> dict[str, Held]:
    """The best rules of the size that does best across inner folds."""
    inner: dict[str, dict[int, float]] = {mode: {} for mode in MODES}
    for size in (1, 2):
        made = {mode: Outcome.none(len(train)) for mode in MODES}
        for fitted, held in divided(train, INNER, SEED):
            for mode, of_fold in _rules(record, fitted, held, size).items():
                made[mode].fill(held, of_fold)
        for mode in MODES:
            inner[mode][size] = gain(record, train, made[mode])
    sizes = {mode: max(of, key=lambda one: (of[one], -one)) for mode, of in inner.items()}
    rules = {size: _rules(record, train, test, size) for size in set(sizes.values())}
    return {
        mode: Held(outcome=rules[size][mode], chosen=f"{size} condition{'s' * (size > 1)}")
        for mode, size in sizes.items()
    }


def _rules(record: Record, train: Chosen, test: Chosen, size: int) -> dict[str, Outcome]:
    parts = record.measures.take(train), record.measures.take(test)
    family = build_family(*parts, FIT_SPLIT, FamilySettings(max_signals=size))
    adaptive = len(family.rules) - max(part.traces.n_rounds for part in parts)
    members = np.arange(adaptive)
    reads = family.reads[:adaptive]
    stops = [family.learn_stops[members]], [family.test_stops[members]]
    for name in record.inputs["all"]:  # alone, over evenly spaced thresholds and in both directions
        values, kind = record.measures.signals([name]).signal(name), reads_of([name])
        defined = values[train][np.isfinite(values[train])]
        if not defined.size:
            continue
        grid = np.linspace(defined.min(), defined.max(), GRID + 1)[:-1] + 1e-12
        for sign in (1.0, -1.0):
            for rows, of_rows in zip((train, test), stops, strict=True):
                of_rows.append(stops_of(record, rows, sign * values, np.sort(sign * grid)))
            reads = (*reads, *(kind for _ in grid))
    learned, held = (np.concatenate(of_rows) for of_rows in stops)
    return {
        mode: outcome(record, test, held, reads, mixes)
        for mode, mixes in choose(record, train, learned, reads).items()
    }


# --- values learned from signals -----------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Decision states: features (n, T, k), targets (n, T, 3), which states there are and which are decided.

    Targets are the score of stopping here, the best of later rounds, and that of the last round.
    """

    features: Array
    targets: Array
    known: Chosen
    reads: CostReads


def states_of(record: Record, names: Sequence[str]) -> States:
    """Signals of a round, what they were in the round before, and the round's number."""
    table = record.measures.signals(names)
    now = np.stack([table.signal(name) for name in names], axis=-1)
    before = np.concatenate([np.full_like(now[:, :1], np.nan), now[:, :-1]], axis=1)
    rounds = np.arange(1.0, record.n_rounds + 1)
    number = np.broadcast_to(rounds[None, :, None], (*now.shape[:2], 1))
    later = np.maximum.accumulate(record.scores[:, ::-1], axis=1)[:, ::-1]
    best = np.concatenate([later[:, 1:], later[:, -1:]], axis=1)
    final = np.broadcast_to(record.scores[:, -1:], best.shape)
    until = np.where(record.cut, record.seen, record.last - 1)
    return States(
        features=np.concatenate([now, before, number], axis=-1),
        targets=np.stack([record.scores, best, final], axis=-1),
        known=rounds <= until[:, None],
        reads=reads_of(names),
    )


FORMS: Mapping[str, Callable[[Array], Array]] = {
    "stop - best later": lambda values: values[..., 0] - values[..., 1],
    "stop - last": lambda values: values[..., 0] - values[..., 2],
    "stop": lambda values: values[..., 0],
}
Fit = Callable[[Array, Array], Callable[[Array], Array]]


def weighted_logistic(rows: Array, shares: Array, penalty: float) -> LogisticFit:
    """Of shares in [0, 1]: each row counts as so much of a 1, and as the rest of a 0."""
    if not 0.0 < shares.mean() < 1.0:
        return LogisticFit(
            intercept=40.0 if shares.any() else -40.0, weights=(0.0,) * rows.shape[1]
        )
    weights = np.concatenate([shares, 1.0 - shares])
    some = weights > 0
    return fit_logistic(
        np.concatenate([rows, rows])[some],
        np.repeat([1.0, 0.0], len(rows))[some],
        penalty=penalty,
        row_weights=weights[some],
    )


def logistic(penalty: float, *, history: bool) -> Fit:
    """Of each target a logistic regression on standardised signals, and on which are undefined."""

    def fit(features: Array, targets: Array) -> Callable[[Array], Array]:
        signals = (features.shape[1] - 1) // 2
        kept = [*range(signals * (2 if history else 1)), features.shape[1] - 1]
        defined = np.isfinite(features[:, kept])
        count = np.maximum(defined.sum(axis=0), 1)
        known = np.where(defined, features[:, kept], 0.0)
        centre = known.sum(axis=0) / count
        spread = np.sqrt((np.where(defined, known - centre, 0.0) ** 2).sum(axis=0) / count)
        spread = np.where(spread > 1e-12, spread, np.inf)

        def inputs(of: Array) -> Array:
            there = np.isfinite(of[:, kept])
            scaled = np.where(there, (np.where(there, of[:, kept], 0.0) - centre) / spread, 0.0)
            rounds = np.eye(int(features[:, -1].max()) + 1)[
                np.minimum(of[:, -1], features[:, -1].max()).astype(int)
            ]
            return np.concatenate([scaled, ~there, rounds[:, 2:]], axis=1)

        rows = inputs(features)
        fits = [weighted_logistic(rows, target, penalty) for target in targets.T]

        def values(of: Array) -> Array:
            given = inputs(of)
            return np.stack(
                [sigmoids(one.intercept + given @ np.array(one.weights)) for one in fits], axis=-1
            )

        return values

    return fit


def boosted(**settings: Any) -> Fit:
    """Of each target gradient-boosted trees, which take undefined signals as they are."""

    def fit(features: Array, targets: Array) -> Callable[[Array], Array]:
        kept = np.isfinite(features).any(axis=0)
        models = [
            HistGradientBoostingRegressor(early_stopping=False, random_state=SEED, **settings).fit(
                features[:, kept], target
            )
            for target in targets.T
        ]
        return lambda of: np.stack([model.predict(of[:, kept]) for model in models], axis=-1)

    return fit


MODELS: Mapping[str, Mapping[str, Fit]] = {
    "logistic": {
        f"penalty {penalty:g}{', round before' * history}": logistic(penalty, history=history)
        for penalty, history in product((1.0, 10.0, 100.0), (False, True))
    },
    "boosted": {
        f"{trees} trees of {leaves} leaves": boosted(
            max_iter=trees, max_leaf_nodes=leaves, learning_rate=0.1, min_samples_leaf=least
        )
        for trees, leaves, least in ((20, 3, 10), (60, 4, 20), (60, 12, 20))
    },
}


def fitted_values(fit: Fit, states: States, train: Chosen, test: Chosen) -> Array:
    """Values of the states held out, (n, T, 3); NaN elsewhere."""
    rows = train[:, None] & states.known
    model = fit(states.features[rows], states.targets[rows])
    values = np.full(states.targets.shape, np.nan)
    values[test] = model(states.features[test].reshape(-1, states.features.shape[2])).reshape(
        values[test].shape
    )
    return values


def stops_of(record: Record, rows: Chosen, differences: Array, thresholds: Array) -> Stops:
    """The first round whose difference exceeds each threshold, (m, n_rows)."""
    passed = np.where(np.isnan(differences), -np.inf, differences)[rows]
    last = record.last[rows]
    return np.stack([first_stops(passed > threshold, last) for threshold in thresholds])


def thresholds_of(differences: Array, known: Chosen) -> Array:
    """Some hundred of what can be told apart, and those that always and never stop."""
    observed = np.unique(differences[known])
    some = np.quantile(observed, np.linspace(0.0, 1.0, 120), method="nearest")
    return np.unique(np.concatenate([[-np.inf], some, [np.inf]]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to learn: what it is called, its model and signals, what is compared, thresholds and mixes."""

    name: str
    fit: Fit
    states: States
    difference: Callable[[Array], Array]
    thresholds: Array
    mixes: Sequence[Mix]


def by_model(record: Record, train: Chosen, test: Chosen, name: str) -> dict[str, Held]:
    """A learned value: settings, inputs, form and thresholds by inner folds."""
    best: dict[str, tuple[float, Way]] = {}
    for mode, reached, way in _ways(record, train, name):
        if mode not in best or reached > best[mode][0]:
            best[mode] = reached, way
    held = {}
    for mode, (_, way) in best.items():
        values = way.difference(fitted_values(way.fit, way.states, train, test))
        stops = stops_of(record, test, values, way.thresholds)
        kinds = [way.states.reads] * len(stops)
        of_test = outcome(record, test, stops, kinds, way.mixes)
        held[mode] = Held(outcome=of_test, chosen=way.name)
    return held


def _ways(record: Record, train: Chosen, name: str) -> Iterator[tuple[str, float, Way]]:
    """All that are tried, by mode, with what each gains out of fold, to within rounding."""
    inputs = dict(record.inputs)
    if inputs.get("free") == inputs["all"]:
        del inputs["free"]
    of_inputs = {what: states_of(record, names) for what, names in inputs.items()}
    for (how, fit), (what, states) in product(MODELS[name].items(), of_inputs.items()):
        values = np.full(states.targets.shape, np.nan)
        for fitted, held in divided(train, INNER, SEED):
            values[held] = fitted_values(fit, states, fitted, held)[held]
        for form, difference in FORMS.items():
            here = difference(values)
            tried = thresholds_of(here, train[:, None] & states.known)
            stops, kinds = stops_of(record, train, here, tried), [states.reads] * len(tried)
            for mode, mixes in choose(record, train, stops, kinds).items():
                made = Outcome.none(len(train))
                made.fill(train, outcome(record, train, stops, kinds, mixes))
                way = Way(
                    name=f"{what}, {how}, {form}",
                    fit=fit,
                    states=states,
                    difference=difference,
                    thresholds=tried,
                    mixes=mixes,
                )
                yield mode, round(gain(record, train, made), 9), way


def by_network(record: Record, train: Chosen, test: Chosen) -> dict[str, Held]:
    """Stop-RAG's network over all signals as it is fitted: a fifth of the questions validates."""
    validation = next(divided(train, 5, SEED))[1]
    names = record.inputs["all"]
    table, reads = record.measures.signals(names), reads_of(names)
    columns = {name: table.signal(name) for name in names}
    stacked = np.stack(list(columns.values()), axis=-1)
    learning, choosing = (
        Trajectories(
            states=stacked[rows],
            rewards=record.scores[rows],
            lengths=record.last[rows].astype(np.int64),
        )
        for rows in (train & ~validation, validation)
    )
    settings = replace(SIGNAL_SETTINGS["corrected"], min_steps=STEPS)
    trained = train_signal_network(names, learning, choosing, settings)
    stop, going_on = trained.network.values(columns)
    decided = np.arange(1, record.n_rounds + 1) < record.last[:, None]
    tried = thresholds_of(stop - going_on, validation[:, None] & decided)
    stops, kinds = stops_of(record, validation, stop - going_on, tried), [reads] * len(tried)
    mixes = choose(record, validation, stops, kinds)
    stops = stops_of(record, test, stop - going_on, tried)
    return {
        mode: Held(outcome=outcome(record, test, stops, kinds, of_mode), chosen="all")
        for mode, of_mode in mixes.items()
    }


# --- the study of one record ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One candidate's figures; ``over_rule``: its gain less that of the rule, ``spread`` a question's.

    ``divisions``: the same difference under each division into folds.
    """

    gain: Interval
    over_rule: Interval
    p_value: float
    spread: float
    divisions: tuple[float, ...]
    scores: Array
    costs: Array
    chosen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record; ``fixed`` the best score fixed budgets reach for each cap, ``told`` by mode and candidate.

    ``made``, by candidate: means over the divisions, of members alone.
    """

    name: str
    questions: int
    rounds: int
    signals: int
    cost: str
    cut: bool
    caps: Array
    fixed: Array
    told: Mapping[str, Mapping[str, Told]]
    made: Mapping[str, Outcome]
    seconds: float


def row_of(record: Record, *, permuted: bool = False) -> Row:
    """Fit, choose and score every candidate, each question by those that have not seen it."""
    started = time.process_time()
    everyone = np.ones(len(record.scores), bool)
    made: dict[tuple[str, str], list[Outcome]] = {key: [] for key in product(MODES, NAMES)}
    chosen: dict[tuple[str, str], Counter[str]] = {key: Counter() for key in made}
    for division in range(DIVISIONS):
        for of in made.values():
            of.append(Outcome.none(len(everyone)))
        for train, test in divided(everyone, FOLDS, SEED + division):
            fitted = dealt_anew(record, train, SEED + division) if permuted else record
            for name in NAMES:
                for mode, held in _candidate(name)(fitted, train, test).items():
                    made[mode, name][-1].fill(test, held.outcome)
                    chosen[mode, name][held.chosen] += 1
    fixed_costs, fixed_scores = (values.mean(axis=0)[None] for values in record.fixed())
    caps = record.caps(everyone)
    return Row(
        name=record.name,
        questions=len(everyone),
        rounds=record.n_rounds,
        signals=len(record.inputs["all"]),
        cost=record.axis.label,
        cut=bool(record.cut.any()),
        caps=caps,
        fixed=np.array([best_mix(fixed_costs, fixed_scores, caps[[n]]).score[0] for n in range(3)]),
        told={
            mode: told(
                record,
                {name: made[mode, name] for name in NAMES},
                {name: chosen[mode, name] for name in NAMES},
            )
            for mode in MODES
        },
        made={name: Outcome.mean(made[ALONE, name]) for name in NAMES},
        seconds=time.process_time() - started,
    )


def _candidate(name: str) -> Callable[[Record, Chosen, Chosen], dict[str, Held]]:
    named: Mapping[str, Callable[[Record, Chosen, Chosen], dict[str, Held]]]
    named = {"rule": by_rules, "network": by_network}
    return named.get(name) or partial(by_model, name=name)


def dealt_anew(record: Record, train: Chosen, seed: int) -> Record:
    """The same with scores, and how far they were seen, of other questions of those fitted on."""
    rows = np.arange(len(train))
    rows[train] = np.random.default_rng(seed).permutation(rows[train])
    dealt = replace(record, scores=record.scores[rows])
    if not record.cut.any():
        return dealt
    seen, last, cut = record.seen[rows], record.last[rows], record.cut[rows]
    return replace(dealt, seen=seen, last=last, cut=cut, paid={})


def draws(record: Record, made: Mapping[str, Outcome]) -> Mapping[str, Array]:
    """The gain of every candidate in every resample of the questions, (n_draws,)."""
    columns = [
        *record.fixed(),
        *(part for one in made.values() for part in (one.scores, one.costs)),
    ]
    sizes, of = np.cumsum([part.shape[1] for part in columns])[:-1], np.hstack(columns)
    blocks = [
        np.split(counts @ of / len(of), sizes, axis=1)
        for counts in resampled_counts(len(of), resamples=RESAMPLES, seed=SEED)
    ]
    means = [np.concatenate(part) for part in zip(*blocks, strict=True)]
    costs, scores, *own = means
    return {
        name: gains(costs, scores, own[2 * number], own[2 * number + 1])
        for number, name in enumerate(made)
    }


def told(
    record: Record,
    made: Mapping[str, Sequence[Outcome]],
    chosen: Mapping[str, Counter[str]],
) -> dict[str, Told]:
    """The figures of every candidate, from what it made under each division."""
    everyone = np.ones(len(record.scores), bool)
    means = {name: Outcome.mean(of) for name, of in made.items()}
    drawn = draws(record, means)
    own = {name: gain(record, everyone, mean) for name, mean in means.items()}
    singly = {name: [gain(record, everyone, one) for one in of] for name, of in made.items()}
    figures = {}
    for name, mean in means.items():
        over, of_draws = own[name] - own["rule"], drawn[name] - drawn["rule"]
        error = float(of_draws.std(ddof=1))
        t = abs(over) / error if error > 1e-12 else 0.0
        figures[name] = Told(
            gain=percentile_interval(own[name], drawn[name]),
            over_rule=percentile_interval(over, of_draws),
            p_value=min(1.0, 2.0 * float(student_t_upper(t, len(everyone) - 1))),
            spread=error * len(everyone) ** 0.5,
            divisions=tuple(
                mine - rule for mine, rule in zip(singly[name], singly["rule"], strict=True)
            ),
            scores=mean.scores.mean(axis=0),
            costs=mean.costs.mean(axis=0),
            chosen="; ".join(f"{what} ({count})" for what, count in chosen[name].most_common(2)),
        )
    return figures


def in_one_split(traces: TraceSet) -> TraceSet:
    """The same questions, all of split tune: folds divide them here."""
    cells = pa.array([FIT_SPLIT] * traces.table.num_rows)
    place = traces.table.schema.get_field_index("split")
    return replace(traces, table=traces.table.set_column(place, "split", cells))


def with_round(traces: TraceSet) -> TraceSet:
    """With ``round`` as a signal, of which the family asks conditions then."""
    rounds = np.arange(1.0, traces.n_rounds + 1)
    return with_values(traces, {f"{OPERAND}round": np.where(traces.exists, rounds, np.nan)})


def records_of(path: str, cost: str | None) -> Iterator[Record]:
    """The record, then its larger question types."""
    measures = Measures(with_round(in_one_split(read_traces(path)))).by(None)
    name = Path(path).stem if Path(path).stem != "record" else "shipped record"
    yield record_of(name, measures, cost)
    kinds = np.array([question.type or "" for question in measures.traces.questions])
    large = [
        kind for kind, count in sorted(Counter(kinds.tolist()).items()) if kind and count >= FEWEST
    ]
    for kind in large if len(large) > 1 else []:
        yield record_of(f"{PART}{kind}", measures.take(kinds == kind), cost)


# --- tables --------------------------------------------------------------------------------------
def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def points(interval: Interval) -> str:
    """In hundredths of the score."""
    estimate, low, high = (100 * one for one in (interval.estimate, interval.low, interval.high))
    return f"{estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def show(rows: Sequence[Row], mode: str) -> str:
    """The tables of all records that were not cut; Holm over all their comparisons of one mode."""
    p_values = holm(np.array([row.told[mode][name].p_value for row in rows for name in LEARNED]))
    adjusted = p_values.reshape(len(rows), len(LEARNED))
    gained, compared, needed, at_caps, picked = [], [], [], [], []
    for row, corrected in zip(rows, adjusted, strict=True):
        told = row.told[mode]
        head = [row.name, str(row.questions)]
        gained.append(
            [*head, str(row.rounds), row.cost, str(row.signals),
             *(points(told[name].gain) for name in NAMES)]
        )  # fmt: skip
        compared.append(
            [
                *head,
                *(
                    f"{points(told[name].over_rule)}, {p:.2g}; {across(told[name].divisions)}"
                    for name, p in zip(LEARNED, corrected, strict=True)
                ),
            ]
        )
        best = max(LEARNED, key=lambda name: told[name].over_rule.estimate)
        one = told[best]
        levels = (0.05, 0.05 / p_values.size)
        counts = [
            questions_to_tell(one.over_rule.estimate, one.spread, level=level) for level in levels
        ]
        counts.append(questions_to_tell(0.02, one.spread))
        needed.append(
            [*head, best, f"{100 * one.over_rule.estimate:+.1f}", f"{100 * one.spread:.0f}",
             *(f"{count:,.0f}" for count in counts)]
        )  # fmt: skip
        for number, share in enumerate(SHARES):
            cells = (
                f"{100 * told[name].scores[number]:.1f} at {told[name].costs[number]:,.3g}"
                for name in told
            )
            caps = [f"{share:.0%}", f"{row.caps[number]:,.3g}", f"{100 * row.fixed[number]:.1f}"]
            at_caps.append([row.name, *caps, *cells])
        picked.append([row.name, *(told[name].chosen for name in told), f"{row.seconds:.0f}"])
    head = ["record", "questions"]
    over = [f"{name} - rule, Holm's p; divisions" for name in LEARNED]
    return "\n".join(
        [
            table([*head, "rounds", "cost", "signals", *NAMES], gained),
            table([*head, *over], compared),
            table(
                [*head, "best", "difference", "spread", "alone", "corrected", "2 points"], needed
            ),
            table(["record", "cap", "cost", "fixed", *NAMES], at_caps),
            table(["record", *NAMES, "CPU s"], picked),
        ]
    )


def across(divisions: Sequence[float]) -> str:
    """The median over divisions into folds, least and greatest."""
    of = 100 * np.sort(divisions)
    return f"{np.median(of):+.1f} ({of[0]:+.1f} to {of[-1]:+.1f})"


def together(rows: Sequence[Row], mode: str) -> str:
    """Differences to the rule over whole records, each weighted by the inverse of its variance."""
    lines = []
    whole = [row for row in rows if not row.name.startswith(PART)]
    for name in LEARNED:
        parts = [(row.told[mode][name], row.questions) for row in whole]
        shown = [
            (one.over_rule.estimate, one.spread**2 / count) for one, count in parts if one.spread
        ]
        if not shown:
            continue
        weights = np.array([1.0 / variance for _, variance in shown])
        mean = float(weights @ [estimate for estimate, _ in shown] / weights.sum())
        error = float(weights.sum() ** -0.5)
        reach = 1.96 * error
        pooled = Interval(estimate=mean, low=mean - reach, high=mean + reach)
        p_value = min(1.0, 2.0 * float(student_t_upper(abs(mean) / error, 10**6)))
        plain = np.mean([one.over_rule.estimate for one, _ in parts])
        above = sum(one.over_rule.estimate > 0 for one, _ in parts)
        lines.append(
            [
                name,
                f"{points(pooled)}, {p_value:.2g}",
                f"{100 * plain:+.1f}",
                f"{above} of {len(parts)}",
            ]
        )
    return table(["learned", "less the rule's, p", "plain mean", "records above 0"], lines)


def show_cut(row: Row) -> str:
    """Ranges of a record with cut questions: what was not seen counts 0 for one and 1 for the other.

    Intervals reach from the least of the lower end to the greatest of the upper in 95% of resamples.
    """
    lines = []
    rule = row.made["rule"]
    for name, made in row.made.items():
        over = made.scores - rule.scores  # nothing for what was not seen
        ends = {
            "own": (made.scores, made.scores + made.past),
            "over": (over - rule.past, over + made.past),
        }
        shown = {what: resampled_range(*of) for what, of in ends.items()}
        for number, share in enumerate(SHARES):
            past = f"{100 * made.past[:, number].mean():.0f}%"
            own, beyond = shown["own"][number], shown["over"][number] if name != "rule" else ""
            cost = f"{made.costs[:, number].mean():.2f}"
            lines.append([row.name, name, f"{share:.0%}", cost, own, past, beyond])
    heads = ["record", "candidate", "cap", "rounds", "score", "past the cut", "less the rule's"]
    return table(heads, lines)


def resampled_range(low: Array, high: Array) -> list[str]:
    """Two ends (n, caps) in points, by cap, with the interval that holds both."""
    both = np.hstack([low, high])
    drawn = [
        counts @ both / len(both)
        for counts in resampled_counts(len(both), resamples=RESAMPLES, seed=SEED)
    ]
    least, greatest = (np.percentile(np.vstack(drawn), share, axis=0) for share in (2.5, 97.5))
    means, caps = 100 * both.mean(axis=0), low.shape[1]
    return [
        f"{means[n]:+.1f} to {means[n + caps]:+.1f} "
        f"[{100 * least[n]:+.1f}, {100 * greatest[n + caps]:+.1f}]"
        for n in range(caps)
    ]


def kept(record: Record, folder: Path | None, *, permuted: bool) -> Row:
    """The record's row, which ``folder`` keeps."""
    place = (
        None
        if folder is None
        else folder / f"{record.name}-{record.axis.name}{'-permuted' * permuted}.pickle"
    )
    if place is not None and place.exists():
        row: Row = pickle.loads(place.read_bytes())
        return row
    row = row_of(record, permuted=permuted)
    print(f"{record.name}: {row.seconds:.0f} s of CPU", file=sys.stderr, flush=True)
    if place is not None:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(pickle.dumps(row))
    return row


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description="learned values beside rules, at equal cost")
    parser.add_argument("records", nargs="+", metavar="RECORD")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--cost", choices=COSTS)
    parser.add_argument("--permuted", action="store_true")
    asked = parser.parse_args(arguments)
    rows = [
        kept(record, asked.keep, permuted=asked.permuted)
        for path in asked.records
        for record in records_of(path, asked.cost)
    ]
    whole = [row for row in rows if not row.cut]
    for mode in MODES if whole else ():
        print(f"## {mode}\n\n{show(whole, mode)}\n{together(whole, mode)}")
    for row in rows:
        if row.cut:
            print(show_cut(row))


if __name__ == "__main__":
    main()
