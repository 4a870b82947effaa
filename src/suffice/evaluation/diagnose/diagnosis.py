"""The whole diagnosis of a trace set: signals, and policies by question type and by confidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import attempt
from suffice.evaluation.diagnose.reliability import CalibratorStudy, calibrator_study
from suffice.evaluation.diagnose.signal_checks import Rows, separations
from suffice.evaluation.diagnose.signal_diagnostics import (
    NAME_WIDTH,
    POLICY,
    USE,
    Diagnostics,
    diagnose,
    use_cell,
)
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.replay.named_policies import fixed_names, of_rounds, replayed
from suffice.evaluation.replay.results import PolicyResult, ReplayResult
from suffice.evaluation.settings import ComparisonSettings, DiagnosisSettings
from suffice.measures.measures import Measures, Traces
from suffice.policies.defaults import MARGIN
from suffice.results.as_json import as_json
from suffice.results.table import Cell, Column, Described, Table, Value, estimate_column, table_of
from suffice.results.tabular import Tabular
from suffice.signals.columns.arrays import NONE, Texts
from suffice.signals.signal_table import declared
from suffice.stats.auroc import auroc_use
from suffice.stats.intervals import (
    Estimate,
    from_draws,
    mean_interval,
    resampled_counts,
    resampled_means,
    undefined,
)
from suffice.stats.p_values import rate_interval
from suffice.stats.risk_coverage import ResampledAurc, risk_coverage
from suffice.stats.units import Array, Mask, numbered_units, per_unit
from suffice.trace.rounds.trace_set import TraceSet

OWN_CONFIDENCE = "policy"
_OF_REPLAY = ("split", "questions", "labelled", "baseline", "f1_kind")


def selective_prediction(
    traces: TraceSet | Measures, result: ReplayResult, settings: DiagnosisSettings | None = None
) -> tuple[dict[str, Any], ...]:
    """Return :func:`selective` of every policy with a confidence and fully seen stops."""
    settings = DiagnosisSettings() if settings is None else settings
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored = measures.scores(result.f1_kind)
    if not scored.labelled.any() or not scored.metric.gold:
        return ()
    results = []
    for policy in result.policies:
        if policy.at_stops.past is not None:
            continue
        sign, confidence = _confidence(measures, policy, settings.confidence)
        if confidence is None:
            continue
        own = None if policy.policy is None else policy.policy.facts.threshold
        asked = settings
        if settings.threshold is None and settings.confidence is None and own is not None:
            asked = replace(settings, threshold=own)  # it stops at this confidence
        rows, columns = np.flatnonzero(scored.labelled), policy.answers[scored.labelled] - 1
        at_stop = {"em": scored.em, "f1": scored.f1}
        of_policy = selective(
            confidence[rows],
            {name: values[rows, columns] for name, values in at_stop.items()},
            asked,
            sign=sign,
            units=measures.units[rows],
        )
        shown = settings.confidence or OWN_CONFIDENCE
        results.append({"policy": policy.name, "confidence": shown, **of_policy})
    return tuple(results)


def _confidence(
    measures: Measures, result: PolicyResult, signal: str | None
) -> tuple[float, Array | None]:
    if signal is None:
        return 1.0, result.confidence
    spec = declared(signal, measures.traces)
    values = measures.signals([spec]).signal(signal)
    sign = -1.0 if spec.direction == "low" else 1.0
    return sign, values[np.arange(len(result.answers)), result.answers - 1]


def selective(
    confidence: Array,
    at_stop: Mapping[str, NDArray[Any]],
    settings: DiagnosisSettings,
    *,
    sign: float = 1.0,
    units: NDArray[np.intp] | None = None,
) -> dict[str, Any]:
    units = np.arange(len(confidence)) if units is None else units
    known = ~np.isnan(confidence)
    ordered = np.where(known, sign * confidence, -np.inf)
    threshold = settings.threshold
    if threshold is None and known.any():
        threshold = float(np.median(confidence[known]))
    above = np.zeros(len(known), bool)
    if threshold is not None:
        above = known & (ordered >= sign * threshold)
    wrong = 1.0 - at_stop["em"]
    number = numbered_units(units)
    rows = Rows(
        values=confidence[known], right=wrong[known] == 0.0, questions=number[known], sign=sign
    )
    ((separation, _),) = separations(
        [rows], int(number.max()) + 1, resamples=settings.resamples, seed=settings.seed
    )
    area = ResampledAurc(ordered, wrong)
    drawn = resampled_counts(
        len(known), resamples=settings.resamples, seed=settings.seed, units=units
    )
    area_draws = np.concatenate([area(counts) for counts in drawn], axis=1)

    group = partial(_group, at_stop=at_stop, units=units)
    return {
        "answers": group(np.ones(len(known), bool)),
        "undefined": int((~known).sum()),
        "auroc": separation["auroc"],
        "aurc": from_draws(area.plain[0], area_draws[0]),
        "excess_aurc": from_draws(area.plain[1], area_draws[1]),
        "curve": risk_coverage(confidence, {"em": wrong, "f1": 1.0 - at_stop["f1"]}, sign=sign),
        "threshold": threshold,
        "threshold_is_median": settings.threshold is None,
        "above": group(above),
        "below": group(~above),
    }


def _group(
    chosen: Mask, at_stop: Mapping[str, NDArray[Any]], units: NDArray[np.intp]
) -> dict[str, Any]:
    count = int(chosen.sum())
    if count == 0:
        return {"questions": 0, "em": undefined("no such answer"), "f1": None}
    em, independent = at_stop["em"][chosen], len(np.unique(units[chosen]))
    low, high = rate_interval(float(em.sum()) * independent / count, independent)
    return {
        "questions": count,
        "em": Estimate(estimate=float(em.mean()), low=low, high=high),
        "f1": float(at_stop["f1"][chosen].mean()),
    }


def selective_tables(results: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    if not results:
        return
    first = results[0]
    whose = "its own" if first["confidence"] == OWN_CONFIDENCE else f"signal {first['confidence']}"
    caption = (
        f"Selective prediction by the confidence at the stop ({whose}). AURC: mean risk (1 - EM) over all "
        "coverages. Excess: AURC above that of the best possible order. Above: questions with at least "
        f"the threshold{' (the median confidence)' if first['threshold_is_median'] else ''}."
    )
    yield table_of(
        "confidences",
        results,
        (
            ("policy", POLICY),
            ("auroc", estimate_column("auroc", "AUROC")),
            (lambda result: use_cell(auroc_use(result["auroc"])), USE),
            ("aurc", estimate_column("aurc", "AURC")),
            ("excess_aurc", replace(estimate_column("excess_aurc", "excess AURC"), drop=2)),
            (
                lambda result: result["undefined"] or Cell(0, ""),
                Column(name="undefined", kind="count", drop=1),
            ),
        ),
        caption,
    )
    groups: list[Described] = []
    for name in ("above", "below"):
        groups += [
            (f"{name}.questions", Column(name=f"{name}_n", kind="count", head=f"n {name}")),
            (
                f"{name}.em",
                Column(name=f"{name}_em", kind="percent", interval=True, head="EM [95%]"),
            ),
            (f"{name}.f1", Column(name=f"{name}_f1", kind="percent", head="F1")),
        ]
    threshold = Column(name="threshold", kind="significant", digits=3)
    described: list[Described] = [("policy", POLICY), ("threshold", threshold), *groups]
    yield table_of("above and below", results, described)


FEW_QUESTIONS = 10


def breakdown(traces: TraceSet | Measures, result: ReplayResult) -> tuple[dict[str, Any], ...]:
    """Return a replay by question type, types sorted, untyped questions (``None``) last."""
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored, units = measures.scores(result.f1_kind), measures.units
    types = Texts.of(measures.traces.first_rounds("question_type"))
    codes = {kind: code for code, kind in enumerate(types.distinct.to_pylist())}
    baseline = [policy.name for policy in result.policies].index(result.baseline)
    found: list[dict[str, Any]] = []
    published = result.cost_model.charge == "published"
    for kind in (*sorted(codes), None):
        rows = types.codes == (NONE if kind is None else codes[kind])
        if not rows.any():
            continue
        labelled = rows & scored.labelled & scored.metric.gold
        f1 = [policy.at_stops.scores["f1"][labelled] for policy in result.policies]
        means = per_unit(np.stack(f1, axis=1), units[labelled])
        delta = means - means[:, [baseline]]
        draws = (
            resampled_means(delta, resamples=result.resamples, seed=result.seed)
            if labelled.any()
            else None
        )
        policies = []
        for number, policy in enumerate(result.policies):
            least = None if number == baseline or published else -1.0
            rounds, differs = policy.at_stops.costs["rounds"], _mean(delta[:, number])
            em = per_unit(policy.at_stops.scores["em"][labelled], units[labelled])
            policies.append(
                {
                    "policy": policy.name,
                    "em": _mean(em),
                    "f1": _mean(means[:, number]),
                    "mean_rounds": None
                    if rounds is None
                    else _mean(per_unit(rounds[rows], units[rows])),
                    "delta_f1": None
                    if draws is None or differs is None
                    else mean_interval(delta[:, number], draws[:, number], least),
                }
            )
        known = int(labelled.sum())
        few = known < FEW_QUESTIONS
        of_kind = {"type": kind, "questions": int(rows.sum()), "labelled": known, "few": few}
        found.append({**of_kind, "policies": policies})
    return tuple(found)


def types_table(types: Sequence[Mapping[str, Any]], baseline: str | None) -> Table:
    columns = (
        Column(name="type", most=2 * NAME_WIDTH, once=True),
        POLICY,
        Column(name="n", kind="count"),
        Column(name="em", kind="percent", head="EM"),
        Column(name="f1", kind="percent", head="F1"),
        Column(name="mean_rounds", kind="number", digits=2, head="rounds"),
        Column(name="delta_f1", kind="points", interval=True, head="delta F1 [95%]"),
    )
    rows: list[list[Value]] = []
    for of_kind in types:
        shown = "(no type)" if of_kind["type"] is None else of_kind["type"]
        name = Cell(of_kind["type"], f"{shown}{' (few)' if of_kind['few'] else ''}")
        for scores in of_kind["policies"]:
            policy, *figures, delta = scores.values()
            delta = Cell(delta, "(baseline)") if policy == baseline else delta
            rows.append([name, policy, of_kind["labelled"], *figures, delta])
    title = "Policies by question type; EM, F1 and differences in percent. Few: under 10 questions."
    return Table(name="policies by type", title=title, columns=columns, rows=rows, names=2)


def _mean(values: Array) -> float | None:
    mean = float(values.mean()) if len(values) else np.nan
    return None if np.isnan(mean) else mean


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Diagnosis(Tabular):
    """Signals on both splits; the replay of the policies on eval, by type and by confidence, as in JSON."""

    signals: Diagnostics
    replayed: ReplayResult
    types: tuple[Mapping[str, Any], ...]
    selective: tuple[Mapping[str, Any], ...]
    calibrators: CalibratorStudy | None
    no_calibrators: str | None
    notes: tuple[str, ...]

    def tables(self) -> tuple[Table, ...]:
        labels, tables = self.replayed.labels, [*self.signals.tables()]
        if any(of_kind["type"] is not None for of_kind in self.types):
            tables.append(_with_labels(types_table(self.types, self.replayed.baseline), labels))
        tables += [_with_labels(table, labels) for table in selective_tables(self.selective)]
        if self.calibrators is not None:
            tables += self.calibrators.tables()
        else:
            why = f"Calibrators are not compared: {self.no_calibrators or ''}"
            tables.append(Table(name="calibrators", title=why))
        notes = [f"Note: {note}" for note in self.notes]
        return (*tables, Table(name="notes", notes=notes))

    def to_json(self) -> dict[str, Any]:
        return {
            **self.signals.to_json(),
            "replay": {name: getattr(self.replayed, name) for name in _OF_REPLAY},
            "types": as_json(self.types),
            "selective": as_json(self.selective),
            "calibrators": None if self.calibrators is None else self.calibrators.to_json(),
            "no_calibrators": self.no_calibrators,
            "notes": list(self.notes),
        }


def diagnosis(traces: Traces, settings: DiagnosisSettings) -> Diagnosis:
    measures = Measures.of(traces).by("f1")  # what a signal is worth is known by gold answers alone
    signals = diagnose(measures, settings)
    policies = settings.policies
    if not policies and not settings.rules:
        policies = fixed_names(measures.traces.n_rounds)
    wanted = settings.eval_split
    comparison = compare(
        measures,
        ComparisonSettings(
            policies=policies,
            rules=settings.rules,
            split=wanted if wanted in measures.traces.splits else None,
            f1_kind=settings.f1_kind,
            resamples=settings.resamples,
            seed=settings.seed,
        ),
    )
    result = comparison.result
    selective = selective_prediction(comparison.measures, result, settings)
    types = breakdown(comparison.measures, result)
    notes = [*result.banners, *signals.notes, *result.notes]
    named = len(settings.policies) + len(settings.rules) > 0
    confident = {one["policy"] for one in selective}
    if named and comparison.result.labelled and settings.confidence is None:
        notes += [
            f"{policy.label} has no confidence of its own; name a signal with --confidence, in Python "
            "with confidence="
            for policy in comparison.result.policies
            if policy.name not in confident and policy.name != comparison.result.baseline
        ]
    calibrators: CalibratorStudy | None = None
    no_calibrators: str | None = f"{MARGIN} is not among the signals asked for"
    if settings.signals is None or MARGIN in settings.signals:
        study = partial(
            calibrator_study,
            measures,
            tune_split=settings.tune_split,
            eval_split=settings.eval_split,
        )
        calibrators, no_calibrators = attempt(study)
    return Diagnosis(
        signals=signals,
        replayed=comparison.result,
        types=types,
        selective=selective,
        calibrators=calibrators,
        no_calibrators=no_calibrators,
        notes=tuple(dict.fromkeys(notes)),
    )


def _with_labels(table: Table, labels: Mapping[str, str]) -> Table:
    place = [column.name for column in table.columns].index("policy")
    rows = [
        [*row[:place], labels.get(str(row[place]), row[place]), *row[place + 1 :]]
        for row in table.rows
    ]
    return replace(table, rows=rows)
