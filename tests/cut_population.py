"""Questions whose every round is known, and logs of a loop that ran some policy on them and cut them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.trace.rounds.records import POLICY_STOP, QuestionRecord
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet

PROFILES, ROUNDS = 20_000, 5
Array = NDArray[np.float64]
Stops = NDArray[np.int16]


def run_live(
    records: Sequence[QuestionRecord], stops: Sequence[int], explore: float | None
) -> list[QuestionRecord]:
    """What a live loop leaves of these whole questions whose policy stops them at these rounds.

    Of those that it cuts, one in ``1 / explore`` is explored; ``None``: none is.
    """
    left, early = [], 0
    for record, stop in zip(records, stops, strict=True):
        cut = stop < len(record.rounds)
        early += cut
        runs_on = not cut or (explore is not None and early % round(1 / explore) == 0)
        rounds = [
            replace(at, signals={**at.signals, POLICY_STOP: float(cut and number == stop)})
            for number, at in enumerate(record.rounds, 1)
        ]
        left.append(
            replace(
                record,
                rounds=tuple(rounds if runs_on else rounds[:stop]),
                propensity=explore,
                stopped_by=None if runs_on else "policy",
            )
        )
    return left


@dataclass(frozen=True, kw_only=True)
class Population:
    """Profiles that questions are drawn from with replacement, so that their mean is the truth.

    By round, (PROFILES, ROUNDS): ``scores`` of what would be returned, in eighths; calls ``paid`` up to and
    with it, more for hard questions; ``sure``, a noisy sign of the score, correlated within a question.
    """

    scores: Array
    paid: Array
    sure: Array

    def stops(self, above: float, *, earliest: int = 1) -> Stops:
        """Where a policy stops that asks for ``sure`` above a number in a round not before ``earliest``."""
        fires = (self.sure > above) & (np.arange(1, ROUNDS + 1) >= earliest)
        return np.where(fires.any(axis=1), fires.argmax(axis=1) + 1, ROUNDS).astype(np.int16)

    def fixed(self, budget: int) -> Stops:
        """Where fixed-``budget`` stops."""
        return np.full(PROFILES, budget, np.int16)

    @property
    def loggers(self) -> Mapping[str, Stops]:
        """Three policies that may have run: one stops early, one late, one looks at nothing."""
        return {"eager": self.stops(0.6), "wary": self.stops(1.8), "fixed-3": self.fixed(3)}

    @property
    def targets(self) -> Mapping[str, Stops]:
        """Six policies to estimate: earlier than the loggers, later, and neither."""
        return {
            "fixed-1": self.fixed(1),
            "fixed-2": self.fixed(2),
            "full": self.fixed(ROUNDS),
            "sure > 1.2": self.stops(1.2),
            "sure > 2.2": self.stops(2.2),
            "sure > 0.9 and round >= 2": self.stops(0.9, earliest=2),
        }

    def truth(self, values: Array, stops: Stops) -> float:
        """The mean of ``values`` at these stops."""
        return float(values[np.arange(PROFILES), stops - 1].mean())


def population(seed: int = 1) -> Population:
    """Some questions are answered early, some late, some never, and some lose a right answer."""
    rng = np.random.default_rng(seed)
    reached = rng.choice([1, 2, 3, 4, 5, 9], PROFILES, p=[0.35, 0.2, 0.12, 0.08, 0.05, 0.2])
    rounds = np.arange(1, ROUNDS + 1)
    right = (rounds >= reached[:, None]) & (rng.random((PROFILES, ROUNDS)) < 0.95)
    noise = 0.8 * rng.standard_normal((PROFILES, ROUNDS)) + 0.3 * rng.standard_normal((PROFILES, 1))
    return Population(
        scores=0.75 * right + rng.choice([0.0, 0.125, 0.25], (PROFILES, ROUNDS)),
        paid=np.cumsum(
            1 + rng.integers(0, 1 + np.minimum(reached, 4)[:, None], (PROFILES, ROUNDS)), 1
        ).astype(np.float64),
        sure=(1.2 * right + noise).astype(np.float32).astype(np.float64),
    )


class Log:
    """What a loop wrote that ran a policy live on questions drawn from a population.

    ``explore`` is the share drawn to run on; ``None``: none was, and no propensity is stated.
    """

    def __init__(self, drawn: Population, stops: Stops, explore: float | None) -> None:
        self._drawn, self._stops, self._explore = drawn, stops, explore

    def record(self, rows: NDArray[np.intp], seed: int, *, split: str = "tune") -> TraceSet:
        """The record of the questions with these profiles, in this order."""
        count, explore = len(rows), self._explore
        coin = np.random.default_rng([11, seed]).random(count)
        stops = self._stops[rows]
        runs_on = coin < (explore or 0.0)
        last = np.where(runs_on, ROUNDS, stops)
        at = np.repeat(np.arange(count), last)
        number = np.concatenate([np.arange(1, rounds + 1) for rounds in last.tolist()])
        cell = rows[at], number - 1
        cut = (last < ROUNDS)[at] & (number == last[at])
        says = (number == stops[at]) & (number < ROUNDS)
        right = self._drawn.scores[cell] >= 0.75
        signals = pa.MapArray.from_arrays(
            np.arange(0, 2 * len(at) + 1, 2, dtype=np.int32),
            np.tile(["sure", POLICY_STOP], len(at)),
            np.stack([self._drawn.sure[cell], says], axis=1).ravel(),
        )
        paid = np.diff(self._drawn.paid, axis=1, prepend=0.0)
        columns = {
            "question_id": np.char.mod("q%06d", np.arange(count))[at],
            "round": number.astype(np.int16),
            "question": np.char.mod("Where is %06d?", np.arange(count))[at],
            "gold_answers": pa.ListArray.from_arrays(
                np.arange(len(at) + 1, dtype=np.int32), pa.array(np.full(len(at), "Oslo"))
            ),
            "split": np.full(len(at), split),
            "answer": np.where(right, "Oslo", "Rome"),
            "score": self._drawn.scores[cell].astype(np.float32),
            "llm_calls": paid[cell].astype(np.int16),
            "propensity": None if explore is None else np.full(len(at), explore, np.float32),
            "stopped_by": pa.array(np.where(cut, "policy", "")),
            "policy_hash": np.full(len(at), "0" * 64),
            "signals": signals,
        }
        arrays = {
            name: pa.array(values, type=SCHEMA.field(name).type)
            if isinstance(values, np.ndarray)
            else values.cast(SCHEMA.field(name).type)
            for name, values in columns.items()
            if values is not None
        }
        ended = arrays["stopped_by"]
        arrays["stopped_by"] = pa.compute.if_else(pa.compute.equal(ended, ""), None, ended)
        table = pa.table(arrays)
        return TraceSet(table=table, closed_book=table.slice(0, 0))
