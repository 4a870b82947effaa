"""Loops that may end by themselves: the truth of a population, and logs of a policy that ran live on it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.policies.policy_file import policy_hash
from suffice.policies.rules.policy import Rule
from suffice.trace.rounds.records import POLICY_STOP
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin

POLICY = Rule(rule="sure > 0.5", own_signals=("sure",))
PROFILES = 20_000
Rounds = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Loops:
    """Questions of a loop with a budget, each with the round that ends it unless a policy stops it before.

    ``ends`` and ``stops``, (PROFILES,): the loop's own end, by ``by``, and where the policy fires (beyond
    the budget: never). ``right``, (PROFILES, budget): whether the answer after a round is right.
    """

    budget: int
    ends: Rounds
    by: NDArray[np.str_]
    stops: Rounds
    right: NDArray[np.bool_]

    @property
    def early(self) -> NDArray[np.bool_]:
        """Whether the policy stops the loop before its budget, if only where it would have ended anyhow."""
        return (self.stops <= self.ends) & (self.stops < self.budget)

    @property
    def ended(self) -> Rounds:
        """The round that ends the loop with the policy."""
        return np.where(self.early, self.stops, self.ends)

    @property
    def loss(self) -> float:
        """Right answers that stopping loses, per question."""
        rows = np.arange(PROFILES)
        return float(
            self.right[rows, self.ends - 1].mean() - self.right[rows, self.ended - 1].mean()
        )

    @property
    def share_saved(self) -> float:
        """Mean share of a question's rounds that stopping saves."""
        return float((1.0 - self.ended / self.ends).mean())

    def rounds_saved(self, explore: float) -> float:
        """Share of the loop's rounds that are not run, explored questions included."""
        return float((1.0 - explore) * (1.0 - self.ended.mean() / self.ends.mean()))

    def log(
        self,
        questions: int,
        seed: int,
        *,
        explore: float | None = 0.2,
        labelled: tuple[float, float, float] = (1.0, 1.0, 1.0),
        drawn: float | None = None,
    ) -> TraceSet:
        """What a live policy leaves of questions drawn with replacement.

        ``labelled``: shares of explored, stopped and other questions with a gold answer. ``drawn``: the share
        that is explored, if not the stated one. ``explore=None``: shadow, every loop runs to its own end.
        """
        rng = np.random.default_rng([questions, seed])
        rows = rng.integers(0, PROFILES, questions)
        early = self.early[rows]
        share = (explore if drawn is None else drawn) or 0.0
        runs_on = rng.random(questions) < (1.0 if explore is None else share)
        stopped = ~runs_on & ((self.stops <= self.ends) & (self.stops <= self.budget))[rows]
        last = np.where(stopped, np.minimum(self.stops, self.ends)[rows], self.ends[rows])
        by = np.where(stopped, "policy", self.by[rows])
        by[(by == "") & (last < self.budget)] = "end"
        arms = np.select([early & runs_on, early], [0, 1], 2)
        gold = rng.random(questions) < np.array(labelled)[arms]
        at = np.repeat(np.arange(questions), last)
        number = np.concatenate([np.arange(1, rounds + 1) for rounds in last.tolist()])
        fired = self.stops[rows][at] == number
        said = self.stops[rows][at] <= number
        signals = pa.MapArray.from_arrays(
            np.arange(0, 2 * len(at) + 1, 2, dtype=np.int32),
            np.tile(["sure", POLICY_STOP], len(at)),
            np.stack([fired.astype(float), said.astype(float)], axis=1).ravel(),
        )
        held = np.where(gold, 1, 0)[at]
        columns = {
            "question_id": pa.array(np.char.mod("q%06d", np.arange(questions))[at]),
            "round": pa.array(number.astype(np.int16)),
            "question": pa.array(np.char.mod("Where is %06d?", np.arange(questions))[at]),
            "gold_answers": pa.ListArray.from_arrays(
                np.concatenate([[0], np.cumsum(held)]).astype(np.int32),
                pa.array(np.full(int(held.sum()), "Oslo")),
            ),
            "answer": pa.array(np.where(self.right[rows[at], number - 1], "Oslo", "Rome")),
            "llm_calls": pa.array(np.ones(len(at), np.int16)),
            "propensity": pa.array(np.full(len(at), explore or 1.0, np.float32)),
            "stopped_by": pc.if_else(pc.equal(pa.array(by[at]), ""), None, pa.array(by[at])),
            "policy_hash": pa.array(np.full(len(at), policy_hash(POLICY))),
            "signals": signals,
        }
        if explore is None:
            del columns["propensity"]
        arrays = {name: one.cast(SCHEMA.field(name).type) for name, one in columns.items()}
        table = pa.table(arrays)
        origin = TraceSetOrigin(run={"rounds": self.budget})
        return TraceSet(table=table, closed_book=table.slice(0, 0), origin=origin)


def loops(
    *,
    budget: int = 6,
    own: float = 0.25,
    cuts: float = 0.0,
    fires: float = 0.3,
    lose: float = 0.1,
    seed: int = 1,
) -> Loops:
    """Loops that end by themselves with the chance ``own`` after a round; ``cuts`` of them by something else.

    The policy fires with the chance ``fires`` in a round; after its stop an answer turns right with the
    chance ``lose``, and wrong with a tenth of it.
    """
    rng = np.random.default_rng(seed)

    def first(chance: float, most: int) -> Rounds:
        here = rng.random((PROFILES, budget)) < chance
        return np.where(here.any(axis=1), here.argmax(axis=1) + 1, most)

    ends, stops = first(own, budget), first(fires, budget + 1)
    by = np.where(
        rng.random(PROFILES) < cuts, rng.choice(["budget", "error", "user"], PROFILES), ""
    ).astype("<U8")
    by[ends == budget] = ""
    right = np.empty((PROFILES, budget), bool)
    right[:, 0] = rng.random(PROFILES) < 0.5
    for number in range(1, budget):
        turns, drops = rng.random(PROFILES) < lose, rng.random(PROFILES) < lose / 10
        right[:, number] = np.where(right[:, number - 1], ~drops, turns)
    return Loops(budget=budget, ends=ends, by=by, stops=stops, right=right)
