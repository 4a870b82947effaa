"""What a search found, ready for a table, JSON and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval
from suffice.numbers.intervals.sums import draws_in_words
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import counted, percent
from suffice.results.markup import visible
from suffice.results.table import Column, Table
from suffice.results.tabular import Tabular
from suffice.scoring import Metric

if TYPE_CHECKING:
    from suffice.replay.settings import SearchSettings

_ELSEWHERE = {"json": None}  # the document holds these in another form, or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenThreshold:
    """A signal with its threshold (``None``: it takes none, or ``never``: none kept the cost cap).

    ``tried`` counts the thresholds of its ``grid``, twice where both directions were tried.
    """

    signal: str
    condition: str
    threshold: float | None
    tried: int
    never: bool = field(default=False, metadata={"json": "never_fires"})
    grid: tuple[float, ...] = field(default=(), metadata={"json": None})


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedRule:
    """One rule: figures on eval, and what it was ordered by on tune.

    ``interval`` (of the score that ``metric`` compares by) and ``delta`` (against the baseline) hold for
    all rules and thresholds looked at together; the ``naive`` ones look at this rule alone. ``pareto``: no
    other rule is at once cheaper and better on tune. ``ways`` counts the rules that stop every question of
    both splits in the same round as this one, itself included; ``like`` is the first of them in order,
    which is listed for all (``None``: this one).
    """

    rule: str
    metric: Metric = field(metadata=_ELSEWHERE)
    f1: float = field(metadata={"json": "{f1}"})
    em: float = field(metadata={"json": "{em}"})
    acc: float = field(metadata={"json": "{acc}"})
    mean_rounds: float
    cost: float
    interval: Interval = field(metadata=_ELSEWHERE)
    naive: Interval = field(metadata=_ELSEWHERE)
    delta: Interval = field(metadata={"json": "delta_{metric}"})
    naive_delta: Interval = field(metadata=_ELSEWHERE)
    p_holm: float
    tune_score: float = field(metadata={"json": "tune_{metric}"})
    tune_cost: float
    tune_objective: float
    within_cap: bool
    pareto: bool
    ways: int = 1
    like: str | None = None

    @property
    def score(self) -> float:
        """The one that rules are compared by."""
        value: float = getattr(self, self.metric.score)
        return value

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        """The entry of ``search --json``."""
        document = {**self.metric.unknown, **fields_as_json(self, self.metric.names)}
        entry = {**document, "low": self.interval.low, "high": self.interval.high}
        if naive:
            entry |= {
                "naive_low": self.naive.low,
                "naive_high": self.naive.high,
                f"naive_delta_{self.metric.name}": as_json(self.naive_delta),
            }
        return entry


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SearchResult(Tabular):
    """Every rule of a search, in the order of the objective on tune.

    ``family`` is how many rules the correction covers: formulas and single thresholds tried.
    ``critical_score`` and ``critical_delta`` are the standard errors that a simultaneous interval
    spans to each side (1.96 for a single one). ``questions`` and ``labelled`` are of tune and eval.
    """

    rules: tuple[SearchedRule, ...]
    evaluated: int
    thresholds: tuple[ChosenThreshold, ...]
    family: int
    critical_score: float
    critical_delta: float
    baseline: str
    baseline_score: float
    questions: tuple[int, int]
    labelled: tuple[int, int]
    max_rounds: int
    metric: Metric
    cost: CostAxis
    settings: SearchSettings
    source: str
    notes: tuple[str, ...]

    @property
    def objective(self) -> str:
        """What rules are ordered by."""
        asked = self.settings.objective or self.metric.score
        return self.metric.names.get(asked, asked)

    @property
    def listed(self) -> tuple[SearchedRule, ...]:
        """One of those that stop every question alike: the first in order, and so the cheapest."""
        return tuple(rule for rule in self.rules if rule.like is None)

    def pick(self, number: int) -> SearchedRule:
        """The rule that the table lists under a number from 1."""
        listed = self.listed
        if not 1 <= number <= len(listed):
            raise UsageError(f"there is no rule {number}; the search lists 1 to {len(listed)}")
        return listed[number - 1]

    @property
    def thresholds_tried(self) -> int:
        """How many thresholds were looked at on tune."""
        return sum(condition.tried for condition in self.thresholds)

    @property
    def naive_share(self) -> float | None:
        """Mean width of the uncorrected intervals over that of the simultaneous ones."""
        corrected = sum(rule.interval.high - rule.interval.low for rule in self.rules)
        naive = sum(rule.naive.high - rule.naive.low for rule in self.rules)
        return naive / corrected if corrected > 0 else None

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        """The document of ``search --json``: strict JSON, null where undefined."""
        settings = self.settings
        document: dict[str, Any] = {
            "evaluated": self.evaluated,
            "thresholds_tried": self.thresholds_tried,
            "rules": [rule.to_json(naive=naive) for rule in self.rules],
            "listed": len(self.listed),
            "form": settings.form,
            "metric": self.metric.name,
            "answer": settings.answer,
            "objective": self.objective,
            "cost": self.cost.name,
            "max_cost": settings.max_cost,
            "thresholds": as_json(self.thresholds),
            "correction": {
                "family": self.family,
                f"critical_{self.metric.name}": self.critical_score,
                "critical_delta": self.critical_delta,
                "p_values": "paired t, Holm",
            },
            "baseline": self.baseline,
            f"baseline_{self.metric.name}": self.baseline_score,
            "tune_split": settings.tune_split,
            "eval_split": settings.eval_split,
            "questions": {"tune": self.questions[0], "eval": self.questions[1]},
            "labelled": {"tune": self.labelled[0], "eval": self.labelled[1]},
            "max_rounds": self.max_rounds,
            "f1_kind": settings.f1_kind,
            "seed": settings.seed,
            "bootstrap": settings.resamples,
            "version": VERSION,
            "traces": self.source,
            "notes": list(self.notes),
        }
        if naive:
            document["naive_share_of_width"] = self.naive_share
        return document

    def tables(self, *, top: int | None = None, naive: bool = False) -> tuple[Table, ...]:
        """The first ``top`` rules in order (``None``: all), and the Pareto front."""
        settings, metric = self.settings, self.metric
        label = metric.label
        columns = [
            Column(name="number", kind="count", head="#"),
            Column(name=f"tune_{metric.name}", kind="percent", head=f"tune {label}"),
            Column(name=metric.name, kind="percent", head=f"{label} [95%, all]", interval=True),
            Column(name=metric.key(metric.beside), kind="percent", head=metric.head(metric.beside)),
            Column(name="mean_rounds", kind="number", digits=2, head="rounds"),
            Column(name="cost", kind="number", head=self.cost.label),
            Column(
                name=f"delta_{metric.name}",
                kind="points",
                head=f"delta {label} [95%, all]",
                interval=True,
            ),
        ]
        if naive:
            columns.append(
                Column(name="naive", kind="percent", head=f"{label} [95%, alone]", interval=True)
            )
        columns += [
            Column(name="p_holm", kind="p_value", head="p\n(Holm)", in_text=False),
            Column(name="ways", kind="count", in_text=len(self.listed) < self.evaluated),
            Column(name="rule", whole=True),
        ]
        numbers = {rule.rule: number for number, rule in enumerate(self.listed, 1)}

        def table(name: str, rules: Sequence[SearchedRule], title: str) -> Table:
            values = {column.name: column.name for column in columns} | {
                f"tune_{metric.name}": "tune_score",
                metric.name: "interval",
                metric.key(metric.beside): metric.beside,
                f"delta_{metric.name}": "delta",
            }
            rows = [
                [
                    numbers[rule.rule]
                    if column.name == "number"
                    else getattr(rule, values[column.name])
                    for column in columns
                ]
                for rule in rules
            ]
            return Table(name=name, title=title, columns=columns, rows=rows, names=0)

        rules = table(
            "rules",
            self.listed[:top],
            f"{counted(self.evaluated, 'rule')} of form {settings.form!r}, {self.thresholds_tried} "
            f"thresholds tried; ordered by {self.objective} on split {settings.tune_split}, "
            f"scored on split {settings.eval_split}.",
        )
        front = table(
            "Pareto front",
            sorted((rule for rule in self.listed if rule.pareto), key=lambda rule: rule.tune_cost),
            "Pareto front: on tune, no other rule is at once cheaper and better.",
        )
        notes = [*self.explained(naive=naive), *(f"Note: {note}" for note in self.notes)]
        return rules, replace(front, notes=notes)

    def explained(self, *, naive: bool) -> list[str]:
        """What the figures are and what the correction covers, sentence by sentence."""
        settings, label = self.settings, self.metric.label
        which = self.metric.which_f1(settings.f1_kind)
        kind = "" if which is None else f" ({which})"
        texts = [
            f"{label}, {self.metric.head(self.metric.beside)}{kind} and differences in percent, means over "
            f"{self.labelled[1]} questions {self.metric.scored}, of split {settings.eval_split}; delta "
            f"{label} is against {visible(self.baseline)} ({label} {percent(self.baseline_score)}).",
            f"Intervals hold together for all {self.family} rules and thresholds looked at: "
            f"{self.critical_score:.2f} ({label}) and {self.critical_delta:.2f} (delta {label}) "
            f"bootstrap standard errors to each side, instead of 1.96 for one rule "
            f"({settings.resamples} {draws_in_words(self.labelled[1])}, seed {settings.seed}).",
            f"{self.verdict} in {label} at 5% (paired t, Holm).",
        ]
        if len(self.listed) < self.evaluated:
            texts.insert(
                0,
                f"The {self.evaluated} rules stop in {counted(len(self.listed), 'different way')}: of those "
                "that stop every question alike the cheapest is listed, ways says how many there are.",
            )
        if naive and self.naive_share is not None:
            texts.append(
                f"Intervals that look at one rule alone have {self.naive_share:.0%} of that width: they "
                "hide that the rule was picked from many."
            )
        return texts

    @property
    def verdict(self) -> str:
        """How many rules differ from the baseline after correction, without a full stop."""
        differ = sum(rule.p_holm <= 0.05 for rule in self.rules)
        which = "No rule differs"
        if differ:
            which = "1 rule differs" if differ == 1 else f"{differ} rules differ"
        return f"{which} from {visible(self.baseline)}"
