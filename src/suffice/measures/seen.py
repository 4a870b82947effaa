"""Estimates past a cut in a record: inverse-propensity weights, or bounds.

A question is cut (censored) when something stops it before the full budget. A live policy may cut questions
while a random share of them, drawn with a known probability (``propensity``), runs on. Then every question
shows the rounds up to that policy's stop. Past it the drawn questions represent all, by inverse-propensity
weights (Horvitz and Thompson). Past any other cut the record shows nothing.

This module maps a record's scores and costs to weighted ones of the same shape, (n_questions, n_rounds).
Their mean at a policy's stops estimates the score and cost of that policy on an uncut record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError, counted
from suffice.measures.scores import Outcomes
from suffice.scoring import Metric
from suffice.stats.logistic import predicted_by_others
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.reader import answer_banners
from suffice.trace.rounds.records import CUTS, NOT_READ, POLICY_STOP
from suffice.trace.rounds.trace_set import TraceSet, in_words

_MOST = 0.5

Stops = NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """Summarize the weights in an estimate: their ``total``, the ``largest``, the ``effective`` number.

    ``past`` counts explored questions that stand for others; ``share`` is their part of the total.
    """

    total: float
    largest: float
    effective: float
    past: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """Hold how far each question of a record with cut questions was observed, (n_questions,) each."""

    budget: int  # the full one, in rounds
    last: Stops  # the last recorded round
    until: Stops
    """The last stop that is known whether the question was drawn to run on or not: where the running policy
    said stop; ``budget``: it never did, or none was drawn."""
    weight: Array
    """What stops past ``until`` count: 1/propensity where the question was explored, 0 where it was cut."""
    unseen: Mask  # whether stops past ``last`` were neither seen nor are stood for
    explored: Mask  # whether it ran on past its policy's stop because it was drawn
    propensity: Array  # the probability of that, 1 where there was no draw
    causes: Mapping[str, int]  # what cut how many
    untold: int = 0
    """Questions drawn with a propensity of which the record does not say where their policy said stop, and
    those logged alike: bounded, since an explored one cannot be told from one never stopped."""
    signals: Mapping[str, Array] = field(default_factory=dict)
    """What was recorded where the running policy said stop, by name, (n_questions,) each, without gaps."""
    counts: Array | float = 1.0
    """How many a question counts for, mean 1: a labeled one represents the unlabeled ones of its arm."""

    @classmethod
    def whole(cls, traces: TraceSet) -> Seen:
        """Return all of a record without cut questions."""
        last, budget = traces.last_rounds, traces.n_rounds
        none, one = np.zeros(len(last), bool), np.ones(len(last))
        return cls(
            budget=budget,
            last=last,
            until=np.full(len(last), budget, np.int16),
            weight=one,
            unseen=none,
            explored=none,
            propensity=one,
            causes={},
        )

    @property
    def stood_for(self) -> Mask:
        """Say which cut questions are represented by explored ones."""
        return np.asarray(self.weight == 0)

    @property
    def cut(self) -> Mask:
        return self.unseen | self.stood_for

    @property
    def n_cut(self) -> int:
        return sum(self.causes.values())

    def stops(self, wanted: Stops) -> Stops:
        """Limit the wanted stops to the full budget."""
        return np.minimum(wanted, self.budget).astype(np.int16)

    def weights(self, stops: Stops) -> Array:
        """Return the weight of every question at these stops: 1 where all were observed."""
        return np.where(stops > self.until, self.weight, 1.0)

    def lacking(self, stops: Stops) -> Mask:
        """Say which questions were not observed at these stops and are not represented."""
        return np.asarray(self.unseen & (stops > self.last) & (self.weights(stops) > 0))

    def weighing(self, stops: Stops) -> Weighing:
        weights = self.weights(stops)
        past = self.explored & (stops > self.until)
        total = float(weights.sum())
        return Weighing(
            total=total,
            largest=float(weights.max(initial=0.0)),
            effective=total**2 / float((weights**2).sum()) if total else 0.0,
            past=int(past.sum()),
            share=float(weights[past].sum()) / total if total else 0.0,
        )

    def at(
        self,
        values: Array,
        stops: Stops,
        *,
        unseen: float | Array = np.nan,
        among: Mask | None = None,
    ) -> Array:
        """Return weighted ``values`` (n_questions, n_rounds) at these stops, (n_questions,).

        Their mean over the questions ``among`` which there are values (``None``: all) is the estimate. The
        same holds for any part drawn without regard to ``explored``. ``unseen`` replaces values that were not
        observed.

        Past ``until`` every question is predicted. Explored ones add 1/propensity times the error of that
        (augmented weights, Robins, Rotnitzky and Zhao 1994). This is unbiased whatever the prediction.
        """
        some = np.ones(len(values), bool) if among is None else among
        if (seen := self.standing(some)) is not self:
            return seen.at(values, stops, unseen=unseen, among=among)
        taken = self._taken(values, stops, unseen, self.unseen)
        past, labels = (stops > self.until) & some, self._label_weights(some)
        if (self.stood_for & some).any():
            weight = self.weights(stops)
            expected = self._expected(values, stops, past, some, unseen)
            off = np.where(past & (weight > 0), weight * (taken - expected), 0.0)
            taken = np.where(past & (weight != 1.0), expected + off, taken)
        if (labels[some] == 1.0).all():
            return taken
        # near the mean, for the spread of a ratio; of no stop, so that values at several may be mixed
        centre = _weighted_mean(self._at_until(values)[some], labels[some])
        return np.asarray(centre + labels * (taken - centre))

    def _taken(self, values: Array, stops: Stops | int, unseen: float | Array, cut: Mask) -> Array:
        """Return ``values`` at these stops, ``unseen`` past the end of questions that were ``cut``."""
        there = np.maximum(np.minimum(stops, self.last), 1) - 1
        at = values[np.arange(len(values)), there]
        return np.where(cut & (stops > self.last), unseen, at)

    def _expected(
        self, values: Array, stops: Stops, past: Mask, some: Mask, unseen: float | Array
    ) -> Array:
        """Predict the value at stops ``past`` from the other explored questions, round by round."""
        expected = self._at_until(values)
        inputs = np.column_stack([expected, self.until, *self.signals.values()])
        for number in np.unique(stops[past]).tolist():
            further = (self.until < number) & some
            at = self._taken(values, number, unseen, self.unseen)
            known = (further & (self.weight > 0) & ~np.isnan(at))[further]
            otherwise = inputs[further, 0]
            predicted = predicted_by_others(inputs[further], at[further], known, otherwise)
            here = past & (stops == number)
            expected[here] = predicted[here[further]]
        return expected

    def _at_until(self, values: Array) -> Array:
        """Return the values at the running policy's stop; 0 where nothing is known."""
        there = np.clip(np.minimum(self.until, self.last), 1, None) - 1
        return np.where(self.until > 0, values[np.arange(len(values)), there], 0.0)

    def _label_weights(self, some: Mask) -> Array:
        """Weight labeled questions, mean 1, so that explored, cut and other ones keep their shares.

        So they do for every propensity. If no explored question or no cut one of it is labeled, the other
        kind stands for both.
        """
        drawn = self.explored | self.stood_for
        arms = [~drawn]
        for propensity in np.unique(self.propensity[drawn]):
            here = drawn & (self.propensity == propensity)
            both = [here & self.explored, here & self.stood_for]
            arms += both if all((arm & some).any() for arm in both) else [here]
        shares = [(arm, int(arm.sum()), int((arm & some).sum())) for arm in arms]
        held = [(arm, size, known) for arm, size, known in shares if known]
        weights = np.ones(len(some)) * self.counts
        if len({size * len(some) / known for _, size, known in held}) > 1:
            for arm, size, known in held:
                weights[arm] *= size / known
        elif (weights == 1.0).all():
            return weights
        return np.asarray(weights / weights[some].mean())

    def standing(self, some: Mask) -> Seen:
        """Let explored questions stand for themselves where ``some`` have no cut one of their propensity."""
        represented = self.propensity[self.stood_for & some]
        alone = (self.weight > 1.0) & ~np.isin(self.propensity, represented)
        if not alone.any():
            return self
        until = np.where(alone, self.budget, self.until).astype(np.int16)
        return replace(self, until=until, weight=np.where(alone, 1.0, self.weight))

    def by_labels(self, labelled: Mask) -> Seen:
        """Return labeled questions as if all were labeled: within an arm each counts for 1 / its label rate.

        Arms are explored, cut and other questions, by propensity. If no cut question of it is labeled, the
        explored ones stand for them without weights. Explored or other questions of which none is labeled
        are a UsageError: nothing represents them.
        """
        drawn = self.explored | self.stood_for
        strata = [self.propensity == one for one in np.unique(self.propensity[drawn])]
        arms = [("other", ~drawn), *(("explored", self.explored & here) for here in strata)]
        for name, arm in arms:
            if arm.any() and not (arm & labelled).any():
                raise UsageError(
                    f"none of {counted(int(arm.sum()), f'{name} question')} has a label, so nothing says "
                    "what stopping loses there; label a random part of them: suffice traces label"
                )
        return replace(
            self.standing(labelled).take(labelled), counts=self._label_weights(labelled)[labelled]
        )

    def bounds(self, values: Array, stops: Stops, unseen: float | Array) -> Array:
        """Return ``values`` at these stops where they were recorded, else ``unseen``, (n_questions,)."""
        return self._taken(values, stops, unseen, self.cut)

    def _after_every_round(self, values: Array) -> Array:
        ends = np.maximum(np.minimum(np.arange(1, values.shape[1] + 1), self.last[:, None]), 1)
        return np.take_along_axis(values, ends.astype(np.intp) - 1, axis=1)

    def matrix(
        self, values: Array, *, unseen: float | Array = np.nan, among: Mask | None = None
    ) -> Array:
        """Return :meth:`at` for stops after every round, (n_questions, n_rounds)."""
        if not self.cut.any():
            return self._after_every_round(values)
        every = np.empty_like(values)
        for number in range(1, values.shape[1] + 1):
            stops = np.full(len(values), number, np.int16)
            every[:, number - 1] = self.at(values, stops, unseen=unseen, among=among)
        return every

    @property
    def reach(self) -> float:
        """Return the greatest possible weight of a question, at least 1, whichever were explored."""
        drawn = (self.weight == 0.0) | (self.weight > 1.0)
        return float((np.where(drawn, 1.0 / self.propensity, 1.0) * self.counts).max(initial=1.0))

    def anchored(self, values: Array, unseen: float | Array) -> Array:
        """Return :meth:`matrix` with less spread: a later stop counts as the stop at ``until``.

        Explored questions correct the difference (augmented inverse-propensity weights), so it stays
        unbiased. For values in [0, 1], two columns differ by at most :attr:`reach`.
        """
        rounds = np.arange(1, values.shape[1] + 1)
        taken = self._after_every_round(values)
        bound = np.broadcast_to(np.asarray(unseen), (len(values),))[:, None]
        taken = np.where(self.unseen[:, None] & (rounds > self.last[:, None]), bound, taken)
        anchor = self._at_until(values)[:, None]
        weight = self.weight[:, None]
        off = np.where(weight > 0, weight * (taken - anchor), 0.0)
        return np.where(rounds > self.until[:, None], anchor + off, taken)

    def paid(self, costs: Array) -> Array:
        """Weight costs (n_questions, n_rounds) for a mean; unobserved rounds cost what was observed."""
        known = self.anchored(costs, costs[np.arange(len(self.last)), self.last - 1])
        return np.asarray(known * np.broadcast_to(self.counts, len(known))[:, None])

    def outcomes(self, scored: Outcomes) -> Outcomes:
        """Weight the scores of labeled questions as :meth:`matrix`."""
        seen, labelled = self.of(scored), scored.labelled

        def every(values: Array) -> Array:
            return np.where(labelled[:, None], seen.matrix(values, among=labelled), np.nan)

        em, f1, acc = every(scored.em), every(scored.f1), every(scored.acc)
        return replace(scored, em=em, f1=f1, acc=acc)

    def take(self, chosen: Mask | NDArray[np.intp]) -> Seen:
        """Return some of the questions; ``causes`` and ``untold`` stay those of all."""
        names = ("last", "until", "weight", "unseen", "explored", "propensity")
        taken: dict[str, Any] = {name: getattr(self, name)[chosen] for name in names}
        signals = {name: values[chosen] for name, values in self.signals.items()}
        counts = np.broadcast_to(self.counts, len(self.last))[chosen]
        return replace(self, **taken, signals=signals, counts=counts)

    def of(self, scored: Outcomes) -> Seen:
        """Return how far these scores are known.

        For agreement, nothing is known of a question that did not run to the full budget.
        """
        if not scored.metric.agreement:
            return self
        none = np.zeros_like(self.last)
        return replace(
            self,
            until=np.where(self.until < self.budget, none, self.until),
            last=np.where(self.unseen, none, self.last),
        )


