"""From recorded runs to the figures of the hidden-constraint experiment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from studies.hidden_constraints.checker import names_token, satisfies
from studies.hidden_constraints.corpus.tasks import PlanningTask
from studies.hidden_constraints.results import (
    FIRST_RETRIEVED,
    MEASURES,
    AgentFigures,
    ExampleRun,
    ExampleStep,
    PairedDifference,
    StepTrace,
    TaskMean,
)
from suffice.numbers.intervals.bootstrap import percentile_interval, resampled_means
from suffice.numbers.intervals.simultaneous import simultaneous_bands
from suffice.numbers.tests.tails import beta_quantile
from suffice.policies.gate.settings import GateCosts, GateSettings
from suffice.replay.run.answers import Resampling
from suffice.trace.plans.records import PlanRecord, PlanSet


def trajectory_cost(retrievals: int, *, failed: bool, costs: GateCosts) -> float:
    """J = sum over t of c_r [a_t = RETRIEVE] + L_f [fail] (paper 4, Eq. 5), in the unit of the costs.

    ``retrievals`` are the run's queries to the retriever, ``failed`` says that the plan does not meet its
    constraint (Eq. 4).

    >>> trajectory_cost(3, failed=True, costs=GateCosts(retrieval=1, failure=2))
    5.0
    """
    return float(costs.retrieval * retrievals + costs.failure * failed)


def measured(record: PlanRecord, task: PlanningTask, costs: GateCosts) -> dict[str, float]:
    """:data:`MEASURES` of a run, and :data:`FIRST_RETRIEVED`; what is not known is left out."""
    constraint, carrying = task.constraint, set(task.document_ids)
    ranks = [
        rank
        for step in record.steps
        for rank, passage in enumerate(step.passages, start=1)
        if passage.id in carrying
    ]
    passages = [passage for step in record.steps for passage in step.passages]
    retrievals = sum(step.retrievals for step in record.steps)
    proxy = names_token(constraint, record.outcome.plan)
    semantic = record.outcome.semantic
    measures: dict[str, float | None] = {
        "semantic": None if semantic is None else float(semantic),
        "proxy": float(proxy),
        "grounded_proxy": float(proxy and bool(ranks)),
        "checked": float(satisfies(constraint, record.outcome.plan).ok),
        "covered": float(bool(ranks)),
        "token_in_document": float(
            any(names_token(constraint, passage.text or "") for passage in passages)
        ),
        "documents_read": len(passages),
        "documents_distinct": len({passage.id for passage in passages}),
        "retrievals": retrievals,
        "steps": len(record.steps),
        "llm_calls": _spent(record, "llm_calls"),
        "prompt_tokens": _spent(record, "prompt_tokens"),
        "completion_tokens": _spent(record, "completion_tokens"),
        "seconds": _spent(record, "latency_s"),
        "malformed": float(record.outcome.parsed is None),
        "trajectory_cost": None
        if semantic is None
        else trajectory_cost(retrievals, failed=not semantic, costs=costs),
        FIRST_RETRIEVED: min(ranks) if ranks else None,
    }
    return {name: float(value) for name, value in measures.items() if value is not None}


def _spent(record: PlanRecord, amount: str) -> float | None:
    """The sum over steps and outcome; unknown where any of them does not state it."""
    parts = [*(step.usage for step in record.steps), record.outcome.usage]
    amounts = [getattr(part, amount) for part in parts]
    return None if None in amounts else sum(amounts)


@dataclass(frozen=True, slots=True)
class Board:
    """Measures of every run.

    ``values[agent, retriever][measure]`` is (n_tasks, n_seeds), NaN without a run.
    """

    tasks: tuple[PlanningTask, ...]
    seeds: tuple[int, ...]
    values: Mapping[tuple[str, str | None], Mapping[str, NDArray[np.float64]]]

    @classmethod
    def of(
        cls,
        records: Iterable[PlanRecord],
        tasks: Sequence[PlanningTask],
        seeds: Sequence[int],
        costs: GateCosts,
    ) -> Board:
        """The board of the runs on these tasks with these seeds; other runs are not read.

        ``costs`` are those of the trajectory cost.
        """
        rows = {task.id: row for row, task in enumerate(tasks)}
        columns = {seed: column for column, seed in enumerate(seeds)}
        values: dict[tuple[str, str | None], dict[str, NDArray[np.float64]]] = {}
        for record in records:
            if record.task.id not in rows or record.seed not in columns:
                continue
            row, column = rows[record.task.id], columns[record.seed]
            cell = values.setdefault((record.agent, record.retriever), {})
            for name, value in measured(record, tasks[row], costs).items():
                empty = np.full((len(tasks), len(seeds)), np.nan)
                cell.setdefault(name, empty)[row, column] = value
        return cls(tasks=tuple(tasks), seeds=tuple(seeds), values=values)

    def cell(
        self, agent: str, retriever: str | None, *, seeds: int, draws: Resampling
    ) -> AgentFigures:
        """An agent's figures over the first ``seeds`` seeds."""
        arrays = {
            name: matrix[:, :seeds]
            for name, matrix in self.values.get((agent, retriever), {}).items()
        }
        steps = arrays.get("steps", np.full((len(self.tasks), seeds), np.nan))
        runs = int(np.isfinite(steps).sum())
        ranks = arrays.get(FIRST_RETRIEVED)
        covered, semantic = arrays.get("covered"), arrays.get("semantic")
        return AgentFigures(
            agent=agent,
            retriever=retriever,
            runs=runs,
            failed=steps.size - runs,
            measures={
                name: _estimate(arrays[name], draws)
                for name in MEASURES
                if name in arrays and np.isfinite(arrays[name]).any()
            },
            oracle_rank=_mean(ranks, None),
            satisfied_covered=_mean(semantic, None if covered is None else covered == 1.0),
            satisfied_uncovered=_mean(semantic, None if covered is None else covered == 0.0),
        )


