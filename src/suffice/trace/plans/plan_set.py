"""A set of recorded runs of planning agents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError
from suffice.trace.plans.records import PlanRecord

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet:
    """Recorded runs, sorted by task, agent, retriever and seed."""

    records: tuple[PlanRecord, ...]
    source: str = "memory"
    run: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[DataError, ...] = ()
    failures: int = 0

    @property
    def n_steps(self) -> int:
        """Steps of all runs together."""
        return sum(len(record.steps) for record in self.records)

    @property
    def max_steps(self) -> int:
        """Steps of the longest run."""
        return max((len(record.steps) for record in self.records), default=0)

    def step_values(self, name: str) -> NDArray[np.float64]:
        """A value of every step, (n_runs, max_steps): NaN where undefined or past a run's last step."""
        values = np.full((len(self.records), self.max_steps), np.nan)
        for row, record in zip(values, self.records, strict=True):
            for step in record.steps:
                row[step.number - 1] = step.values.get(name, np.nan)
        return values

    @property
    def actions(self) -> NDArray[np.str_]:
        """What every step did, (n_runs, max_steps): empty past a run's last step."""
        actions = np.full((len(self.records), self.max_steps), "", dtype="U8")
        for row, record in zip(actions, self.records, strict=True):
            row[: len(record.steps)] = [step.action for step in record.steps]
        return actions

    def only(
        self,
        *,
        agent: str | None = None,
        retriever: str | EllipsisType | None = ...,
        seed: int | None = None,
    ) -> PlanSet:
        """The runs of one agent, retriever or seed; ``retriever=None``: those without a retriever."""
        chosen = tuple(
            record
            for record in self.records
            if agent in (None, record.agent)
            and retriever in (..., record.retriever)
            and seed in (None, record.seed)
        )
        if not chosen:
            names = sorted(
                {f"{run.agent}/{run.retriever or 'none'}/{run.seed}" for run in self.records}
            )
            asked = (
                "any" if agent is None else agent,
                "any" if retriever is ... else retriever or "none",
                "any" if seed is None else str(seed),
            )
            raise DataError(
                f"no run has agent/retriever/seed {'/'.join(asked)}; found: "
                f"{', '.join(names[:_MOST_NAMED]) or 'none'}",
                file=self.source,
            )
        return replace(self, records=chosen)
