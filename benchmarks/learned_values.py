"""Does any learned combination of a record's signals beat its best rule at equal cost, on unseen questions?

``python -m benchmarks.learned_values [--mixed] RECORD ...`` prints the tables of docs/results/learned.md;
question types of 200 or more are rows of their own, too. Needs the extra ``learn`` and scikit-learn.

Every question is scored by candidates fitted and chosen on other questions (five folds). Within the
questions fitted on, four inner folds choose what there is to choose. At three caps of the mean cost,
spread between what fixed-1 costs and what reading every answer to the full budget costs, each candidate takes
the member (``--mixed``: or mix of two by a coin) with the best score for the cap: ``rule`` an OR or AND of
one or two conditions of certified choice's family, to which ``round``, low values of the record's own signals
and every signal alone over search's grid, in both directions, are added; the others a threshold on values
learned from the signals (``network``: Stop-RAG's, on its own validation part). Held out, a
candidate's gain is its score over the best mix of fixed budgets at
its own mean cost, as run, averaged over the caps; intervals resample questions, all candidates alike.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from suffice.costs.usage import CostModel, CostReads
from suffice.measures.costs import CostAxis, cost_reads, fixed_stops
from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_counts
from suffice.numbers.intervals.simultaneous import questions_to_tell
from suffice.numbers.logistic import LogisticFit, fit_logistic, sigmoids
from suffice.numbers.tests.p_values import holm
from suffice.numbers.tests.tails import student_t_upper
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.stop_rag.settings import SIGNAL_SETTINGS
from suffice.policies.stop_rag.signal_learner import SignalTrajectories, train_signal_network
from suffice.policies.stop_rag.signal_model import ALL, free_inputs
from suffice.policies.thresholds import first_stops
from suffice.replay.choose.families import FamilySettings, build_family
from suffice.replay.run.frontier import Frontier, best_mix
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.store import with_values
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

FOLDS, INNER, RESAMPLES, SEED, FEWEST, STEPS = 5, 4, 2000, 42, 200, 500
OPERAND = "rule_"
"""Before the names of signals that only rules read."""
GRID = 40
SHARES = (0.25, 0.5, 0.75)
PART = "- "
"""Before the names of question types."""
LEARNED = ("network", "logistic", "boosted")
Array = NDArray[np.float64]
Stops = NDArray[np.int16]
Chosen = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Questions with what stopping after each round scores, (n, T); past their end that of their last round.

    ``inputs``: signals by whether those that cost calls, and the record's own, are among them. ``seen`` are
    the last rounds recorded, ``last`` those of what never stops: later where a question was cut. Rounds past
    a cut score 0 and cost a round each, the worst there is. ``mixed``: whether two members may be mixed.
    """

    name: str
    measures: Measures
    scores: Array
    seen: Stops
    last: Stops
    cut: Chosen
    axis: CostAxis
    inputs: Mapping[str, tuple[str, ...]]
    mixed: bool = False
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