def _mean(values: NDArray[np.float64] | None, where: NDArray[np.bool_] | None) -> float | None:
    if values is None:
        return None
    known = np.isfinite(values) if where is None else np.isfinite(values) & where
    return float(values[known].mean()) if known.any() else None


def _estimate(values: NDArray[np.float64], draws: Resampling) -> TaskMean:
    """The mean over tasks of each task's mean over its seeds."""
    by_task = _task_means(values)
    mean = float(by_task.mean())
    drawn = resampled_means(by_task[:, None], resamples=draws.resamples, seed=draws.seed)[:, 0]
    return TaskMean(
        mean=mean,
        clustered=percentile_interval(mean, drawn),
        seed_half_width=_seed_half_width(values),
    )


def _task_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each task's mean over its finished runs, (n,), without tasks that have none."""
    known = np.isfinite(values)
    finished = known.any(axis=1)
    means: NDArray[np.float64] = np.nansum(values[finished], axis=1) / known[finished].sum(axis=1)
    return means


def _seed_half_width(values: NDArray[np.float64]) -> float | None:
    """Half the 95% Student t interval of the seeds' means; ``None`` with fewer than two."""
    means = [
        float(column[np.isfinite(column)].mean())
        for column in values.T
        if np.isfinite(column).any()
    ]
    if len(means) < 2:
        return None
    spread = float(np.std(means, ddof=1)) / math.sqrt(len(means))
    return student_t_quantile(len(means) - 1) * spread


def student_t_quantile(degrees: int) -> float:
    """The 0.975 quantile of Student's t.

    >>> round(student_t_quantile(2), 4)
    4.3027
    """
    beta = beta_quantile(degrees / 2, 0.5, 0.05)
    return math.sqrt(degrees * (1.0 - beta) / beta)


