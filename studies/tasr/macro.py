"""Several records side by side: means that count each the same (paper 0, table 1 and figure 3)."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any

import numpy as np

from studies.command import Found, out_option, report
from suffice.cli.output import Form, fit_progress, waiting
from suffice.cli.parser import command
from suffice.cli.shared_options import TRACES, Compared, Sampling
from suffice.errors import UsageError, counted
from suffice.evaluation.replay.compare import Comparison, compare
from suffice.evaluation.replay.frontier import interpolate
from suffice.evaluation.replay.named_policies import CLOSED_BOOK
from suffice.options import Option
from suffice.policies.method import FitRun
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.table import Cell, Column, Table
from suffice.results.tabular import Tabular
from suffice.scoring import Metric
from suffice.stats.intervals import Interval, percentile_interval, resampled_means
from suffice.stats.units import Array, numbered_units, per_unit
from suffice.trace.rounds.records import Question
from suffice.trace.rounds.trace_set import is_veiled, keys_of, unit_keys

_NAME_WIDTH = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class MacroPolicy:
    name: str
    metric: Metric = field(metadata={"json": None})
    other: float = field(metadata={"json": "{other}"})
    score: Interval = field(metadata={"json": "{metric}_interval"})
    delta: Interval = field(metadata={"json": "delta_{metric}"})
    over_fixed: Interval | None
    mean_rounds: float
    by_set: tuple[float, ...] = field(metadata={"json": "set_{metric}"})
    label: str = field(metadata={"json": None})

    def to_json(self) -> dict[str, Any]:
        names = {**self.metric.names, "other": self.metric.key(self.metric.beside)}
        return {**fields_as_json(self, names), names["metric"]: self.score.estimate}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MacroResult(Tabular):
    """Several sets together; ``shared`` counts questions in more than one set."""

    sources: tuple[str, ...]
    labelled: tuple[int, ...]
    shared: int
    metric: Metric
    baseline: str
    policies: tuple[MacroPolicy, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "sets": [
                {"traces": source, "labelled": count}
                for source, count in zip(self.sources, self.labelled, strict=True)
            ],
            "shared_questions": self.shared,
            "metric": self.metric.name,
            "baseline": self.baseline,
            "policies": as_json(self.policies),
        }

    def tables(self) -> tuple[Table]:
        metric, other = self.metric, self.metric.beside
        label, percent = metric.label, partial(Column, kind="percent")
        change = partial(Column, kind="points", interval=True)
        columns = (
            Column(name="policy", most=_NAME_WIDTH),
            percent(name=metric.key(other), head=metric.head(other)),
            percent(name=metric.name, interval=True, head=f"{label} [95%]"),
            Column(name="mean_rounds", kind="number", digits=2, head="rounds"),
            change(name=f"delta_{metric.name}", head=f"delta {label} [95%]"),
            change(name="over_fixed", head="over fixed-k [95%]"),
            *(
                percent(name=f"{metric.name}_set_{number}", head=f"{label} in\nset {number}")
                for number in range(1, len(self.sources) + 1)
            ),
        )
        rows = [
            [
                *(policy.label, policy.other, policy.score, policy.mean_rounds),
                Cell(policy.delta, "(baseline)") if policy.name == self.baseline else policy.delta,
                policy.over_fixed,
                *policy.by_set,
            ]
            for policy in self.policies
        ]
        shared = (
            f"{counted(self.shared, 'question')} occur in several records and are resampled together."
            if self.shared
            else "No question occurs in two records, so each record is resampled on its own."
        )
        explained = (
            f"Means over {len(self.sources)} records with equal weight, of "
            f"{' and '.join(str(count) for count in self.labelled)} questions {metric.scored}. {shared} "
            "Over fixed-k: against the line through a record's fixed budgets at the same mean rounds."
        )
        notes = (explained, f"Note: {metric.legend}") if metric.legend else (explained,)
        return (Table(name="means over sets", columns=columns, rows=rows, notes=notes),)


@dataclass(frozen=True, slots=True)
class _Set:
    """A set: its labeled units, ``columns`` (n_units, 3 x policies) of score, other and rounds."""

    keys: tuple[float, ...]
    names: Mapping[float, str]
    labelled: int
    columns: Array
    rounds: Array


def macro_means(comparisons: Sequence[Comparison]) -> MacroResult:
    """Average every policy over the sets of several comparisons.

    The same question in several sets (by text or group; by id if a record is redacted) is one observation:
    the resampling draws it once. Sets without a common question are resampled on their own.
    """
    if len(comparisons) < 2:
        raise UsageError("means need at least two records")
    first = comparisons[0].result
    names = [policy.name for policy in first.policies]
    for comparison in comparisons:
        if [policy.name for policy in comparison.result.policies] != names:
            left = [
                f"; left out of {other.result.source}: {name}, {reason}"
                for other in comparisons
                for name, reason in other.result.left_out.items()
            ]
            raise UsageError(f"every record must be replayed with the same policies{''.join(left)}")
    results = [comparison.result for comparison in comparisons]
    if len({result.metric for result in results}) > 1:
        told = ", ".join(f"{result.source} by {result.metric.name}" for result in results)
        raise UsageError(
            f"the records are compared by different metrics ({told}); type --metric agreement, which needs "
            "no gold answers"
        )
    by_id = any(is_veiled(comparison.traces.origin.run) for comparison in comparisons)
    sets = [_set(comparison, by_id=by_id) for comparison in comparisons]
    baseline = names.index(first.baseline)
    by_set = [one.columns.mean(axis=0)[None, :] for one in sets]
    drawn = [part for group in _groups(sets) for part in _draws(group, first.resamples, first.seed)]
    means, draws = np.mean(by_set, axis=0)[0], np.mean(drawn, axis=0)
    fixed = [number for number, policy in enumerate(first.policies) if policy.kind == "fixed"]
    count = len(names)
    rounds = np.stack([one.rounds for one in sets]).mean(axis=0)
    return MacroResult(
        sources=tuple(comparison.result.source for comparison in comparisons),
        labelled=tuple(one.labelled for one in sets),
        shared=sum(
            times > 1 for times in Counter(key for one in sets for key in one.keys).values()
        ),
        metric=first.metric,
        baseline=first.baseline,
        policies=tuple(
            MacroPolicy(
                name=name,
                metric=first.metric,
                other=float(means[count + number]),
                score=percentile_interval(float(means[number]), draws[:, number]),
                delta=percentile_interval(
                    float(means[number] - means[baseline]), draws[:, number] - draws[:, baseline]
                ),
                over_fixed=percentile_interval(
                    float(_over_fixed(by_set, fixed, number)[0]), _over_fixed(drawn, fixed, number)
                )
                if fixed and number not in fixed
                else None,
                mean_rounds=float(rounds[number]),
                by_set=tuple(float(one.columns[:, number].mean()) for one in sets),
                label=first.policies[number].label,
            )
            for number, name in enumerate(names)
        ),
    )


def _over_fixed(sets: Sequence[Array], fixed: Sequence[int], number: int) -> Array:
    """A policy's score over the line of each set, averaged over sets (n_draws,)."""
    gains = []
    for columns in sets:
        score, _, rounds = np.split(columns, 3, axis=1)
        line = interpolate(rounds[:, fixed], score[:, fixed], rounds[:, number])
        gains.append(score[:, number] - line)
    return np.asarray(np.mean(gains, axis=0))


