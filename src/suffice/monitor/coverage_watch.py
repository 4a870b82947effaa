"""Watching the coverage that a policy file promises, over answers as they arrive."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor, scores_by_count
from suffice.monitor.arrivals import Arrived, Grading
from suffice.numbers.fields import map_fields
from suffice.numbers.tests.e_process import whole
from suffice.numbers.tests.tails import exact_interval
from suffice.policies.file import policy_hash
from suffice.protocols import StopPolicy
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular

_INTERVAL = 0.05
_DECIMALS = 9  # of scores: tools that copy JSON change last digits, and ties would be none
_COUNTS = ("answers", "labelled", "undecided", "misses")
_KINDS = (CoverageMonitor.kind, ExchangeabilityMonitor.kind)
_KEPT_FOR = {"promise": "policy", "level": "--level", "seed": "--seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a policy file promises, and what its calibration questions looked like."""

    alpha: float
    n_calibration: int
    first_round_scores: tuple[float, ...] = ()
    stop_on: str = "entropy"
    penalty: float = 0.0
    grading: Grading = field(default_factory=Grading)
    policy: str = ""

    def score(self, arrived: Arrived) -> float | None:
        """The answer's score at round 1 as calibrated on; NaN: undefined; ``None``: not told."""
        score = arrived.score if arrived.first_round is None else self._scored(arrived.first_round)
        return None if score is None else round(score, _DECIMALS)

    def _scored(self, values: Mapping[str, float]) -> float | None:
        entropy = values.get("normalized_entropy")
        if self.stop_on == "entropy":
            return entropy
        top = values.get("top_cluster_confidence")
        if top is None or not self.penalty:
            return None if top is None else -top
        return None if entropy is None else -(top - self.penalty * entropy)

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits over all of it."""
        scores = ["undefined" if math.isnan(score) else score for score in self.first_round_scores]
        graded = [self.grading.match.f1, self.grading.shows_all]
        parts = [self.alpha, self.n_calibration, scores, self.stop_on, self.penalty]
        parts += [*graded, self.policy]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def promise_of(policy: StopPolicy) -> Promise:
    """What a fitted policy promises."""
    facts = policy.facts
    promised = facts.coverage
    if promised is None:
        raise UsageError(
            f"a policy of kind {policy.kind!r} promises no coverage; only micp does: "
            "suffice fit micp TRACES --out policy.json"
        )
    n = whole(facts.fitted_on.get("calibration_questions"), "fitted_on.calibration_questions", 1)
    return Promise(
        alpha=promised.alpha,
        n_calibration=n,
        first_round_scores=_first_round_scores(facts.fitted_on.get("first_round_scores"), n),
        stop_on=promised.stop_on,
        penalty=promised.penalty,
        grading=Grading(match=promised.match, shows_all=promised.shows_all),
        policy=policy_hash(policy),
    )


def _first_round_scores(stored: object, n: int) -> tuple[float, ...]:
    """The stored scores; calibration questions that have none are the undefined ones."""
    if stored is None:
        return ()
    fields = map_fields(stored, "first_round_scores", ("values", "counts"))
    scores = scores_by_count(fields.get("values"), fields.get("counts"))
    if len(scores) > n:
        raise DataError(
            f"add up to {len(scores)}, more than the {n} calibration questions", column="counts"
        )
    undefined = n - len(scores)
    rounded = [round(score, _DECIMALS) for score in scores]
    return (*rounded, *(scores_by_count([None], [undefined]) if undefined else ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """How to watch: the probability of a false alarm of each monitor, and the seed of its ties."""

    level: float = 0.05
    seed: int = 42


ALARMS = {
    "coverage": "answers miss more often than the promise and the luck of calibration explain",
    "exchangeability": "answers no longer look like those calibrated on; not that coverage fell",
}
_MISSING = {
    "coverage": "no answer came with its right answer",
    "exchangeability": "no answer came with its score at round 1",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedMonitor:
    """Where a monitor stands.

    ``taken`` answers it could use; ``alarmed_at`` counts those, ``alarmed_at_answer`` all answers read,
    both from 1. ``limit`` is the miss rate that the coverage monitor bets against.
    """

    kind: str
    taken: int
    capital: float
    p_value: float
    alarmed_at: int | None
    alarmed_at_answer: int | None
    limit: float | None = None

    @property
    def in_words(self) -> str:
        """What its alarm says, or why it saw nothing; else nothing."""
        if self.alarmed_at is not None:
            return f"{self.kind}: {ALARMS[self.kind]}."
        return f"{self.kind}: nothing to go by, since {_MISSING[self.kind]}." * (self.taken == 0)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {**fields_as_json(self), "alarm": self.alarmed_at is not None}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Watched(Tabular):
    """What was seen so far.

    ``labelled`` answers are those whose right answer was known, ``undecided`` of them are sets of which
    it is not known whether "Can't Answer" is right; they count as covered. ``coverage`` and its 95%
    interval are ``None`` when nothing was labelled; the interval's low end counts undecided as misses.
    The interval is for one look at the end, not for stopping when it looks bad: that is what monitors
    are for.
    """

    promise: Promise
    settings: WatchSettings
    answers: int
    labelled: int
    undecided: int
    misses: int
    monitors: tuple[WatchedMonitor, ...]

    @property
    def coverage(self) -> float | None:
        """Share of the labelled answers that covered."""
        return None if self.labelled == 0 else 1.0 - self.misses / self.labelled

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its exact 95% interval (Clopper and Pearson)."""
        if self.labelled == 0:
            return None
        covered = self.labelled - self.misses
        low, _ = exact_interval(covered - self.undecided, self.labelled, _INTERVAL)
        return low, exact_interval(covered, self.labelled, _INTERVAL)[1]

    @property
    def alarmed(self) -> bool:
        """Whether any monitor raised an alarm."""
        return any(monitor.alarmed_at is not None for monitor in self.monitors)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        low, high = self.interval or (None, None)
        return {
            "alpha": self.promise.alpha,
            "calibration_questions": self.promise.n_calibration,
            "level": self.settings.level,
            "answers": self.answers,
            "labelled": self.labelled,
            "undecided": self.undecided,
            "misses": self.misses,
            "coverage": {"estimate": self.coverage, "low": low, "high": high},
            "alarm": self.alarmed,
            "monitors": as_json(self.monitors),
        }

    def tables(self) -> tuple[Table]:
        """Where each monitor stands, under the promise and the coverage seen."""
        columns = (
            Column(name="monitor"),
            Column(name="answers", kind="count", head="answers used"),
            Column(name="capital", kind="significant", digits=4),
            Column(name="p_value", kind="significant", digits=3, head="p-value"),
            Column(name="alarmed_at_answer", kind="count", head="alarm"),
        )
        rows: list[list[Value]] = [
            [
                *(monitor.kind, monitor.taken, monitor.capital, monitor.p_value),
                Cell(None, "no")
                if monitor.alarmed_at is None
                else Cell(monitor.alarmed_at_answer, f"at answer {monitor.alarmed_at_answer}"),
            ]
            for monitor in self.monitors
        ]
        notes = [said for monitor in self.monitors if (said := monitor.in_words)]
        if not any(monitor.kind == "exchangeability" for monitor in self.monitors):
            notes.append(
                "The policy file holds no first-round scores: without labels nothing is seen."
            )
        title = (
            f"Promised: at most {percent(self.promise.alpha)}% of answer sets miss, calibrated on "
            f"{self.promise.n_calibration} questions.\n{self._seen()}"
        )
        return (Table(name="monitors", title=title, columns=columns, rows=rows, notes=notes),)

    def _seen(self) -> str:
        read = f"{self.answers} answers read, {self.labelled} with a right answer"
        if self.interval is None or self.coverage is None:
            return f"{read}."
        low, high = self.interval
        text = (
            f"{read}, {self.misses} misses: coverage {percent(self.coverage)}% "
            f"[{percent(low)}, {percent(high)}]"
        )
        if self.undecided:
            text += (
                f'; {self.undecided} of them came without samples to tell whether "Can\'t Answer" '
                "is right: counted as covered, and as misses at the interval's low end"
            )
        return f"{text}."