def contrasts(
    board: Board,
    pairs: Sequence[tuple[str, str]],
    retrievers: Sequence[str],
    draws: Resampling,
) -> tuple[tuple[PairedDifference, ...], float]:
    """Paired differences of (agent, against) in every retriever and two measures, and the critical value.

    An agent without a retriever is compared in all of them. Tasks without a run of both are left out of
    all pairs, so that one bootstrap serves the family.
    """
    asked, columns = [], []
    for retriever, (agent, against), measure in product(
        retrievers, pairs, ("semantic", "documents_read")
    ):
        sides = [_of(board, name, retriever, measure) for name in (agent, against)]
        if sides[0] is not None and sides[1] is not None:
            asked.append((retriever, measure, agent, against))
            columns.append(_row_means(sides[0] - sides[1]))
    if not asked:
        return (), math.nan
    table = np.column_stack(columns)
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 2:  # nothing to resample
        return (), math.nan
    band = simultaneous_bands(
        table.shape[1],
        lambda part: table[:, part],
        [None],
        resamples=draws.resamples,
        seed=draws.seed,
    )[0]
    differences = tuple(
        PairedDifference(
            retriever=retriever,
            measure=measure,
            agent=agent,
            against=against,
            difference=band.at_once(at),
            alone=band.alone(at),
        )
        for at, (retriever, measure, agent, against) in enumerate(asked)
    )
    return differences, band.critical


def _of(board: Board, agent: str, retriever: str, measure: str) -> NDArray[np.float64] | None:
    for place in ((agent, retriever), (agent, None)):
        if place in board.values:
            return board.values[place].get(measure)
    return None


def _row_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Means of what is known in each row, NaN where nothing is."""
    known = np.isfinite(values).sum(axis=1)
    return np.where(known > 0, np.nansum(values, axis=1) / np.maximum(known, 1), np.nan)


def step_trace(plans: PlanSet, agent: str, retriever: str) -> StepTrace:
    """Confidence, contradiction and actions by step over the runs given."""
    longest = max((len(record.steps) for record in plans.records), default=0)
    steps = [
        [step for record in plans.records for step in record.steps[number : number + 1]]
        for number in range(longest)
    ]

    def defined(name: str) -> list[NDArray[np.float64]]:
        return [np.array([one.values[name] for one in at if name in one.values]) for at in steps]

    by_step = [values for values in defined("confidence") if len(values)]
    conflicts = defined("contradiction")[: len(by_step)]
    return StepTrace(
        agent=agent,
        retriever=retriever,
        count=tuple(map(len, by_step)),
        confidence=tuple(float(values.mean()) for values in by_step),
        error=tuple(
            float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
            for values in by_step
        ),
        median=tuple(float(np.median(values)) for values in by_step),
        low=tuple(float(np.percentile(values, 10)) for values in by_step),
        high=tuple(float(np.percentile(values, 90)) for values in by_step),
        contradiction=tuple(float(values.mean()) for values in conflicts),
        actions=tuple(dict(Counter(step.action for step in at)) for at in steps[: len(by_step)]),
    )


def example_run(
    records: Iterable[PlanRecord], tasks: Sequence[PlanningTask], gate: GateSettings
) -> ExampleRun | None:
    """The run that shows most of the gate: most different actions, then most steps, then the first task's.

    ``records`` are one gated agent's runs with one retriever in one seed; ``None`` where no run has a step.
    """
    order = {task.id: row for row, task in enumerate(tasks)}
    decided = [record for record in records if record.task.id in order and record.steps]
    if not decided:
        return None
    record = min(
        decided,
        key=lambda record: (
            -len({step.action for step in record.steps}),
            -len(record.steps),
            order[record.task.id],
        ),
    )
    task = tasks[order[record.task.id]]
    carrying = set(task.document_ids)
    return ExampleRun(
        agent=record.agent,
        retriever=record.retriever or "",
        task=task.id,
        goal=record.task.goal,
        seed=record.seed,
        tau_low=gate.tau_low,
        tau_high=gate.tau_high,
        steps=tuple(
            ExampleStep(
                confidence=step.values.get("confidence", math.nan),
                contradiction=step.values.get("contradiction", math.nan),
                action=step.action,
                blocked=step.blocked,
                documents=len(step.passages),
                chosen=step.chosen,
            )
            for step in record.steps
        ),
        proxy=names_token(task.constraint, record.outcome.plan),
        semantic=record.outcome.semantic,
        covered=any(passage.id in carrying for step in record.steps for passage in step.passages),
    )