def seen_of(traces: TraceSet) -> Seen | None:
    """Return how far a record's questions were observed; ``None`` if none was cut.

    Questions with a propensity get no weights if their policy cut none of them. A file with only explored
    questions is an example.
    """
    if not traces.has("stopped_by"):
        return None
    last, budget = traces.last_rounds, traces.n_rounds
    ends = traces.of_last_rounds("stopped_by")
    cut = np.array([end in CUTS for end in ends], bool) & (last < budget)
    if not cut.any():
        return None
    by_policy = np.array([end == "policy" for end in ends], bool)
    # as it was typed: the column holds it in single precision
    stated = (1.0 if p is None else p for p in traces.of_questions("propensity"))
    propensity = np.array([float(f"{p:.6g}") for p in stated])
    said, told = _policy_stops(traces)
    drawn = propensity < 1
    untold = np.isin(propensity, propensity[drawn & ~by_policy & ~told]) & drawn
    drawn &= ~untold
    stopped, ran_on = stop_arms(np.where(by_policy, last, said), by_policy, budget)
    stood_for = drawn & stopped
    drawn &= np.isin(propensity, propensity[stood_for])
    until = np.where(stood_for, last, np.where(drawn & ~by_policy, said, budget)).astype(np.int16)
    explored = drawn & ran_on
    weight = np.where(explored, 1 / propensity, np.where(stood_for, 0.0, 1.0))
    return Seen(
        budget=budget,
        last=last,
        until=until,
        weight=weight,
        unseen=cut & ~stood_for,
        explored=explored,
        propensity=propensity,
        causes=Counter(end for end, early in zip(ends, cut.tolist(), strict=True) if early),
        untold=int(untold.sum()),
        signals=_signals_at(traces, until, explored | stood_for) if explored.any() else {},
    )