def _set(comparison: Comparison, *, by_id: bool) -> _Set:
    result = comparison.result
    if any(policy.kind == CLOSED_BOOK for policy in result.policies):
        raise UsageError("means compare policies that stop a loop; leave out closed-book")
    scored = comparison.measures.scores(result.f1_kind)
    if not scored.labelled.any():
        raise UsageError(f"no replayed question of {result.source} {result.metric.unscored}")
    unscored = [policy.label for policy in result.policies if policy.score is None]
    if unscored:
        raise UsageError(
            f"in {result.source} no score is known of {', '.join(unscored)}, which stop "
            + (
                f"at rounds {result.metric.untold}; leave them out, or {result.metric.remedy}"
                if result.cut is None
                else "at censored rounds; leave them out, or replay this record alone for ranges"
            )
        )
    columns = [
        policy.at_stops.scores[name][scored.labelled]
        for name in (scored.metric.score, scored.metric.beside)
        for policy in result.policies
    ]
    columns += [policy.stops[scored.labelled].astype(np.float64) for policy in result.policies]
    keys = unit_keys(comparison.traces)[scored.labelled]
    ids = np.array(comparison.traces.question_ids, object)[scored.labelled]
    first = dict(zip(keys[::-1].tolist(), ids[::-1].tolist(), strict=True))
    if by_id:  # names that stand in place of texts differ from record to record
        named = keys_of([Question(id=name, text="") for name in first.values()]).tolist()
        renamed = dict(zip(first, named, strict=True))
        keys = np.array([renamed[key] for key in keys.tolist()])
        first = dict(zip(named, first.values(), strict=True))
    return _Set(
        keys=tuple(dict.fromkeys(keys.tolist())),
        names=first,
        labelled=len(keys),
        columns=per_unit(np.stack(columns, axis=1), numbered_units(keys)),
        rounds=np.array([policy.mean_rounds for policy in result.policies]),
    )


