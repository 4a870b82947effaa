"""What is watched of a policy in production, each by itself: drift, calibration, and what stopping costs."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.monitor.alarms import BINS, ExchangeabilityMonitor, ProbabilityMonitor, bin_of
from suffice.monitor.questions import SAVED, Asked, Returned
from suffice.numbers.fields import number, numbers
from suffice.numbers.intervals.anytime import AnytimeMean, MeanSequence
from suffice.protocols import StopPolicy
from suffice.results.as_json import as_json, fields_as_json
from suffice.scoring import METRICS, Metric, ScoreName, accuracy, exact_match, f1

_OF_SHARE = 0.1  # of the level, for the share of questions that are stopped early
_SCORES: Mapping[ScoreName, Callable[[str, Iterable[str]], float]] = {
    "em": exact_match,
    "f1": f1,
    "acc": accuracy,
}


# --- drift ---------------------------------------------------------------------------------------
class Drift:
    """Whether signals and stops still look as they did: a conformal martingale for each.

    Every number is ranked among those of the past and those since, ties broken at random. Each of the k has
    the level divided by k, which holds however they hang together; an average of their capitals would not,
    since each is fair given its own past ranks only.
    """

    def __init__(
        self,
        names: Sequence[str],
        level: float,
        *,
        past: Mapping[str, Sequence[float]] | None = None,
        first: int = 200,
        seed: int = 42,
    ) -> None:
        if first < 1:
            raise UsageError(f"at least one question must stand for the past, found {first}")
        self._names, self._level, self._seed = tuple(names), level, seed
        self._first = first
        self._waiting: dict[str, list[float]] = {name: [] for name in names}
        self.monitors: dict[str, ExchangeabilityMonitor] = {}
        self.reference = ""
        """A digest of the values of a record that stands for the past; empty: the first questions do."""
        if past is not None:
            told = json.dumps([as_json(past[name]) for name in self._names])
            self.reference = hashlib.sha256(told.encode()).hexdigest()[:12]
            self._begin(past)

    def _begin(self, past: Mapping[str, Sequence[float]]) -> None:
        level = self._level / len(self._names)
        self.monitors = {
            name: ExchangeabilityMonitor(past[name], level, seed=self._seed) for name in self._names
        }
        self._waiting = {}

    @property
    def lacking(self) -> int:
        """How many more questions stand for the past before anything is tested."""
        return 0 if self.monitors else self._first - len(self._waiting[self._names[0]])

    def take(self, values: Mapping[str, float]) -> list[str]:
        """The numbers of one question; the names of those that raised their alarm at it."""
        if not self.monitors:
            for name, held in self._waiting.items():
                held.append(values[name])
            if not self.lacking:
                self._begin(self._waiting)
            return []
        raised = []
        for name, monitor in self.monitors.items():
            before = monitor.alarmed
            if monitor.update(values[name]) and not before:
                raised.append(name)
        return raised

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on."""
        return {
            "reference": self.reference,
            "waiting": as_json(self._waiting),
            "monitors": as_json(list(self.monitors.values())),
        }

    def resume(self, held: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_json` gave."""
        if held["reference"] != self.reference:
            raise DataError(
                "the state was kept for another --reference; begin another state file",
                column="reference",
            )
        loaded = [ExchangeabilityMonitor.from_json(one) for one in held["monitors"]]
        self.monitors = dict(zip(self._names, loaded, strict=True)) if loaded else {}
        self._waiting = {
            name: [math.nan if value is None else number(value, "waiting") for value in values]
            for name, values in held["waiting"].items()
        }


# --- calibration ---------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Answers whose confidence lies from ``low`` to ``high``: how many, how sure, how many right."""

    low: float
    high: float
    confidence: float
    right: AnytimeMean


class Calibration:
    """Whether labelled answers are right as often as the policy's confidence says."""

    def __init__(self, level: float) -> None:
        self._level = level
        self.monitor = ProbabilityMonitor(level)
        self._right = [MeanSequence(0.0, 1.0) for _ in range(BINS)]
        self._stated = [0.0] * BINS

    def take(self, confidence: float, right: float) -> bool:
        """One labelled answer; whether that raised the alarm."""
        own = bin_of(confidence)
        self._right[own].take(right)
        self._stated[own] += confidence
        before = self.monitor.alarmed
        return self.monitor.update(confidence, right) and not before

    @property
    def bins(self) -> list[ReliabilityBin]:
        """Those with answers, from unsure to sure; each interval holds at all times by itself."""
        return [
            ReliabilityBin(
                low=place / BINS,
                high=(place + 1) / BINS,
                confidence=self._stated[place] / right.count,
                right=right.at(self._level),
            )
            for place, right in enumerate(self._right)
            if right.count
        ]

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on."""
        right = [held.to_json() for held in self._right]
        return {"monitor": self.monitor.to_json(), "right": right, "stated": self._stated}

    def resume(self, held: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_json` gave."""
        self.monitor = ProbabilityMonitor.from_json(held["monitor"])
        self._right = [MeanSequence.from_json(right, 0.0, 1.0) for right in held["right"]]
        self._stated = list(numbers(held["stated"], "stated"))


# --- what stopping costs -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """The loss that is watched, by which score, and the most that is promised (``None``: nothing is)."""

    metric: Metric
    score: ScoreName
    loss: str = "signed"
    most: float | None = None

    @classmethod
    def by(cls, policy: StopPolicy, metric: str | None, most: float | None) -> Promised:
        """What a certified policy promises, unless another metric or bound is named."""
        if most is not None and not 0.0 <= most <= 1.0:
            raise UsageError(f"a promised loss lies in [0, 1], found {most!r}")
        if metric is not None and metric not in METRICS:
            raise UsageError(f"no metric {metric!r}; allowed: {', '.join(map(str, METRICS))}")
        terms = policy.facts.guarantee
        loss, stated = _bound_of(terms)
        certified = {
            known.key(score): (known, score) for known in METRICS.values() for score in _SCORES
        }.get(str(terms.get("metric")))
        if metric is None and certified is not None:
            known, score = certified
            return cls(metric=known, score=score, loss=loss, most=stated if most is None else most)
        named = METRICS[metric or "f1"]  # type: ignore[index]
        if certified is not None and certified[0] is named and most is None:
            most = stated
        return cls(metric=named, score=named.score, most=most)

    @property
    def least(self) -> float:
        """The least a loss can be; the most is 1."""
        return -1.0 if self.loss == "signed" else 0.0

    def value(self, asked: Returned, gold: Sequence[str], score: ScoreName | None = None) -> float:
        """What an answer scores; NaN: unknown."""
        score = score or self.score
        if self.metric.against == "scores":
            own = math.nan if asked.score is None else asked.score
            exact = {"f1": own, "em": float(own == 1.0), "acc": float(own > 0.0)}
            return math.nan if math.isnan(own) else exact[score]
        if asked.answer is None or not gold:
            return math.nan
        if self.metric.agreement and exact_match(asked.answer, gold) == 1.0:
            return 1.0
        return _SCORES[score](asked.answer, gold)

    def lost(self, stop: float, end: float) -> float:
        """By a stop that scores so where running on scores so."""
        if self.loss == "wrong-stop":
            return float(end == 1.0 and stop != 1.0)
        return max(end - stop, self.least)

    @property
    def in_words(self) -> str:
        """The loss, for a table."""
        kind = {"signed": "", "drop": " in drops", "wrong-stop": " in wrong stops"}[self.loss]
        return f"{self.metric.head(self.score)} lost{kind}"


def _bound_of(terms: Mapping[str, Any]) -> tuple[str, float | None]:
    """Which loss a certificate bounds, and at what."""
    bounds: list[Any] = [{"of": terms.get("loss"), "at_most": terms.get("max_loss")}]
    bounds += [bound for bound in terms.get("bounds") or () if isinstance(bound, Mapping)]
    for bound in bounds:
        kind, most = bound.get("of"), bound.get("at_most")
        if kind in ("signed", "drop", "wrong-stop") and isinstance(most, int | float):
            return str(kind), float(most)
    return "signed", None


@dataclass(frozen=True, slots=True, kw_only=True)
class PerQuestion:
    """A mean over all questions of what stops early change, from those that ran on past their stop."""

    name: str
    explored: int
    estimate: float
    low: float
    high: float


class Stopping:
    """What stopping loses and saves against running on, per question, at all times.

    Savings are shares of what the same loop would have cost that went on, asked for the same.

    Questions drawn to run on past their stop tell what others lose; the share that is stopped early is
    counted of all. The product of both intervals, 0.9 and 0.1 of the level apart, holds for the mean per
    question. It does not matter in which order or how many of the drawn ones are labelled, so long as that
    does not depend on the outcome, nor whether others are: weights of 1/propensity would need the others'
    labels too, for intervals as wide.
    """

    def __init__(self, promised: Promised, level: float) -> None:
        self._promised, self._level = promised, level
        self._early = MeanSequence(0.0, 1.0)
        self._loss = MeanSequence(promised.least, 1.0)
        self._saved = {name: MeanSequence(0.0, 1.0) for name in SAVED}
        self.draws = ProbabilityMonitor(level)
        self.alarmed = False

    def take(self, asked: Asked) -> bool:
        """A question that ended; whether the draws are shown not to be what was promised by it."""
        if asked.stop is not None:
            self._early.take(float(asked.early))
        for name, share in asked.saved.items():
            self._saved[name].take(share)
        if not asked.early or asked.propensity is None:
            return False
        before = self.draws.alarmed
        return self.draws.update(asked.propensity, float(asked.explored)) and not before

    def lose(self, loss: float) -> bool:
        """What a question that ran on would have lost by stopping; whether that raised the alarm."""
        self._loss.take(loss)
        most = self._promised.most
        if self.alarmed or most is None or self._early.mean * self._loss.mean <= most:
            return False
        self.alarmed = self.loss.low > most
        return self.alarmed

    @property
    def early(self) -> AnytimeMean:
        """The share of questions that are stopped early."""
        return self._early.at(self._level)

    @property
    def loss(self) -> PerQuestion:
        """The loss per question."""
        return self._per_question(self._promised.in_words, self._loss)

    @property
    def saved(self) -> list[PerQuestion]:
        """The share that is saved of each cost, of those that are known."""
        return [self._per_question(name, held) for name, held in self._saved.items() if held.count]

    def _per_question(self, name: str, held: MeanSequence) -> PerQuestion:
        share = self._early.at(_OF_SHARE * self._level)
        mean = held.at((1.0 - _OF_SHARE) * self._level)
        ends = [part * end for part in (share.low, share.high) for end in (mean.low, mean.high)]
        return PerQuestion(
            name=name,
            explored=mean.count,
            estimate=share.estimate * mean.estimate,
            low=min(ends),
            high=max(ends),
        )

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on."""
        own = {"early": self._early, "loss": self._loss, "saved": self._saved, "draws": self.draws}
        return {**as_json(own), "alarmed": self.alarmed}

    def resume(self, held: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_json` gave."""
        self._early = MeanSequence.from_json(held["early"], 0.0, 1.0)
        self._loss = MeanSequence.from_json(held["loss"], self._promised.least, 1.0)
        self._saved = {
            name: MeanSequence.from_json(held["saved"][name], 0.0, 1.0) for name in SAVED
        }
        self.draws = ProbabilityMonitor.from_json(held["draws"])
        self.alarmed = bool(held["alarmed"])


# --- alarms --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """Something that luck does not explain, told once."""

    kind: str = field(metadata={"json": "alarm"})
    of: str = ""
    question: int
    question_id: str
    policy: str
    text: str
    evidence: Mapping[str, float | None]

    @property
    def id(self) -> str:
        """The same where an alarm is told again after a crash."""
        told = f"{self.policy} {self.kind} {self.of} {self.question} {self.question_id}"
        return hashlib.sha256(told.encode(errors="replace")).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**fields_as_json(self), "id": self.id}

    @classmethod
    def from_json(cls, held: Mapping[str, Any]) -> Alarm:
        """What :meth:`to_json` gave."""
        names = ("of", "question", "question_id", "policy", "text", "evidence")
        return cls(kind=held["alarm"], **{name: held[name] for name in names})
