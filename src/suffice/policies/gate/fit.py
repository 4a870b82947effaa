"""Fit the gate: weights and intercept on labelled rounds or steps, thresholds from costs (corrected)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import SufficeWarning, UsageError
from suffice.measures.measures import Measures
from suffice.policies.fitting import fit_data
from suffice.policies.gate.gate_settings import (
    DEFAULT_COSTS,
    MARKERS,
    GateCosts,
    GateSettings,
    RiskModel,
    remaining_share,
)
from suffice.policies.gate.policy import PUBLISHED_CANDIDATES, GatePolicy, executes
from suffice.signals.samples import CANDIDATE_AGREEMENT, CONTRADICTION, sample_counts
from suffice.stats.logistic import fit_rising_logistic
from suffice.stats.units import Array, Mask
from suffice.trace.plan_traces import PlanRecord, PlanSet
from suffice.trace.rounds.trace_set import TraceSet

_PENALTY = 1.0
_READ = ("candidate_agreement", "contradiction", "remaining_share")


def fit_risk(values: ArrayLike, right: ArrayLike, group: ArrayLike) -> RiskModel:
    """Weights (at least 0) and intercept under which c estimates P(right) (corrected; paper 4, Eq. 17)."""
    features = np.asarray(values, np.float64) * np.array([1.0, -1.0, -1.0])
    features[:, 0] -= 1.0
    of = np.asarray(group, np.intp)
    weights = 1.0 / np.bincount(of)[of]
    fit = fit_rising_logistic(features, right, penalty=_PENALTY, row_weights=weights)
    # -0.0 would print as such
    disagreement, contradiction, remaining = (abs(weight) for weight in fit.weights)
    return RiskModel(
        disagreement=disagreement,
        contradiction=contradiction,
        remaining=remaining,
        intercept=fit.intercept,
    )


# --- question answering ----------------------------------------------------------------------------
def fit_gate_policy(
    traces: TraceSet | Measures, split: str, costs: GateCosts = DEFAULT_COSTS
) -> GatePolicy:
    """Learn P(EM = 1) from SC, CD and DR on a split of question traces (corrected)."""
    measures = Measures.of(traces)
    whole = measures.traces
    data = fit_data(measures, (CANDIDATE_AGREEMENT, CONTRADICTION), split=split)
    agreed, conflict = (data.table.signal(name) for name in _READ[:2])
    em, budget = data.outcomes.em, max(1, whole.n_rounds)
    used = np.isfinite(em) & np.isfinite(agreed) & np.isfinite(conflict)
    if not used.any():
        raise UsageError(
            f"candidate_agreement and contradiction are defined together in no labelled round of split "
            f"{split!r} of {whole.origin.source}; the gate needs samples and answers: record with "
            "suffice record --samples 2"
        )
    _warn_of_one_class(em[used], "answers", f"of split {split!r}")
    question, number = np.nonzero(used)
    shares = np.array([remaining_share(t, budget) for t in range(1, em.shape[1] + 1)])
    values = np.empty((len(question), 3))  # a column at a time, for memory
    for column, of_rows in enumerate((agreed, conflict)):
        values[:, column] = of_rows[used]
    values[:, 2] = shares[number]
    model = fit_risk(values, em[used], question)
    del values, question, number
    fitted_on = {**data.provenance, "fitted_rounds": int(used.sum())}
    policy = GatePolicy(
        settings=GateSettings.corrected(model, costs, fitted_on=fitted_on),
        rounds=budget,
        samples=samples_a_round(measures),
    )
    fires = executes(policy.settings, policy.confidence(data.table), conflict)
    _warn_of_constant(fires, data.table.exists, policy)
    return policy


def samples_a_round(measures: Measures) -> int:
    """How many samples most rounds hold."""
    (counts,) = measures.derived(sample_counts)
    held = counts[counts > 0].astype(np.int64)
    return int(np.bincount(held).argmax()) if held.size else PUBLISHED_CANDIDATES


def _warn_of_constant(fires: Mask, exists: Mask, policy: GatePolicy) -> None:
    early = fires[:, : (policy.rounds or 1) - 1] & exists[:, : (policy.rounds or 1) - 1]
    if not early.size:
        return
    chosen = policy.settings
    if not early.any():
        said = "stops no question of the split it was fitted on before the last round"
    elif early[:, 0].all():
        said = "stops every question of the split it was fitted on after round 1"
    else:
        return
    warnings.warn(
        f"the fitted gate {said} (tau_low {chosen.tau_low:g}, tau_high {chosen.tau_high:g}); "
        "a failure that costs less against a retrieval lowers the thresholds, one that costs more "
        "raises them: --failure-loss",
        SufficeWarning,
        stacklevel=3,
    )


# --- planning --------------------------------------------------------------------------------------
def labelled_steps(
    plans: Iterable[PlanRecord],
) -> tuple[Array, Array, NDArray[np.int64], dict[str, int]]:
    """Values, success and run of the steps to fit on, and what was counted."""
    rows: list[tuple[float, ...]] = []
    counts = {"runs": 0, "judged": 0, "steps": 0, "fitted_steps": 0}
    for number, record in enumerate(plans):
        counts["runs"] += 1
        if record.outcome.semantic is None:
            continue
        counts["judged"] += 1
        counts["steps"] += len(record.steps)
        for step in record.steps:
            if all(name in step.values for name in _READ):
                values = (step.values[name] for name in _READ)
                rows.append((*values, float(record.outcome.semantic), number))
    counts["fitted_steps"] = len(rows)
    steps = np.array(rows, np.float64).reshape(-1, len(_READ) + 2)
    return steps[:, :3], steps[:, 3], steps[:, 4].astype(np.int64), counts


def fit_gate(plans: PlanSet, costs: GateCosts = DEFAULT_COSTS, **changes: Any) -> GateSettings:
    """Learn P(semantic success of the run) from SC, CD and DR of its steps (corrected)."""
    stated = plans.run.get("detector", changes.get("detector", MARKERS))
    if changes.setdefault("detector", stated) != stated:
        raise UsageError(
            f"{plans.source} was recorded with the detector {stated!r}, found {changes['detector']!r}; "
            "its contradictions are that detector's: leave --detector out"
        )
    values, right, run, counts = labelled_steps(plans.records)
    source = plans.source
    if not counts["judged"]:
        raise UsageError(
            f"none of the {counts['runs']} runs of {source} has a judge's verdict; the gate learns from "
            "whether plans satisfy their constraints, so judge the runs before fitting"
        )
    if not counts["fitted_steps"]:
        raise UsageError(
            f"no step of the {counts['judged']} judged runs of {source} has the values "
            f"{', '.join(_READ)}; record them with record_plans"
        )
    if counts["judged"] < counts["runs"]:
        warnings.warn(
            f"{counts['runs'] - counts['judged']} of {counts['runs']} runs of {source} have no judge's "
            "verdict and were left out",
            SufficeWarning,
            stacklevel=2,
        )
    _warn_of_one_class(right, "plans", f"of {source}")
    model = fit_risk(values, right, run)
    fitted_on = {"source": source, "labelled": counts["judged"], **counts}
    return GateSettings.corrected(model, costs, **{"fitted_on": fitted_on, **changes})


def _warn_of_one_class(right: Array, what: str, where: str) -> None:
    if right.min() == right.max():
        verdict = "right" if right[0] else "wrong"
        warnings.warn(
            f"all {what} {where} are {verdict}: the gate's weights are 0, so its confidence is one number "
            "whatever happens in a step",
            SufficeWarning,
            stacklevel=3,
        )
