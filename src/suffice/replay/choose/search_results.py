"""What a search found, ready for a table, JSON and the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from suffice._version import VERSION
from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval

if TYPE_CHECKING:
    from suffice.replay.settings import SearchSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenThreshold:
    """A signal with its threshold (``None``: it takes none, or ``never``: none kept the cost cap).

    ``tried`` counts the thresholds of its grid, listed in ``grid``.
    """

    signal: str
    condition: str
    threshold: float | None
    tried: int
    never: bool = False
    grid: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedRule:
    """One rule: figures on eval, and what it was ordered by on tune.

    ``interval`` (of F1) and ``delta_f1`` (against the baseline) hold for all rules and thresholds
    looked at together; the ``naive`` ones look at this rule alone. ``pareto``: no other rule is at
    once cheaper and better on tune.
    """

    rule: str
    f1: float
    em: float
    mean_rounds: float
    cost: float
    interval: Interval
    naive: Interval
    delta_f1: Interval
    naive_delta_f1: Interval
    p_holm: float
    tune_f1: float
    tune_cost: float
    tune_objective: float
    within_cap: bool
    pareto: bool

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        """The entry of ``search --json``."""
        entry: dict[str, Any] = {
            "rule": self.rule,
            "f1": self.f1,
            "em": self.em,
            "mean_rounds": self.mean_rounds,
            "low": self.interval.low,
            "high": self.interval.high,
            "cost": self.cost,
            "delta_f1": self.delta_f1.to_json(),
            "p_holm": self.p_holm,
            "tune_f1": self.tune_f1,
            "tune_cost": self.tune_cost,
            "tune_objective": self.tune_objective,
            "within_cap": self.within_cap,
            "pareto": self.pareto,
        }
        if naive:
            entry["naive_low"], entry["naive_high"] = self.naive.low, self.naive.high
            entry["naive_delta_f1"] = self.naive_delta_f1.to_json()
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """Every rule of a search, in the order of the objective on tune.

    ``family`` is how many rules the correction covers: formulas and single thresholds tried.
    ``critical_f1`` and ``critical_delta`` are the standard errors that a simultaneous interval
    spans to each side (1.96 for a single one). ``questions`` and ``labelled`` are of tune and eval.
    """

    rules: tuple[SearchedRule, ...]
    evaluated: int
    thresholds: tuple[ChosenThreshold, ...]
    family: int
    critical_f1: float
    critical_delta: float
    baseline: str
    baseline_f1: float
    questions: tuple[int, int]
    labelled: tuple[int, int]
    max_rounds: int
    cost: CostAxis
    settings: SearchSettings
    source: str
    notes: tuple[str, ...]

    @property
    def thresholds_tried(self) -> int:
        """How many thresholds were looked at on tune."""
        return sum(each.tried for each in self.thresholds)

    @property
    def naive_share(self) -> float | None:
        """Mean width of the uncorrected F1 intervals over that of the simultaneous ones."""
        corrected = sum(each.interval.high - each.interval.low for each in self.rules)
        naive = sum(each.naive.high - each.naive.low for each in self.rules)
        return naive / corrected if corrected > 0 else None

    def to_json(self, *, naive: bool = False) -> dict[str, Any]:
        """The document of ``search --json``: strict JSON, null where undefined."""
        settings = self.settings
        document: dict[str, Any] = {
            "evaluated": self.evaluated,
            "thresholds_tried": self.thresholds_tried,
            "rules": [each.to_json(naive=naive) for each in self.rules],
            "form": settings.form,
            "objective": settings.objective,
            "cost": self.cost.name,
            "max_cost": settings.max_cost,
            "thresholds": [
                {
                    "signal": each.signal,
                    "condition": each.condition,
                    "threshold": each.threshold,
                    "tried": each.tried,
                    "never_fires": each.never,
                }
                for each in self.thresholds
            ],
            "correction": {
                "family": self.family,
                "critical_f1": self.critical_f1,
                "critical_delta": self.critical_delta,
                "p_values": "paired t, Holm",
            },
            "baseline": self.baseline,
            "baseline_f1": self.baseline_f1,
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