def record_of(name: str, measures: Measures) -> Record:
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
    axis = measures.costs(CostModel()).axis("rounds" if cut.any() else None, readers)
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
    record: Record, rows: Chosen, stops: Stops, reads: Sequence[CostReads], caps: Array
) -> list[Mix]:
    """By cap the best of the members ``stops`` (m, n_rows), or mix of two, else the cheapest."""
    here, at = np.flatnonzero(rows), stops.astype(np.int64) - 1
    scores = record.scores[here, at].mean(axis=1).round(12)
    costs, kinds = np.empty(len(stops)), {kind: n for n, kind in enumerate(dict.fromkeys(reads))}
    of = np.array([kinds[kind] for kind in reads])
    for kind, number in kinds.items():
        costs[of == number] = record.costs(kind)[here, at[of == number]].mean(axis=1).round(12)
    if not record.mixed:
        order = np.lexsort((costs, -scores))
        cheapest = np.lexsort((-scores, costs))[:1]
        within = [[*order[costs[order] <= cap + 1e-9], *cheapest][0] for cap in caps]
        return [Mix(low=int(member), high=int(member), share=0.0) for member in within]
    line = Frontier(cost_name="", costs=tuple(costs.tolist()), scores=tuple(scores.tolist())).best
    corners = [int(np.flatnonzero((costs == cost) & (scores == score))[0]) for cost, score in line]
    mixes = []
    for cap in caps:
        number = max(0, int(np.searchsorted(costs[corners], cap, side="right")) - 1)
        low, high = corners[number], corners[min(number + 1, len(corners) - 1)]
        width = costs[high] - costs[low]
        share = float((cap - costs[low]) / width) if width > 0 and cap > costs[low] else 0.0
        mixes.append(Mix(low=low, high=high, share=share))
    return mixes


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
def by_rules(record: Record, train: Chosen, test: Chosen) -> tuple[Outcome, str]:
    """The best rules of the size that does best across inner folds."""
    inner = {}
    for size in (1, 2):
        made = Outcome.none(len(train))
        for fitted, held in divided(train, INNER, SEED):
            made.fill(held, _rules(record, fitted, held, size))
        inner[size] = gain(record, train, made)
    size = max(inner, key=lambda one: (inner[one], -one))
    return _rules(record, train, test, size), f"{size} condition{'s' * (size > 1)}"


def _rules(record: Record, train: Chosen, test: Chosen, size: int) -> Outcome:
    parts = record.measures.take(train), record.measures.take(test)
    family = build_family(*parts, FIT_SPLIT, FamilySettings(max_signals=size))
    adaptive = len(family.rules) - max(part.traces.n_rounds for part in parts)
    members = np.arange(adaptive)
    reads = family.reads[:adaptive]
    stops = [family.learn_stops[members]], [family.test_stops[members]]
    for name in record.inputs[
        "all"
    ]:  # one condition, over evenly spaced thresholds and in both directions
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
    return outcome(
        record, test, held, reads, choose(record, train, learned, reads, record.caps(train))
    )


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


def by_model(record: Record, train: Chosen, test: Chosen, name: str) -> tuple[Outcome, str]:
    """A learned value: settings, inputs, form and thresholds by inner folds."""
    best = max(_ways(record, train, name), key=lambda way: way[0])[1]
    values = best.difference(fitted_values(best.fit, best.states, train, test))
    stops = stops_of(record, test, values, best.thresholds)
    kinds = [best.states.reads] * len(stops)
    return outcome(record, test, stops, kinds, best.mixes), best.name


def _ways(record: Record, train: Chosen, name: str) -> Iterator[tuple[float, Way]]:
    """All that are tried, with what each gains out of fold, to within rounding."""
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
            mixes = choose(record, train, stops, kinds, record.caps(train))
            made = Outcome.none(len(train))
            made.fill(train, outcome(record, train, stops, kinds, mixes))
            yield (
                round(gain(record, train, made), 9),
                Way(
                    name=f"{what}, {how}, {form}",
                    fit=fit,
                    states=states,
                    difference=difference,
                    thresholds=tried,
                    mixes=mixes,
                ),
            )


