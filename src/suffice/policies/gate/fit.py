"""Fitting of the gate: weights from labeled rounds or steps, thresholds from costs (corrected)."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from suffice.errors import SufficeWarning, UsageError, counted
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
from suffice.policies.gate.policy import PUBLISHED_CANDIDATES, GatePolicy
from suffice.signals.samples import CANDIDATE_AGREEMENT, CONTRADICTION, sample_counts
from suffice.stats.logistic import fit_rising_logistic
from suffice.stats.units import Array
from suffice.trace.plan_traces import PlanSet
from suffice.trace.rounds.trace_set import TraceSet

_PENALTY = 1.0
_READ = ("candidate_agreement", "contradiction", "remaining_share")


def fit_risk(values: ArrayLike, right: ArrayLike, group: ArrayLike) -> RiskModel:
    """Fit weights (at least 0) and intercept so that c estimates P(right) (corrected; paper 4, Eq. 17)."""
    features = np.asarray(values, np.float64) * np.array([1.0, -1.0, -1.0])
    features[:, 0] -= 1.0
    of = np.asarray(group).astype(np.intp)
    weights = 1.0 / np.bincount(of)[of]
    fit = fit_rising_logistic(features, right, penalty=_PENALTY, row_weights=weights)
    names = ("disagreement", "contradiction", "remaining")
    weights_of = dict(zip(names, map(abs, fit.weights), strict=True))  # -0.0 would print as such
    return RiskModel(**weights_of, intercept=fit.intercept)


# --- question answering ----------------------------------------------------------------------------
def fit_gate_policy(
    traces: TraceSet | Measures, split: str, costs: GateCosts = DEFAULT_COSTS
) -> GatePolicy:
    """Fit P(EM = 1) by SC, CD and DR on a split of question traces (corrected)."""
    measures = Measures.of(traces)
    whole = measures.traces
    data = fit_data(measures, (CANDIDATE_AGREEMENT, CONTRADICTION), split=split)
    agreed, conflict = (data.table.signal(name) for name in _READ[:2])
    em, budget = data.outcomes.em, max(1, whole.n_rounds)
    used = np.isfinite(em) & np.isfinite(agreed) & np.isfinite(conflict)
    if not used.any():
        raise UsageError(
            f"candidate_agreement and contradiction are defined together in no labeled round of split "
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
    return GatePolicy(
        settings=GateSettings.corrected(model, costs, fitted_on=fitted_on),
        rounds=budget,
        samples=samples_a_round(measures),
    )


def samples_a_round(measures: Measures) -> int:
    """Return the most common number of samples in a round."""
    (counts,) = measures.derived(sample_counts)
    held = counts[counts > 0].astype(np.int64)
    return int(np.bincount(held).argmax()) if held.size else PUBLISHED_CANDIDATES


# --- planning --------------------------------------------------------------------------------------
def fit_gate(plans: PlanSet, costs: GateCosts = DEFAULT_COSTS, **changes: Any) -> GateSettings:
    """Fit P(semantic success of the run) by SC, CD and DR of its steps (corrected)."""
    source, runs = plans.source, list(plans.records)
    judged = [run for run in runs if run.outcome.semantic is not None]
    rows = np.array(
        [
            (*(step.values[name] for name in _READ), float(bool(run.outcome.semantic)), number)
            for number, run in enumerate(judged)
            for step in run.steps
            if step.values.keys() >= set(_READ)
        ]
    )
    if not judged:
        raise UsageError(
            f"no judge's verdict on the {counted(len(runs), 'run')} of {source}; the gate learns from "
            "whether plans satisfy their constraints, so judge the runs before fitting"
        )
    if not len(rows):
        raise UsageError(
            f"no step of the {len(judged)} judged runs of {source} has the values "
            f"{', '.join(_READ)}; record them with record_plans"
        )
    if len(judged) < len(runs):
        warnings.warn(
            f"left out, for want of a judge's verdict: {len(runs) - len(judged)} of "
            f"{counted(len(runs), 'run')} of {source}",
            SufficeWarning,
            stacklevel=2,
        )
    _warn_of_one_class(rows[:, 3], "plans", f"of {source}")
    model = fit_risk(rows[:, :3], rows[:, 3], rows[:, 4])
    fitted_on = {
        "source": source,
        "labelled": len(judged),
        "runs": len(runs),
        "judged": len(judged),
        "steps": sum(len(run.steps) for run in judged),
        "fitted_steps": len(rows),
    }
    detector = plans.run.get("detector", MARKERS)
    return GateSettings.corrected(model, costs, fitted_on=fitted_on, detector=detector, **changes)


def _warn_of_one_class(right: Array, what: str, where: str) -> None:
    if right.min() == right.max():
        verdict = "right" if right[0] else "wrong"
        warnings.warn(
            f"all {what} {where} are {verdict}: the gate's weights are 0, so its confidence is one number "
            "whatever happens in a step",
            SufficeWarning,
            stacklevel=3,
        )
