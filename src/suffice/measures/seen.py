"""What a record with cut questions shows of stops past the cut: values weighted by exploration, or bounds.

A question may end before the full budget because something stopped it. Where a live policy did, and a
share of the questions drawn with a known probability (``propensity``) ran on whatever the policy said, a stop
is known of every question up to the round at which that policy says stop, drawn or not; past it the drawn
ones stand for all (Horvitz and Thompson). Past any other cut nothing was seen.

So the scores and costs of a record, (n_questions, n_rounds), become others of the same shape, whose mean over
questions at the stops of a policy estimates what it would have scored and paid had nothing been cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.measures.scores import Outcomes
from suffice.scoring import Weights
from suffice.trace.loops import in_words
from suffice.trace.rounds.reader import answer_banners
from suffice.trace.rounds.records import POLICY_STOP
from suffice.trace.rounds.table import TraceSet

CUTS = ("policy", "budget", "gold", "user", "error")
"""The ends (``stopped_by``) that are cuts where they come before the full budget."""

Array = NDArray[np.float64]
Stops = NDArray[np.int16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Weighing:
    """The weights of questions in an estimate: ``total``, ``largest``, and how many equal ones say as much.

    ``past`` counts explored questions that stand for others, ``share`` is the part of the total that is
    theirs.
    """

    total: float
    largest: float
    effective: float
    past: int
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """How far each question of a record with cut ones was seen, everything (n_questions,).

    Parameters
    ----------
    budget
        The full budget, in rounds.
    last
        The last recorded round.
    until
        The last stop that is known whether the question was drawn to run on or not: where the running
        policy said stop; ``budget``: it never did, or none was drawn.
    weight
        What stops past ``until`` count: 1/propensity where the question was explored, 0 where it was cut.
    unseen
        Whether stops past ``last`` were neither seen nor are stood for.
    explored
        Whether it ran on past its policy's stop because it was drawn.
    propensity
        The probability of that, 1 where there was no draw.
    causes
        What cut how many.
    untold
        Questions drawn with a propensity of which the record does not say where their policy said stop,
        and those logged alike: bounded, since an explored one cannot be told from one never stopped.
    """

    budget: int
    last: Stops
    until: Stops
    weight: Array
    unseen: NDArray[np.bool_]
    explored: NDArray[np.bool_]
    propensity: Array
    causes: Mapping[str, int]
    untold: int = 0

    @classmethod
    def whole(cls, traces: TraceSet) -> Seen:
        """All of a record without cut questions."""
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
    def stood_for(self) -> NDArray[np.bool_]:
        """Questions that their policy cut, for which explored ones stand."""
        return np.asarray(self.weight == 0)

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Questions that were cut."""
        return self.unseen | self.stood_for

    @property
    def n_cut(self) -> int:
        """How many questions were cut."""
        return sum(self.causes.values())

    def stops(self, wanted: Stops) -> Stops:
        """The columns of the matrices at which a policy stops that wants these rounds."""
        return np.minimum(wanted, self.budget).astype(np.int16)

    def weights(self, stops: Stops) -> Array:
        """What every question counts at these stops: 1 where it is known of all."""
        return np.where(stops > self.until, self.weight, 1.0)

    def lacking(self, stops: Stops) -> NDArray[np.bool_]:
        """Questions of which these stops were not seen and are not stood for."""
        return np.asarray(self.unseen & (stops > self.last) & (self.weights(stops) > 0))

    def weighing(self, stops: Stops) -> Weighing:
        """The weights of an estimate at these stops."""
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
        weights: Weights = "ht",
        among: NDArray[np.bool_] | None = None,
    ) -> Array:
        """``values`` (n_questions, n_rounds) at these stops, weighted, (n_questions,).

        Their mean is the estimate, also over any part drawn without regard to ``explored``.

        Parameters
        ----------
        values
            What stopping after each round scores or costs, as recorded.
        unseen
            What stands for values that were not seen, a number or (n_questions,): NaN, or a bound.
        weights
            ``self-normalised``: past ``until`` each is the explored questions' mean and, where explored, what
            it differs from that, so that the spread of the values is that of the ratio.
        among
            Of which questions that mean is taken: those that have values; ``None``: all.
        """
        rows = np.arange(len(values))
        there = np.maximum(np.minimum(stops, self.last), 1)
        taken = np.where(self.unseen & (stops > self.last), unseen, values[rows, there - 1])
        weight = self.weights(stops)
        if weights == "ht":
            return np.where(weight > 0, weight * taken, 0.0)
        past = stops > self.until
        if among is not None:
            past &= among
        known = past & (weight > 0)
        if not known.any():
            return np.where(past, np.nan, taken)
        whole = float(weight[known].sum())
        mean = float((weight[known] * taken[known]).sum()) / whole
        off = np.where(known, weight * (taken - mean), 0.0) * (past.sum() / whole)
        return np.where(past, mean + off, taken)

    def matrix(
        self,
        values: Array,
        *,
        unseen: float | Array = np.nan,
        weights: Weights = "ht",
        among: NDArray[np.bool_] | None = None,
    ) -> Array:
        """:meth:`at` for stops after every round, (n_questions, n_rounds)."""
        every = np.empty_like(values)
        for number in range(1, values.shape[1] + 1):
            stops = np.full(len(values), number, np.int16)
            every[:, number - 1] = self.at(
                values, stops, unseen=unseen, weights=weights, among=among
            )
        return every

    @property
    def reach(self) -> float:
        """The greatest weight that a question could have had, at least 1."""
        return float(1.0 / self.propensity[self.weight != 1.0].min(initial=1.0))

    def anchored(self, values: Array, unseen: float | Array) -> Array:
        """:meth:`matrix` with less spread, as unbiased: stops at ``until`` stand for later ones.

        The explored questions tell how far these are from it (augmented inverse propensity weights). Of
        values in [0, 1] a difference of two columns lies within :attr:`reach` of 0.
        """
        rounds, rows = np.arange(1, values.shape[1] + 1), np.arange(len(values))
        there = np.maximum(np.minimum(rounds, self.last[:, None]), 1)
        taken = np.take_along_axis(values, there.astype(np.intp) - 1, axis=1)
        bound = np.broadcast_to(np.asarray(unseen), (len(values),))[:, None]
        taken = np.where(self.unseen[:, None] & (rounds > self.last[:, None]), bound, taken)
        at_until = values[rows, np.clip(np.minimum(self.until, self.last), 1, None) - 1]
        anchor = np.where(self.until > 0, at_until, 0.0)[:, None]
        weight = self.weight[:, None]
        off = np.where(weight > 0, weight * (taken - anchor), 0.0)
        return np.where(rounds > self.until[:, None], anchor + off, taken)

    def paid(self, costs: Array) -> Array:
        """Costs (n_questions, n_rounds) as they count in a mean; what was not seen costs what was."""
        return self.anchored(costs, costs[np.arange(len(self.last)), self.last - 1])

    def outcomes(
        self, scored: Outcomes, *, unseen: float = np.nan, weights: Weights = "ht"
    ) -> Outcomes:
        """Scores weighted as :meth:`matrix`, of labelled questions; ``unseen`` 0 and 1 bound them."""
        seen, labelled = self.of(scored), scored.labelled

        def every(values: Array) -> Array:
            weighted = seen.matrix(values, unseen=unseen, weights=weights, among=labelled)
            return np.where(labelled[:, None], weighted, np.nan)

        em, f1, acc = every(scored.em), every(scored.f1), every(scored.acc)
        return replace(scored, em=em, f1=f1, acc=acc)

    def take(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> Seen:
        """That of some of the questions; ``causes`` and ``untold`` stay those of all."""
        return replace(
            self,
            last=self.last[chosen],
            until=self.until[chosen],
            weight=self.weight[chosen],
            unseen=self.unseen[chosen],
            explored=self.explored[chosen],
            propensity=self.propensity[chosen],
        )

    def of(self, scored: Outcomes) -> Seen:
        """How far these scores of the questions are known.

        Taken against the full budget's answer, nothing is known of a question that did not run to it.
        """
        none = np.zeros(len(self.last), bool)
        return self.looking_ahead(none) if scored.metric.agreement else self

    def looking_ahead(self, settled: NDArray[np.bool_]) -> Seen:
        """That for stops which depend on what lies past them, unless ``settled`` (n_questions,)."""
        ahead = ~settled
        none = np.zeros_like(self.last)
        return replace(
            self,
            until=np.where(ahead & (self.until < self.budget), none, self.until),
            last=np.where(ahead & self.unseen, none, self.last),
        )


def seen_of(traces: TraceSet, policy_stops: Stops | None = None) -> Seen | None:
    """What was seen of a record; ``None``: no question was cut.

    ``policy_stops`` (n_questions,) are stops of the policy that ran, computed for a record that does not say
    them; 0: not known.

    Of questions logged with a propensity none of which their policy cut, as of the explored ones alone, none
    is weighted.
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
    if policy_stops is not None:
        said = np.where(told | (policy_stops == 0), said, policy_stops).astype(np.int16)
        told |= policy_stops > 0
    drawn = propensity < 1
    untold = np.isin(propensity, propensity[drawn & ~by_policy & ~told]) & drawn
    drawn &= ~untold
    stood_for = drawn & by_policy & cut
    drawn &= np.isin(propensity, propensity[stood_for])
    until = np.where(stood_for, last, np.where(drawn & ~by_policy, said, budget)).astype(np.int16)
    explored = drawn & ~by_policy & (until < budget)
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
    )


def _policy_stops(traces: TraceSet) -> tuple[Stops, NDArray[np.bool_]]:
    """The first round in which the running policy said stop (the budget: none), and whether that is told."""
    if POLICY_STOP not in traces.signal_names:
        return (
            np.full(traces.n_questions, traces.n_rounds, np.int16),
            np.zeros(traces.n_questions, bool),
        )
    values, _ = traces.stored_signal(POLICY_STOP)
    stopped = values == 1.0
    first = np.where(stopped.any(axis=1), stopped.argmax(axis=1) + 1, traces.n_rounds)
    return first.astype(np.int16), ~np.isnan(values[:, 0])


# --- what must stand above any figure ----------------------------------------------------------------
def record_banners(traces: TraceSet) -> tuple[str, ...]:
    """What must stand above any figure: several loops, cut questions, rounds without an answer or blank.

    All of them are replayed all the same.
    """
    return (*_several_loops(traces), *_cut(traces), *answer_banners(traces))


def _several_loops(traces: TraceSet) -> tuple[str, ...]:
    """A sentence where the record holds questions of different loops."""
    if not (loops := traces.origin.loops):
        return ()
    names = [difference.entry for difference in loops]
    one = " ".join(f"--{name} NAME" for name in ("pipeline", "model") if name in names)
    alone = f"; for one of them: suffice traces filter {traces.at} {one} --out NEW" if one else ""
    return (
        f"SEVERAL LOOPS: the questions were not all recorded by the same loop, {in_words(loops)}: figures "
        f"are of all together, and tell questions from loops no more{alone}.",
    )


def _cut(traces: TraceSet) -> tuple[str, ...]:
    """Sentences where questions ended because something stopped them, and what is known past it."""
    if not traces.has("stopped_by"):
        return ()
    short = (traces.last_rounds < traces.n_rounds).tolist()
    ends = zip(traces.of_last_rounds("stopped_by"), short, strict=True)
    causes = Counter(end for end, early in ends if end in CUTS and (early or end != "budget"))
    if not causes:
        return ()
    told = ", ".join(f"{number:,} by {cause}" for cause, number in causes.items())
    said = [
        f"CUT RECORDS: {causes.total():,} of {traces.n_questions:,} questions were stopped early ({told})."
    ]
    seen = seen_of(traces)
    if seen is None or seen.n_cut < causes.total():
        there = "They" if seen is None else f"{causes.total() - seen.n_cut:,} of them"
        said.append(
            f"{there} ended in round {traces.n_rounds}, the last one recorded of any question, which is "
            "taken for the full budget."
        )
    if seen is not None and seen.stood_for.any():
        shares = ", ".join(f"{share:g}" for share in np.unique(seen.propensity[seen.stood_for]))
        said.append(
            f"{int(seen.explored.sum()):,} that ran on past their policy's stop, drawn with a propensity of "
            f"{shares}, stand for {int(seen.stood_for.sum()):,} that it cut: what lies past is estimated "
            "from them."
        )
    if seen is not None and seen.unseen.any():
        said.append(
            f"What lies past the cut of {int(seen.unseen.sum()):,} was not seen and nothing stands for it: "
            "figures that go there are ranges."
        )
    return (" ".join(said),)
