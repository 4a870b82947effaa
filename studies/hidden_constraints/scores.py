"""From recorded runs to the rows of the hidden-constraint experiment."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from studies.command import mean_intervals
from studies.hidden_constraints.checker import names_token, satisfies
from studies.hidden_constraints.corpus.tasks import PlanningTask
from suffice.evaluation.replay.answers import Resampling
from suffice.policies.gate.gate_settings import GateCosts
from suffice.stats.p_values import beta_quantile
from suffice.stats.simultaneous import simultaneous_bands
from suffice.trace.plan_traces import PlanRecord

Array = NDArray[np.float64]
Row = dict[str, Any]
Board = Mapping[tuple[str, str | None], Mapping[str, Array]]
"""Measures of every run by agent and retriever, each (n_tasks, n_seeds), NaN without a run."""

MEASURES = (
    *("semantic", "proxy", "grounded_proxy", "documents_read", "retrievals", "steps", "checked"),
    *("covered", "token_in_document", "documents_distinct", "llm_calls", "prompt_tokens"),
    *("completion_tokens", "seconds", "malformed", "trajectory_cost"),
)
"""What is measured of a run.

``semantic``: the judge says the plan satisfies the constraint. ``proxy``: its token stands in the plan.
``grounded_proxy``: and a document that carries it was retrieved. ``checked``: the deterministic checker's
word. ``covered``: such a document was retrieved. ``token_in_document``: some retrieved text holds the token.
``documents_read`` counts repeats, as the paper does; ``documents_distinct`` does not. ``malformed``: the
final JSON could not be read. ``trajectory_cost``: J = sum over t of c_r [a_t = RETRIEVE] + L_f [fail]
(paper 4, Eq. 5).
"""
_COUNTED = ("llm_calls", "prompt_tokens", "completion_tokens")
_RANK = "oracle_rank"  # of the first document with the constraint, in the best retrieval of a run


def measured(record: PlanRecord, task: PlanningTask, costs: GateCosts) -> dict[str, float]:
    """:data:`MEASURES` of a run and its rank; what is not known is left out."""
    constraint, semantic = task.constraint, record.outcome.semantic
    passages = [passage for step in record.steps for passage in step.passages]
    retrievals = sum(step.retrievals for step in record.steps)
    ranks = [
        rank
        for step in record.steps
        for rank, passage in enumerate(step.passages, start=1)
        if passage.id in task.document_ids
    ]
    proxy = names_token(constraint, record.outcome.plan)
    measures: dict[str, float | None] = {
        "semantic": semantic,
        "proxy": proxy,
        "grounded_proxy": proxy and bool(ranks),
        "checked": satisfies(constraint, record.outcome.plan).ok,
        "covered": bool(ranks),
        "token_in_document": any(
            names_token(constraint, passage.text or "") for passage in passages
        ),
        "documents_read": len(passages),
        "documents_distinct": len({passage.id for passage in passages}),
        "retrievals": retrievals,
        "steps": len(record.steps),
        **{name: _spent(record, name) for name in _COUNTED},
        "seconds": _spent(record, "latency_s"),
        "malformed": record.outcome.parsed is None,
        "trajectory_cost": None
        if semantic is None
        else costs.retrieval * retrievals + costs.failure * (not semantic),
        _RANK: min(ranks, default=None),
    }
    return {name: float(value) for name, value in measures.items() if value is not None}


def _spent(record: PlanRecord, amount: str) -> float | None:
    """The sum over steps and outcome; unknown where any of them does not state it."""
    parts = [*(step.usage for step in record.steps), record.outcome.usage]
    amounts = [getattr(part, amount) for part in parts]
    return None if None in amounts else sum(amounts)


def board_of(
    records: Iterable[PlanRecord],
    tasks: Sequence[PlanningTask],
    seeds: Sequence[int],
    costs: GateCosts,
) -> Board:
    """The runs, on these tasks with these seeds; ``costs`` are those of the trajectory cost."""
    rows = {task.id: row for row, task in enumerate(tasks)}
    board: dict[tuple[str, str | None], dict[str, Array]] = {}
    for record in records:
        row = rows[record.task.id]
        cell = board.setdefault((record.agent, record.retriever), {})
        for name, value in measured(record, tasks[row], costs).items():
            empty = np.full((len(tasks), len(seeds)), np.nan)
            cell.setdefault(name, empty)[row, seeds.index(record.seed)] = value
    return board


def figures(
    board: Board, place: tuple[str, str | None], shape: tuple[int, int], draws: Resampling
) -> Row:
    """An agent with a retriever over (tasks, first seeds); a measure no run has is ``None``.

    ``satisfied_covered`` and ``satisfied_uncovered`` are semantic success where a document that carries the
    constraint was retrieved, and where none was.
    """
    arrays = {name: values[:, : shape[1]] for name, values in board.get(place, {}).items()}
    empty = np.full(shape, np.nan)
    semantic, covered = arrays.get("semantic", empty), arrays.get("covered", empty)
    runs = int(np.isfinite(arrays.get("steps", empty)).sum())
    intervals = {
        name: _over_tasks(arrays[name], draws)
        for name in MEASURES
        if np.isfinite(arrays.get(name, empty)).any()
    }
    return {
        "agent": place[0],
        "retriever": place[1],
        **{name: intervals[name]["mean"] if name in intervals else None for name in MEASURES},
        _RANK: _mean(arrays.get(_RANK, empty)),
        "satisfied_covered": _mean(semantic[covered == 1.0]),
        "satisfied_uncovered": _mean(semantic[covered == 0.0]),
        "runs": runs,
        "failed": empty.size - runs,
        "intervals": intervals,
    }


def _mean(values: Array) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else None


def _over_tasks(values: Array, draws: Resampling) -> dict[str, float | None]:
    """The mean over tasks of each task's mean over its seeds, and its bootstrap interval over tasks.

    ``seed_half_width``: half of the 95% Student t interval of the seeds' means (the paper's).
    """
    by_task, half = _row_means(values), None
    known = by_task[np.isfinite(by_task), None]
    (found,) = mean_intervals(known, resamples=draws.resamples, seed=draws.seed)
    seeds = [mean for column in values.T if (mean := _mean(column)) is not None]
    if len(seeds) > 1:
        degrees = len(seeds) - 1
        beta = beta_quantile(degrees / 2, 0.5, 0.05)  # the 0.975 quantile of Student's t
        spread = float(np.std(seeds, ddof=1)) / math.sqrt(len(seeds))
        half = math.sqrt(degrees * (1.0 - beta) / beta) * spread
    return {"mean": found.estimate, "low": found.low, "high": found.high, "seed_half_width": half}


def _row_means(values: Array) -> Array:
    """Means of what is known in each row, NaN where nothing is."""
    known = np.isfinite(values).sum(axis=1)
    return np.where(known > 0, np.nansum(values, axis=1) / np.maximum(known, 1), np.nan)


def contrasts(
    board: Board, pairs: Sequence[tuple[str, str]], retrievers: Sequence[str], draws: Resampling
) -> tuple[list[Row], float]:
    """Paired differences of (agent, against) in every retriever and two measures, and the critical value.

    All hold at once (95%): one bootstrap serves the family, over the tasks that have a run of every agent.
    """

    def side(agent: str, retriever: str, measure: str) -> Array | None:
        return board.get((agent, retriever), board.get((agent, None), {})).get(measure)

    asked, columns = [], []
    for retriever, (agent, against), measure in product(
        retrievers, pairs, ("semantic", "documents_read")
    ):
        ours, theirs = (side(name, retriever, measure) for name in (agent, against))
        if ours is not None and theirs is not None:
            about = {"retriever": retriever, "measure": measure, "agent": agent, "against": against}
            asked.append(about)
            columns.append(_row_means(ours - theirs))
    table = np.column_stack(columns) if columns else np.empty((0, 0))
    table = table[np.isfinite(table).all(axis=1)]
    if len(table) < 2:  # nothing to resample
        return [], math.nan
    (band,) = simultaneous_bands(
        table.shape[1],
        lambda part: table[:, part],
        [None],
        resamples=draws.resamples,
        seed=draws.seed,
    )
    rows = [
        {**about, "difference": band.at_once(at), "alone": band.alone(at)}
        for at, about in enumerate(asked)
    ]
    return rows, band.critical


def step_trace(records: Sequence[PlanRecord], agent: str, retriever: str) -> Row:
    """Confidence (mean, standard error, percentiles), contradiction and actions of an agent by step."""
    longest = max(len(record.steps) for record in records)
    trace: Row = {"agent": agent, "retriever": retriever}
    names = ("count", "confidence", "error", "median", "low", "high", "contradiction", "actions")
    trace |= {name: [] for name in names}
    for number in range(longest):
        steps = [step for record in records for step in record.steps[number : number + 1]]
        values, conflict = (
            np.array([step.values[name] for step in steps if name in step.values])
            for name in ("confidence", "contradiction")
        )
        if not len(values):
            continue
        spread = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
        found = (
            *(len(values), values.mean(), spread, np.median(values)),
            *(np.percentile(values, 10), np.percentile(values, 90)),
            *(_mean(conflict), Counter(step.action for step in steps)),
        )
        for name, value in zip(names, found, strict=True):
            trace[name].append(value)
    return trace
