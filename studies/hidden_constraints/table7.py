"""The paper's Table 7 from its definitions: documents by threshold under budgets and cool-downs.

The paper states neither budget, cool-down, how often candidates agree, nor how k grows. Here the candidates
of all steps agree alike, and each step after the first contradicts the plan with one probability.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.runs import TAUS
from suffice.errors import SufficeWarning
from suffice.policies.gate.gate import Gate
from suffice.results.table import Column, Table, Value

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

    >>> from suffice.signals.samples import agreement
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


def table7(
    budgets: Sequence[int], cooldowns: Sequence[int], low: float, high: float
) -> tuple[Table, Table]:
    """How near budgets and cool-downs come to the paper's documents on the tasks of hard-small.

    Errors are root mean squares over the six thresholds: by agreement where nothing contradicts, with their
    range for agreement from ``low`` to ``high``; then those of each budget's best fit.
    """
    tasks = generate().subset("hard-small")
    depths = Counter(task.depth for task in tasks)
    shown = [at for at in range(_WORDS + 1) if at in (0, 2, 4, 6, 8, 10, 15, 20)]
    within = np.abs(SHARES - (low + high) / 2) <= (high - low) / 2 + 1e-9
    calm: list[list[Value]] = []
    fits: list[list[Value]] = [["paper", "", None, None, *DOCUMENTS, None]]
    for budget, cooldown in product(budgets, cooldowns):
        means = expected(budget, cooldown, depths)
        errors = np.sqrt(((means - np.array(DOCUMENTS)[:, None, None]) ** 2).mean(axis=0))
        own = errors[:, 0]
        span = (float(own[within].min()), float(own[within].max()))
        calm.append([budget, cooldown, *(float(own[at]) for at in shown), *span])
        best = np.unravel_index(int(errors.argmin()), errors.shape)
        shares = (float(SHARES[at]) for at in best)
        found = (float(mean) for mean in means[:, best[0], best[1]])
        fits.append([str(budget), str(cooldown), *shares, *found, float(errors[best])])
    return (
        Table(
            name="Errors",
            title="Table 7: root mean square error of the mean documents over the six thresholds, by the "
            f"candidates' agreement SC where nothing contradicts, {len(tasks)} tasks; then its range for SC "
            f"from {low:g} to {high:g}.",
            names=2,
            columns=(
                Column(name="budget", kind="count"),
                Column(name="cool_down", kind="count", head="cool-down"),
                *(_figure(f"sc_{SHARES[at]:g}", f"{SHARES[at]:g}") for at in shown),
                *(_figure("least"), _figure("greatest")),
            ),
            rows=calm,
        ),
        Table(
            name="Best fits",
            title="Table 7: mean documents by tau_low, of the paper and of each budget's best agreement and "
            "probability of a contradiction.",
            names=2,
            columns=(
                Column(name="budget"),
                Column(name="cool_down", head="cool-down"),
                _figure("agreement", "SC", digits=2),
                _figure("contradiction", "P(CD)", digits=2),
                *(_figure(f"documents_{low:g}", f"{low:g}") for low, _ in TAUS),
                _figure("error"),
            ),
            rows=fits,
        ),
    )


def _figure(name: str, head: str | None = None, *, digits: int = 1) -> Column:
    return Column(name=name, kind="number", digits=digits, head=head)