def by_network(record: Record, train: Chosen, test: Chosen) -> tuple[Outcome, str]:
    """Stop-RAG's network over all signals as it is fitted: a fifth of the questions validates."""
    validation = next(divided(train, 5, SEED))[1]
    names = record.inputs["all"]
    table, reads = record.measures.signals(names), reads_of(names)
    columns = {name: table.signal(name) for name in names}
    stacked = np.stack(list(columns.values()), axis=-1)
    learning, choosing = (
        SignalTrajectories(
            signals=stacked[rows],
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
    mixes = choose(record, validation, stops, kinds, record.caps(validation))
    stops = stops_of(record, test, stop - going_on, tried)
    return outcome(record, test, stops, kinds, mixes), "all"


# --- the study of one record ---------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One candidate's figures; ``over_rule``: its gain less that of the rule, ``spread`` a question's."""

    gain: Interval
    over_rule: Interval
    p_value: float
    spread: float
    scores: Array
    costs: Array
    past: float
    chosen: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record; ``fixed`` the best score fixed budgets reach for each cap, ``told`` by candidate."""

    record: Record
    caps: Array
    fixed: Array
    told: Mapping[str, Told]
    made: Mapping[str, Outcome]
    seconds: float


def row_of(record: Record) -> Row:
    """Fit, choose and score every candidate, each question by those that have not seen it."""
    started = time.process_time()
    everyone = np.ones(len(record.scores), bool)
    names = ("rule", *LEARNED)
    made = {name: Outcome.none(len(everyone)) for name in names}
    chosen: dict[str, Counter[str]] = {name: Counter() for name in names}
    for train, test in divided(everyone, FOLDS, SEED):
        for name in names:
            if name == "rule":
                of_fold, what = by_rules(record, train, test)
            elif name == "network":
                of_fold, what = by_network(record, train, test)
            else:
                of_fold, what = by_model(record, train, test, name)
            made[name].fill(test, of_fold)
            chosen[name][what] += 1
    drawn = draws(record, made)
    fixed_costs, fixed_scores = (values.mean(axis=0)[None] for values in record.fixed())
    caps = record.caps(everyone)
    return Row(
        record=record,
        caps=caps,
        fixed=np.array([best_mix(fixed_costs, fixed_scores, caps[[n]]).score[0] for n in range(3)]),
        told={name: told(record, made, drawn, name, chosen[name]) for name in names},
        made=made,
        seconds=time.process_time() - started,
    )


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
    made: Mapping[str, Outcome],
    drawn: Mapping[str, Array],
    name: str,
    chosen: Counter[str],
) -> Told:
    """The figures of one candidate."""
    everyone = np.ones(len(record.scores), bool)
    own, rule = (gain(record, everyone, made[one]) for one in (name, "rule"))
    error = float((drawn[name] - drawn["rule"]).std(ddof=1))
    t = abs(own - rule) / error if error > 1e-12 else 0.0
    return Told(
        gain=percentile_interval(own, drawn[name]),
        over_rule=percentile_interval(own - rule, drawn[name] - drawn["rule"]),
        p_value=min(1.0, 2.0 * float(student_t_upper(t, len(everyone) - 1))),
        spread=error * len(everyone) ** 0.5,
        scores=made[name].scores.mean(axis=0),
        costs=made[name].costs.mean(axis=0),
        past=float(made[name].past.mean()),
        chosen="; ".join(f"{what} ({count})" for what, count in chosen.most_common(2)),
    )


def in_one_split(traces: TraceSet) -> TraceSet:
    """The same questions, all of split tune: folds divide them here."""
    cells = pa.array([FIT_SPLIT] * traces.table.num_rows)
    place = traces.table.schema.get_field_index("split")
    return replace(traces, table=traces.table.set_column(place, "split", cells))


def with_operands(traces: TraceSet) -> TraceSet:
    """What rules can say and the family lacks: ``round``, and low values of the record's own signals."""
    own = [name for name in traces.signal_names if name not in SIGNALS]
    table = Measures(traces).signals(own) if own else None
    added = {} if table is None else {f"{OPERAND}minus_{name}": -table.signal(name) for name in own}
    rounds = np.arange(1.0, traces.n_rounds + 1)
    added[f"{OPERAND}round"] = np.where(traces.exists, rounds, np.nan)
    return with_values(traces, added)


def records_of(path: str, *, mixed: bool = False) -> Iterator[Record]:
    """The record, then its larger question types."""
    measures = Measures(with_operands(in_one_split(read_traces(path)))).by(None)
    name = Path(path).stem if Path(path).stem != "record" else "shipped record"
    yield replace(record_of(name, measures), mixed=mixed)
    kinds = np.array([question.type or "" for question in measures.traces.questions])
    large = [
        kind for kind, count in sorted(Counter(kinds.tolist()).items()) if kind and count >= FEWEST
    ]
    for kind in large if len(large) > 1 else []:
        yield replace(record_of(f"{PART}{kind}", measures.take(kinds == kind)), mixed=mixed)


# --- tables --------------------------------------------------------------------------------------
def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + "\n"


def points(interval: Interval) -> str:
    """In hundredths of the score."""
    estimate, low, high = (100 * one for one in (interval.estimate, interval.low, interval.high))
    return f"{estimate:+.1f} [{low:+.1f}, {high:+.1f}]"


def show(rows: Sequence[Row]) -> str:
    """The tables of all records that were not cut; Holm over all their comparisons."""
    p_values = holm(np.array([row.told[name].p_value for row in rows for name in LEARNED]))
    adjusted = p_values.reshape(len(rows), len(LEARNED))
    gained, compared, needed, at_caps, picked = [], [], [], [], []
    for row, corrected in zip(rows, adjusted, strict=True):
        record, told = row.record, row.told
        head = [record.name, str(len(record.scores))]
        gained.append(
            [*head, str(record.n_rounds), record.axis.label, str(len(record.inputs["all"])),
             *(points(told[name].gain) for name in ("rule", *LEARNED))]
        )  # fmt: skip
        compared.append(
            [
                *head,
                *(
                    f"{points(told[name].over_rule)}, {p:.2g}"
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
            at_caps.append(
                [
                    record.name,
                    f"{share:.0%}",
                    f"{row.caps[number]:,.3g}",
                    f"{100 * row.fixed[number]:.1f}",
                    *cells,
                ]
            )
        picked.append([record.name, *(told[name].chosen for name in told), f"{row.seconds:.0f}"])
    names = ["rule", *LEARNED]
    return "\n".join(
        [
            table(["record", "questions", "rounds", "cost", "signals", *names], gained),
            table(
                ["record", "questions", *(f"{name} - rule, Holm's p" for name in LEARNED)], compared
            ),
            table(
                [
                    "record",
                    "questions",
                    "best",
                    "difference",
                    "spread",
                    "alone",
                    "corrected",
                    "2 points",
                ],
                needed,
            ),
            table(["record", "cap", "cost", "fixed", *names], at_caps),
            table(["record", *names, "CPU s"], picked),
        ]
    )


def together(rows: Sequence[Row]) -> str:
    """Differences to the rule over whole records, each weighted by the inverse of its variance."""
    lines = []
    whole = [row for row in rows if not row.record.name.startswith(PART)]
    for name in LEARNED:
        parts = [(row.told[name], len(row.record.scores)) for row in whole]
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
    """Ranges of a record with cut questions: what was not seen counts 0 for one and 1 for the other."""
    lines = []
    rule = row.made["rule"]
    for name in ("rule", *LEARNED):
        made = row.made[name]
        low, high = made.scores.mean(axis=0), (made.scores + made.past).mean(axis=0)
        over = made.scores - rule.scores  # nothing for what was not seen
        ends = (over - rule.past).mean(axis=0), (over + made.past).mean(axis=0)
        for number, share in enumerate(SHARES):
            ranges = ((low, high), ends)
            own, beyond = (
                f"{100 * least[number]:+.1f} to {100 * most[number]:+.1f}" for least, most in ranges
            )
            past = f"{100 * made.past[:, number].mean():.0f}%"
            lines.append([row.record.name, name, f"{share:.0%}", own, past, beyond])
    return table(["record", "candidate", "cap", "score", "past the cut", "less the rule's"], lines)


def main(paths: list[str]) -> None:
    """Print the tables."""
    rows: list[Row] = []
    cut: list[Row] = []
    mixed = "--mixed" in paths
    for path in paths:
        for record in records_of(path, mixed=mixed) if path != "--mixed" else ():
            row = row_of(record)
            (cut if record.cut.any() else rows).append(row)
            print(f"{record.name}: {row.seconds:.0f} s of CPU", file=sys.stderr, flush=True)
    if rows:
        print(f"{show(rows)}\n{together(rows)}")
    for row in cut:
        print(show_cut(row))


if __name__ == "__main__":
    main(sys.argv[1:])
