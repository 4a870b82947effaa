"""A learned family alone, proven on its second half, by number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.evaluation.choose.bounds import Half, OrderedTests, Promise, mean_of
from suffice.evaluation.choose.candidates import Candidate
from suffice.evaluation.choose.proof import Learned, prove
from suffice.evaluation.replay.named_policies import NamedPolicy


@dataclass(frozen=True)
class Outcome:
    """What came of it: the member chosen (the full budget where none is proven) and all tests."""

    chosen: int
    fell_back: bool
    certified: NDArray[np.bool_]
    tests: OrderedTests
    halves: tuple[Half, Half]
    settings: Promise

    @property
    def order(self) -> NDArray[np.intp]:
        return self.tests.order

    @property
    def costs(self) -> NDArray[np.float64]:
        return self.halves[1].costs

    @property
    def p_values(self) -> NDArray[np.float64]:
        return np.asarray(self.tests.tested_at.max(axis=0))

    @property
    def learned_loss(self) -> NDArray[np.float64]:
        return mean_of(self.halves[0], self.settings.bounds[0])

    @property
    def tested_loss(self) -> NDArray[np.float64]:
        return self.tested(0)

    def tested(self, bound: int) -> NDArray[np.float64]:
        return mean_of(self.halves[1], self.settings.bounds[bound])


def _numbered(number: int) -> Candidate:
    named = NamedPolicy(name=str(number), kind="certified", preset=None, policy=None)
    return Candidate(policy=named, group="rule")


def certify(learn: Half, test: Half, full: int, settings: Promise) -> Outcome:
    (row,) = prove(
        None, Learned(candidate=_numbered, rank=learn, prove=test, full=full), [settings]
    )
    assert row.learned is not None
    tests, passed = row.learned
    certified = np.zeros(len(test.costs), np.bool_)
    certified[tests.order[:passed]] = True
    return Outcome(
        chosen=full if row.proven is None else int(row.proven.candidate.policy.name),
        fell_back=row.proven is None,
        certified=certified,
        tests=tests,
        halves=(learn, test),
        settings=settings,
    )


@dataclass(frozen=True, kw_only=True)
class Shares:
    """Of draws: with a broken promise, and with something below the full budget chosen."""

    broken: float
    early: float


def most_allowed(delta: float, draws: int) -> float:
    """Three binomial standard errors above the level."""
    return delta + 3 * float(np.sqrt(delta * (1 - delta) / draws))