class Watch:
    """Both monitors over one stream of answers."""

    def __init__(self, promise: Promise, settings: WatchSettings | None = None) -> None:
        self._promise = promise
        self._settings = settings or WatchSettings()
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._alarms: dict[str, int] = {}
        level, scores = self._settings.level, promise.first_round_scores
        self._coverage = CoverageMonitor(promise.alpha, promise.n_calibration, level)
        self._exchangeability = (
            ExchangeabilityMonitor(scores, level, seed=self._settings.seed) if scores else None
        )

    def take(self, arrived: Arrived) -> tuple[str, ...]:
        """Count one answer; the kinds of monitors that raised their alarm at it."""
        self._counts["answers"] += 1
        score = self._promise.score(arrived)
        if score is not None and self._exchangeability is not None:
            self._exchangeability.update(score)
        return self.label(arrived)

    def label(self, arrived: Arrived) -> tuple[str, ...]:
        """What became known of an answer that was counted before; the kinds that raised their alarm."""
        if arrived.covered is not None or arrived.undecided:
            covered = arrived.covered is not False  # undecided can only delay an alarm
            self._counts["labelled"] += 1
            self._counts["undecided"] += arrived.undecided
            self._counts["misses"] += not covered
            self._coverage.update(covered)
        raised = tuple(
            monitor.kind
            for monitor in self._monitors
            if monitor.alarmed and monitor.kind not in self._alarms
        )
        self._alarms |= dict.fromkeys(raised, self._counts["answers"])
        return raised

    @property
    def answers(self) -> int:
        """Answers taken."""
        return self._counts["answers"]

    @property
    def _monitors(self) -> tuple[CoverageMonitor | ExchangeabilityMonitor, ...]:
        if self._exchangeability is None:
            return (self._coverage,)
        return self._coverage, self._exchangeability

    def result(self) -> Watched:
        """What was seen so far."""
        return Watched(
            promise=self._promise,
            settings=self._settings,
            monitors=tuple(
                WatchedMonitor(
                    kind=monitor.kind,
                    taken=monitor.seen,
                    capital=monitor.capital,
                    p_value=monitor.p_value,
                    alarmed_at=monitor.alarmed_at,
                    alarmed_at_answer=self._alarms.get(monitor.kind),
                    limit=monitor.limit if isinstance(monitor, CoverageMonitor) else None,
                )
                for monitor in self._monitors
            ),
            **self._counts,
        )

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_watch": 1,
            "promise": self._promise.fingerprint,
            "level": self._settings.level,
            "seed": self._settings.seed,
            **self._counts,
            "alarms": dict(self._alarms),
            "monitors": [monitor.to_json() for monitor in self._monitors],
        }

    def resumed(self, state: object) -> Watch:
        """The watch that gave ``state`` by :meth:`to_json`, of the same promise and settings."""
        resumed = Watch(self._promise, self._settings)
        resumed._go_on(self._checked(state))
        return resumed

    def _checked(self, state: object) -> Mapping[str, Any]:
        own = ("suffice_watch", "promise", "level", "seed", *_COUNTS, "alarms", "monitors")
        fields = state if isinstance(state, Mapping) else {}
        if fields.get("suffice_watch") != 1:
            raise DataError(
                f"must be 1, found {fields.get('suffice_watch')!r}: no state of suffice monitor, or "
                "one of a newer version",
                column="suffice_watch",
            )
        fields = map_fields(state, "a state of suffice monitor", own)
        fresh = self.to_json()
        for name in ("promise", "level", "seed"):
            if fields.get(name) != fresh[name]:
                raise DataError(
                    f"the state was kept for another {_KEPT_FOR[name]} ({fields.get(name)!r}, now "
                    f"{fresh[name]!r}); begin another state file",
                    column=name,
                )
        return fields

    def _go_on(self, fields: Mapping[str, Any]) -> None:
        saved = fields.get("monitors")
        if not isinstance(saved, list) or len(saved) != len(self._monitors):
            raise DataError(f"must be a list of {len(self._monitors)} monitors", column="monitors")
        self._counts = {name: whole(fields.get(name), name) for name in _COUNTS}
        alarms = map_fields(fields.get("alarms"), "alarms", _KINDS)
        self._alarms = {kind: whole(at, f"alarms.{kind}", 1) for kind, at in alarms.items()}
        self._coverage = CoverageMonitor.from_json(saved[0])
        if self._exchangeability is not None:
            self._exchangeability = ExchangeabilityMonitor.from_json(saved[1])
        for monitor in self._monitors:
            if monitor.alarmed != (monitor.kind in self._alarms):
                raise DataError(f"does not agree with the {monitor.kind} monitor", column="alarms")
        if (self._coverage.seen, self._coverage.misses) != (
            self._counts["labelled"],
            self._counts["misses"],
        ):
            raise DataError("does not agree with the coverage monitor", column="labelled")