def _groups(sets: Sequence[_Set]) -> list[list[_Set]]:
    groups: list[list[_Set]] = []
    for one in sets:
        linked = [
            group
            for group in groups
            if any(not set(one.keys).isdisjoint(other.keys) for other in group)
        ]
        merged = [other for group in linked for other in group]
        groups = [group for group in groups if group not in linked]
        groups.append([*merged, one])
    return groups


def _draws(group: Sequence[_Set], resamples: int, seed: int) -> list[Array]:
    """Resampled column means of each set of a group, (resamples, n_columns)."""
    names: dict[float, str] = {}
    for one in group:
        names |= {key: min(name, names.get(key, name)) for key, name in one.names.items()}
    keys = sorted(names, key=lambda key: (names[key], key))
    digest = hashlib.sha256("\0".join(names[key] for key in keys).encode()).digest()
    stream = seed + int.from_bytes(digest[:4], "big")  # groups are drawn independently
    position = {key: number for number, key in enumerate(keys)}
    asked = []
    for one in group:
        columns = np.zeros((len(keys), one.columns.shape[1] + 1))
        rows = [position[key] for key in one.keys]
        columns[rows, :-1], columns[rows, -1] = one.columns, 1.0
        asked.append(columns)
    drawn = resampled_means(np.hstack(asked), resamples=resamples, seed=stream)
    ends = np.cumsum([columns.shape[1] for columns in asked])[:-1]
    parts = np.split(drawn, ends, axis=1)
    return [part[:, :-1] / np.where(part[:, [-1]] > 0, part[:, [-1]], 1.0) for part in parts]


@command()
def run(
    traces: Annotated[
        tuple[str, ...],
        Option(positional=True, repeats=True, metavar="TRACES", help=f"{TRACES}; two or more"),
    ],
    *,
    reading: Sampling,
    compared: Compared,
    out: Annotated[str | None, out_option("also write tasr.json")] = None,
    form: Form,
) -> int:
    """Average policies over several records, each of which counts the same.

    Shows the mean score, its difference to the baseline and to the fixed budgets of equal rounds, with
    intervals, and the score in each record. A question in several records is drawn once.
    """
    settings, fitting = compared.read(reading), FitRun(progress=fit_progress())
    measured = [reading.measures(path) for path in traces]
    with waiting("replaying"):
        comparisons = [compare(measures, settings, run=fitting) for measures in measured]
    means = macro_means(comparisons)
    said = [
        f"{result.source}: {note}"
        for result in (comparison.result for comparison in comparisons)
        for note in (*result.banners, *result.notes)
    ]
    return report(
        "tasr", Found(document=means.to_json(), shown=means.tables(), notes=said), form, out
    )
