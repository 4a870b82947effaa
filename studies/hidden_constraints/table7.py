"""The paper's Table 7 from its definitions: documents by threshold under budgets and cool-downs.

The paper states neither budget, cool-down, how often candidates agree, nor how k grows. Here the candidates
of all steps agree alike, and each step after the first contradicts the plan with one probability.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.runs import TAUS
from suffice.errors import SufficeWarning
from suffice.policies.gate.gate import Gate
from suffice.results.table import Column, Table, Value
from suffice.results.tabular import Tabular

DOCUMENTS = (1.8, 6.0, 12.5, 14.9, 14.8, 15.8)
"""Mean documents of the paper's Table 7, by the thresholds of :data:`TAUS`."""
_WORDS = 20  # of two candidates together: agreements are multiples of 1/20
SHARES = np.arange(_WORDS + 1) / _WORDS
Values = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Forced:
    """A detector that finds what it is told."""

    score: float

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> Values:
        """The same score for every pair."""
        return np.full(len(pairs), self.score)


def candidates(shared: int) -> tuple[str, str]:
    """Two texts that share so many of their 20 words: SC is ``shared / 20``.

    >>> from suffice.signals.candidates import agreement
    >>> agreement(candidates(5))
    0.25
    """
    words = [f"w{number}" for number in range(_WORDS)]
    half = shared + (_WORDS - shared + 1) // 2
    return " ".join(words[:half]), " ".join([*words[:shared], *words[half:]])


def documents(gate: Gate, shared: int, conflicts: Sequence[bool]) -> int:
    """Documents the gate asks for in a task, a step for each of ``conflicts``."""
    gate.start()
    asked, plan = 0, list[str]()
    for step, conflict in enumerate(conflicts, start=1):
        gate.detector = _Forced(float(conflict))
        asked += gate.act(candidates(shared), plan, step, len(conflicts)).k
        plan.append("a step")
    return asked


def expected(budget: int, cooldown: int, depths: Counter[int]) -> Values:
    """Mean documents a task, (thresholds, agreements, probabilities of a contradiction)."""
    means = np.zeros((len(TAUS), len(SHARES), len(SHARES)))
    for at, (low, high) in enumerate(TAUS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SufficeWarning)  # the actions it can never choose
            gate = Gate.published(tau_low=low, tau_high=high, budget=budget, cooldown=cooldown)
        for depth, tasks in depths.items():
            for later in product((False, True), repeat=depth - 1):
                hits = sum(later)
                odds = SHARES**hits * (1.0 - SHARES) ** (depth - 1 - hits)
                asked = [documents(gate, shared, (False, *later)) for shared in range(_WORDS + 1)]
                means[at] += tasks * np.outer(asked, odds)
    return means / depths.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """One budget and cool-down against Table 7; errors are root mean squares over its six rows.

    ``calm`` are errors by agreement where nothing contradicts; all below are those of the best fit.
    """

    budget: int
    cooldown: int
    calm: Values
    agreement: float
    contradiction: float
    documents: tuple[float, ...]
    error: float


def fit(budget: int, cooldown: int, depths: Counter[int]) -> Fit:
    """How near a budget and a cool-down come to the paper's documents."""
    means = expected(budget, cooldown, depths)
    paper = np.array(DOCUMENTS)[:, None, None]
    errors = np.sqrt(((means - paper) ** 2).mean(axis=0))
    at = np.unravel_index(int(errors.argmin()), errors.shape)
    return Fit(
        budget=budget,
        cooldown=cooldown,
        calm=errors[:, 0],
        agreement=float(SHARES[at[0]]),
        contradiction=float(SHARES[at[1]]),
        documents=tuple(float(mean) for mean in means[:, at[0], at[1]]),
        error=float(errors[at]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Table7(Tabular):
    """Fits of Table 7; ``low`` and ``high`` bound the agreement of the ranges."""

    fits: Sequence[Fit]
    low: float
    high: float
    tasks: int

    def ranges(self) -> Iterator[tuple[float, float]]:
        """Least and greatest error within the bounds of agreement, without contradictions."""
        middle, reach = (self.low + self.high) / 2, (self.high - self.low) / 2
        within = np.abs(SHARES - middle) <= reach + 1e-9
        for one in self.fits:
            yield float(one.calm[within].min()), float(one.calm[within].max())

    def tables(self) -> Sequence[Table]:
        """The errors by agreement, then the best fits beside the paper's documents."""
        shown = [at for at in range(_WORDS + 1) if at in (0, 2, 4, 6, 8, 10, 15, 20)]
        errors = Table(
            name="Errors",
            title="Table 7: root mean square error of the mean documents over the six thresholds, by the "
            f"candidates' agreement SC where nothing contradicts, {self.tasks} tasks; then its range for SC "
            f"from {self.low:g} to {self.high:g}.",
            names=2,
            columns=(
                Column(name="budget", kind="count"),
                Column(name="cool_down", kind="count", head="cool-down"),
                *(
                    Column(
                        name=f"sc_{SHARES[at]:g}", kind="number", digits=1, head=f"{SHARES[at]:g}"
                    )
                    for at in shown
                ),
                Column(name="least", kind="number", digits=1),
                Column(name="greatest", kind="number", digits=1),
            ),
            rows=[
                [one.budget, one.cooldown, *(float(one.calm[at]) for at in shown), *span]
                for one, span in zip(self.fits, self.ranges(), strict=True)
            ],
        )
        rows: list[list[Value]] = [["paper", "", None, None, *DOCUMENTS, None]]
        for one in self.fits:
            limits = (str(one.budget), str(one.cooldown))
            rows.append([*limits, one.agreement, one.contradiction, *one.documents, one.error])
        best = Table(
            name="Best fits",
            title="Table 7: mean documents by tau_low, of the paper and of each budget's best agreement and "
            "probability of a contradiction.",
            names=2,
            columns=(
                Column(name="budget"),
                Column(name="cool_down", head="cool-down"),
                Column(name="agreement", kind="number", digits=2, head="SC"),
                Column(name="contradiction", kind="number", digits=2, head="P(CD)"),
                *(
                    Column(name=f"documents_{low:g}", kind="number", digits=1, head=f"{low:g}")
                    for low, _ in TAUS
                ),
                Column(name="error", kind="number", digits=1),
            ),
            rows=rows,
        )
        return errors, best

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {table.name: table.data() for table in self.tables()}


def table7(budgets: Sequence[int], cooldowns: Sequence[int], low: float, high: float) -> Table7:
    """Every budget with every cool-down on the tasks of hard-small."""
    tasks = generate().subset("hard-small")
    depths = Counter(task.depth for task in tasks)
    fits = [fit(budget, cooldown, depths) for budget, cooldown in product(budgets, cooldowns)]
    return Table7(fits=fits, low=low, high=high, tasks=len(tasks))