def stop_arms(said: NDArray[Any], by_policy: Mask, budget: int) -> tuple[Mask, Mask]:
    """Return which questions were stopped early where it was ``said``, and which explored, (n_questions,)."""
    early = said < budget  # an explored loop may end by itself in that very round
    return early & by_policy, early & ~by_policy


def _weighted_mean(values: Array, weights: Array) -> float:
    """Return the weighted mean of defined values; NaN if there are none."""
    known = ~np.isnan(values)
    total = float(weights[known].sum())
    return float((weights[known] * values[known]).sum()) / total if total else np.nan


def _signals_at(traces: TraceSet, until: Stops, drawn: Mask) -> dict[str, Array]:
    """Return signals at the stops that most ``drawn`` questions have, by name, (n_questions,) each."""
    rows, there = np.arange(len(until)), np.clip(np.minimum(until, traces.last_rounds), 1, None) - 1
    signals = {}
    for name in traces.signal_names:
        values = traces.stored_signal(name)[0][rows, there]
        defined = np.isfinite(values[drawn])
        if name not in NOT_READ and defined.mean() > _MOST:
            mean = float(values[drawn][defined].mean())
            signals[name] = np.where(np.isfinite(values), values, mean)
    return signals


def _policy_stops(traces: TraceSet) -> tuple[Stops, Mask]:
    """Return the first round of the running policy's stop (none: the budget), and whether it is known."""
    if POLICY_STOP not in traces.signal_names:
        return (
            np.full(traces.n_questions, traces.n_rounds, np.int16),
            np.zeros(traces.n_questions, bool),
        )
    values, _ = traces.stored_signal(POLICY_STOP)
    stopped = values == 1.0
    first = np.where(stopped.any(axis=1), stopped.argmax(axis=1) + 1, traces.n_rounds)
    return first.astype(np.int16), ~np.isnan(values[:, 0])


