"""Two loops on the same questions: what each scores and costs, and their paired differences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import COSTS, TOKENS, CostReads
from suffice.errors import UsageError, counted
from suffice.evaluation.settings import ScoredSettings
from suffice.measures.measures import Measures, Traces
from suffice.results.table import Column, Described, Kind, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import F1Kind, Metric
from suffice.stats.intervals import EXACT, Interval, mean_interval, resampled_means
from suffice.stats.units import Array, equally_many, per_unit
from suffice.trace.rounds.trace_set import is_veiled

_COSTS = ("rounds", "llm_calls", *TOKENS, "completion_tokens", "retrievals", "seconds", "usd")
# what a run states that says nothing of its loop
_OWN = frozenset({"version", "sample", "splits", "derived", "seed", "runs"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A quantity of both loops, means per question, and the second's less the first's."""

    name: str
    label: str
    first: float
    second: float
    difference: Interval


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LoopComparison(Tabular):
    """Two loops compared on the ``questions`` that both records hold; ``differs`` is how they were run."""

    sources: tuple[str, str]
    questions: int
    left_out: tuple[int, int]
    metric: Metric
    score: Quantity
    costs: tuple[Quantity, ...]
    differs: Mapping[str, tuple[Any, Any]]

    def to_json(self) -> dict[str, Any]:
        return {**Tabular.to_json(self), "metric": self.metric.name}

    def tables(self) -> tuple[Table, ...]:
        label = self.metric.label
        scores = _described(label, kind="percent", change="points")
        costs = _described("cost a question", kind="number", change="number")
        first, second = self.sources
        alone = [
            f"{counted(count, 'question')} of {source} left out, not in the other or without a score."
            for source, count in zip(self.sources, self.left_out, strict=True)
            if count
        ]
        run = [
            f"{name}: {one!r:.60} against {other!r:.60}"
            for name, (one, other) in self.differs.items()
        ]
        notes = [
            f"First: {first}. Second: {second}. {counted(self.questions, 'question')} of both, each loop at "
            f"its last recorded round. {label} in percent, costs as run, means per question. "
            f"Brackets are 95% intervals of paired resamples, {EXACT}.",
            *alone,
            f"The runs differ in: {'; '.join(run)}."
            if run
            else "The runs say the same of themselves.",
        ]
        return (
            table_of("loops", [self.score], scores),
            table_of("costs", self.costs, costs, notes=notes),
        )


def _described(what: str, *, kind: Kind, change: Kind) -> tuple[Described, ...]:
    changed = Column(
        name="difference", kind=change, interval=True, signed=True, head="change [95%]"
    )
    return (
        ("label", Column(name="quantity", head=what)),
        ("first", Column(name="first", kind=kind)),
        ("second", Column(name="second", kind=kind)),
        ("difference", changed),
    )


def compare_loops(
    first: Traces, second: Traces, settings: ScoredSettings | None = None
) -> LoopComparison:
    """Compare two records of the same questions, paired by id and text, or by text where no id is in both.

    Without a common question that both score, for metrics or gold answers that differ, or for questions that
    a policy cut (their later rounds were never seen), it is a UsageError.
    """
    asked = settings or ScoredSettings()
    both = [Measures.of(traces).by(asked.metric) for traces in (first, second)]
    one, other = both
    rows = shared_rows(one, other, asked.f1_kind)
    if not len(rows[0]):
        raise UsageError(
            f"{one.traces.origin.source} and {other.traces.origin.source} share no question, by id and text, "
            "that both score; record the same questions with both loops"
        )
    ends = [(at, m.traces.last_rounds[at] - 1) for m, at in zip(both, rows, strict=True)]
    score = [m.scores(asked.f1_kind).compared[end] for m, end in zip(both, ends, strict=True)]
    units = one.units[rows[0]]
    paid = [m.costs(asked.cost_model).at_stops(CostReads()) for m in both]
    held: dict[str, list[Array]] = {"score": score}
    for name in dict.fromkeys([*_COSTS, *([asked.cost] if asked.cost else [])]):
        known = [book[name] for book in paid]
        if all(of is not None for of in known):
            held[name] = [of[end] for of, end in zip(known, ends, strict=True) if of is not None]
    columns = per_unit(np.stack([value for pair in held.values() for value in pair], axis=1), units)
    means = columns.mean(axis=0)
    draws = resampled_means(columns, resamples=asked.resamples, seed=asked.seed)
    changes, drawn = (of[:, 1::2] - of[:, ::2] for of in (columns, draws))
    size = equally_many(units)
    quantities = [
        Quantity(
            name=name,
            label=one.metric.label if name == "score" else COSTS[name].label,
            first=float(means[2 * at]),
            second=float(means[2 * at + 1]),
            difference=mean_interval(changes[:, at], drawn[:, at], None if at else -1.0, size=size),
        )
        for at, name in enumerate(held)
    ]
    runs = [m.traces.origin.run for m in both]
    names = sorted({*runs[0], *runs[1]} - _OWN)
    return LoopComparison(
        sources=(one.traces.origin.source, other.traces.origin.source),
        questions=len(rows[0]),
        left_out=(one.traces.n_questions - len(rows[0]), other.traces.n_questions - len(rows[1])),
        metric=one.metric,
        score=quantities[0],
        costs=tuple(quantities[1:]),
        differs={
            n: (runs[0].get(n), runs[1].get(n)) for n in names if runs[0].get(n) != runs[1].get(n)
        },
    )


def shared_rows(
    one: Measures, other: Measures, f1: F1Kind
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows of the questions that both records hold and score; refuse other scores."""
    if one.metric.name != other.metric.name:
        raise UsageError(
            f"{one.traces.origin.source} is scored by {one.metric.label} and {other.traces.origin.source} "
            f"by {other.metric.label}; name one with --metric"
        )
    found = []
    for measures in (one, other):
        if measures.seen is not None:
            raise UsageError(
                f"a policy cut questions of {measures.traces.origin.source}, so what its loop does at its "
                "budget is not known; record the loop in shadow"
            )
        last = measures.traces.last_rounds
        scored = ~np.isnan(measures.scores(f1).compared[np.arange(len(last)), last - 1])
        rows = enumerate(measures.traces.questions)
        found.append({question.id: (row, question.text) for row, question in rows if scored[row]})
    # a redacted record has other texts for the same questions
    veiled = any(is_veiled(measures.traces.origin.run) for measures in (one, other))
    shared = [
        (found[0][name][0], found[1][name][0])
        for name in found[0]
        if name in found[1] and (veiled or found[0][name][1] == found[1][name][1])
    ]
    if not shared:  # some loops draw ids anew for every run
        by_text = [_of_one_text(of.values()) for of in found]
        shared = [(row, by_text[1][text]) for text, row in by_text[0].items() if text in by_text[1]]
    for row, of_other in shared if one.metric.gold and not veiled else ():
        if {*one.traces.gold[row].answers} != {*other.traces.gold[of_other].answers}:
            raise UsageError(
                f"question {one.traces.question_ids[row]!r:.80} has other gold answers in "
                f"{other.traces.origin.source} than in {one.traces.origin.source}; label both alike: suffice "
                "traces label RECORD LABELS --out NEW"
            )
    first, second = np.array(shared, np.intp).reshape(-1, 2).T
    return first, second


def _of_one_text(rows: Iterable[tuple[int, str]]) -> dict[str, int]:
    """The row of every text that one question has."""
    held = [*rows]
    often = Counter(text for _, text in held)
    return {text: row for row, text in held if text.strip() and often[text] == 1}