def record_banners(traces: TraceSet, metric: Metric | None = None) -> tuple[str, ...]:
    """Return what must stand above any figure: several loops, cut questions, missing or blank answers.

    Scores of the record's own need no answers; without ``metric`` they count where no gold answer is.
    """
    own = traces.has("score") and not labelled(traces).any()
    needed = not own if metric is None else metric.against != "scores"
    answers = answer_banners(traces) if needed else ()
    return (*_several_loops(traces), *_cut(traces), *answers)


def _several_loops(traces: TraceSet) -> tuple[str, ...]:
    if not (loops := traces.origin.loops):
        return ()
    names = [difference.entry for difference in loops]
    one = " ".join(f"--{name} NAME" for name in ("pipeline", "model") if name in names)
    alone = f". For one of them: suffice traces filter {traces.at} {one} --out NEW" if one else ""
    return (
        f"SEVERAL LOOPS: different loops recorded these questions, {in_words(loops)}. Figures are over "
        f"all of them, and a difference between questions may be one between loops{alone}.",
    )


def _cut(traces: TraceSet) -> tuple[str, ...]:
    """Say which questions were stopped early, and what is known past that."""
    if not traces.has("stopped_by"):
        return ()
    short = (traces.last_rounds < traces.n_rounds).tolist()
    ends = zip(traces.of_last_rounds("stopped_by"), short, strict=True)
    causes = Counter(end for end, early in ends if end in CUTS and (early or end != "budget"))
    if not causes:
        return ()
    by = ", ".join(f"{number:,} by {cause}" for cause, number in causes.items())
    said = [
        f"CUT RECORDS: {causes.total():,} of {counted(traces.n_questions, 'question')} stopped early ({by})."
    ]
    seen = seen_of(traces)
    if seen is None or seen.n_cut < causes.total():
        there = "They" if seen is None else f"{causes.total() - seen.n_cut:,} of them"
        budget = (
            "the full budget."
            if traces.stated_rounds == traces.n_rounds
            else "the last round of any question. THE FULL BUDGET IS NOT KNOWN; that round is assumed. "
            "suffice.Watch(..., max_rounds=N) records it."
        )
        said.append(f"{there} ended in round {traces.n_rounds}, {budget}")
    if seen is not None and seen.stood_for.any():
        shares = ", ".join(f"{share:g}" for share in np.unique(seen.propensity[seen.stood_for]))
        said.append(
            f"{int(seen.explored.sum()):,} explored questions (propensity {shares}) were not stopped. They "
            f"represent {int(seen.stood_for.sum()):,} that were, so later rounds can be estimated."
        )
    if seen is not None and seen.unseen.any():
        said.append(
            f"No explored question represents {int(seen.unseen.sum()):,} others: figures of their later "
            "rounds are ranges."
        )
    return (" ".join(said),)
