"""Watching a policy in production: drift, calibration and what stopping costs, over questions as they end."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from suffice.contracts import ConfidentPolicy, StopPolicy
from suffice.costs.usage import find_cost
from suffice.errors import DataError, UsageError
from suffice.monitor.alarms import BINS, ExchangeabilityMonitor, ProbabilityMonitor, bin_of
from suffice.monitor.coverage import ALARMS, VERSION, Watch, opened, promise_of, standing, undamaged
from suffice.monitor.questions import Asked, Promised, Reading, Returned, Stopping
from suffice.policies.file import policy_hash
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import counted, percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import exact_match
from suffice.stats.betting import MeanSequence, Monitor
from suffice.stats.fields import number, numbers, whole
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.table import TraceSet

_COUNTS = (
    *("questions", "rounds", "full_rounds", "budgeted", "early", "explored", "labelled", "cut"),
    *("unanswered", "forgotten", "others"),
)
_MOST_WAITING = 100_000  # questions whose labels may still come
_SAYS = {
    "drift": "no longer looks as before; questions, retriever or model changed, not that answers are worse",
    "calibration": "labelled answers are not right as often as the policy's confidence says",
    **ALARMS,
    "loss": "stopping loses more than was promised",
    "exploration": "the share of questions that ran on past their stop is not the one drawn with: losses "
    "and savings are not to be relied on",
}
KINDS = tuple(_SAYS)
"""Of alarms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionSettings:
    """How to watch."""

    level: float = 0.05
    seed: int = 42
    first: int = 200
    metric: str | None = None
    max_loss: float | None = None
    max_rounds: int | None = None


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


class Production(Tabular):
    """One policy, watched over all questions that it ran on, and where everything stands.

    Drift is a conformal martingale for each number of a question: it is ranked among those of the past and
    those since, ties broken at random. Each of the k has the level divided by k, which holds however they
    hang together; an average of their capitals would not, since each is fair given its own past ranks only.

    Notes
    -----
    Give every question once, in the order in which they end; :class:`suffice.monitor.following.Following`
    does.
    """

    def __init__(
        self,
        policy: StopPolicy,
        settings: ProductionSettings | None = None,
        *,
        past: TraceSet | None = None,
    ) -> None:
        self.settings = settings = settings or ProductionSettings()
        if settings.first < 1:
            raise UsageError(
                f"at least one question must stand for the past, found {settings.first}"
            )
        self.reading = Reading(policy, settings.max_rounds)
        self.counts = dict.fromkeys(_COUNTS, 0)
        self._policy = policy_hash(policy)
        self._promised = Promised.by(policy, settings.metric, settings.max_loss)
        self._stopping = Stopping(self._promised, settings.level)
        self._waiting: dict[str, dict[str, Any]] = {}
        self.alarms: list[Alarm] = []
        """All that were raised, in order."""
        self._past: dict[str, list[float]] = {name: [] for name in self.reading.names}
        self._drift: dict[str, ExchangeabilityMonitor] = {}
        self._reference = ""  # a digest of the past; empty: the first questions are the past
        if past is not None:
            asked = [question.values for question in self.reading.questions(past)]
            if not asked:
                raise UsageError(
                    "no question of the record that stands for the past was run by this policy, or by none"
                )
            self._past = {name: [held[name] for held in asked] for name in self._past}
            told = json.dumps(as_json(list(self._past.values())))
            self._reference = hashlib.sha256(told.encode()).hexdigest()[:12]
            self._begin_drift()
        self._calibration: ProbabilityMonitor | None = None
        if isinstance(policy, ConfidentPolicy):
            self._calibration = ProbabilityMonitor(settings.level)
        self._right = [MeanSequence(0.0, 1.0) for _ in range(BINS)]
        self._stated = [0.0] * BINS
        self._coverage: Watch | None = None
        if policy.facts.coverage is not None:
            self._promise = promise_of(policy)
            self._coverage = Watch(self._promise, settings.level, settings.seed)

    def _begin_drift(self) -> None:
        level, seed = self.settings.level / len(self._past), self.settings.seed
        self._drift = {
            name: ExchangeabilityMonitor(values, level, seed=seed)
            for name, values in self._past.items()
        }
        self._past = {}

    @property
    def _lacking(self) -> int:
        """How many more questions stand for the past before anything is tested."""
        return 0 if self._drift else self.settings.first - len(next(iter(self._past.values())))

    # --- taking in -------------------------------------------------------------------------------
    def take(self, asked: Asked) -> list[Alarm]:
        """A question that ended; the alarms raised by it."""
        counts, before = self.counts, len(self.alarms)
        counts["questions"] += 1
        counts["rounds"] += asked.rounds
        counts["early"] += asked.early
        counts["explored"] += asked.explored
        counts["cut"] += asked.cut
        if asked.budget is not None:
            counts["budgeted"] += asked.rounds
            counts["full_rounds"] += asked.budget
        for name, monitor in self._drift.items():
            raised = monitor.alarmed
            if monitor.update(asked.values[name]) and not raised:
                self._bets_won("drift", asked.id, monitor, of=name)
        for name, held in self._past.items():
            held.append(asked.values[name])
        if not (self._drift or self._lacking):
            self._begin_drift()
        if self._stopping.take(asked):
            self._bets_won("exploration", asked.id, self._stopping.draws)
        if self._coverage is not None:
            kinds = self._coverage.take(self._promise.read(asked.answers))
            self._coverage_fell(self._coverage, asked.id, kinds)
        agreement = self._promised.metric.agreement
        if asked.explored and agreement:
            self._settle_loss(asked.id, asked.at_stop, asked.at_end, ())
        sure = self._calibration is not None and asked.confidence is not None
        if (asked.explored and not agreement) or sure or self._coverage is not None:
            self._waiting.setdefault(
                asked.id,
                {
                    "rounds": [asked.stop or asked.rounds, asked.rounds],
                    "explored": asked.explored,
                    "confidence": asked.confidence,
                    "stop": as_json(asked.at_stop),
                    "end": as_json(asked.at_end),
                    "answers": dict(asked.answers),
                },
            )
            if asked.gold or asked.at_stop.score is not None:
                self.label(Label(question_id=asked.id, gold_answers=asked.gold))
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                counts["forgotten"] += 1
        return self.alarms[before:]

    def label(self, label: Label) -> list[Alarm]:
        """What became known of a question that was taken; the alarms raised by it.

        A label of a question that was not taken, or that has one, counts for nothing.
        """
        name, gold, before = label.question_id, label.gold_answers, len(self.alarms)
        held = self._waiting.get(name)
        if held is None:
            return []
        stop, end = Returned(**held["stop"]), Returned(**held["end"])
        if label.score is not None:
            stopped_in, ended_in = held["rounds"]
            scored_round = ended_in if label.round is None else label.round
            if scored_round == stopped_in:
                stop = replace(stop, score=label.score)
            if scored_round == ended_in:
                end = replace(end, score=label.score)
            held["stop"], held["end"] = as_json(stop), as_json(end)
        scored = self._promised.metric.against == "scores"
        if not (gold or (scored and stop.score is not None)):
            return []
        del self._waiting[name]
        self.counts["labelled"] += 1
        if (sure := held["confidence"]) is not None and self._calibration is not None:
            self._calibrate(name, sure, stop, gold)
        if held["explored"] and not self._promised.metric.agreement:
            self._settle_loss(name, stop, end, gold)
        if self._coverage is not None and gold:
            arrived = self._promise.read({**held["answers"], "gold_answers": list(gold)})
            self._coverage_fell(self._coverage, name, self._coverage.label(arrived))
        return self.alarms[before:]

    def _calibrate(self, name: str, sure: float, stop: Returned, gold: Sequence[str]) -> None:
        """Whether an answer is right: equal to a gold answer, or of score 1; else it is unknown."""
        if gold and stop.answer is not None:
            right = exact_match(stop.answer, gold)
        elif not gold and stop.score is not None:
            right = float(stop.score == 1.0)
        else:
            return
        self._right[bin_of(sure)].take(right)
        self._stated[bin_of(sure)] += sure
        if (monitor := self._calibration) is not None:
            before = monitor.alarmed
            if monitor.update(sure, right) and not before:
                self._bets_won("calibration", name, monitor)

    def _settle_loss(self, name: str, stop: Returned, end: Returned, gold: Sequence[str]) -> None:
        lost = self._promised.lost(stop, end, gold)
        if math.isnan(lost):
            self.counts["unanswered"] += 1
        elif self._stopping.lose(lost):
            loss, most = self._stopping.loss, self._promised.most or 0.0
            evidence = {"estimate": loss.estimate, "low": loss.low, "high": loss.high}
            evidence |= {"promised": most, "explored": float(loss.explored)}
            low, mean, high = (percent(part) for part in (loss.low, loss.estimate, loss.high))
            said = f"{mean}% [{low}, {high}] per question, promised at most {percent(most)}%"
            self._raise("loss", name, evidence, text=f"{_SAYS['loss']}: {said}")

    def _coverage_fell(self, watch: Watch, name: str, kinds: Iterable[str]) -> None:
        for kind in kinds:
            self._bets_won(kind, name, watch.monitors[kind])

    def _bets_won(self, kind: str, name: str, monitor: Monitor, *, of: str = "") -> None:
        evidence = {"capital": monitor.capital, "p_value": monitor.p_value}
        self._raise(kind, name, evidence | {"taken": float(monitor.seen)}, of=of)

    def _raise(
        self, kind: str, name: str, evidence: dict[str, float], *, of: str = "", text: str = ""
    ) -> None:
        alarm = Alarm(
            kind=kind,
            of=of,
            question=self.counts["questions"],
            question_id=name,
            policy=self._policy,
            text=text or f"{of} {_SAYS[kind]}".lstrip(),
            evidence=evidence,
        )
        self.alarms.append(alarm)

    # --- telling ---------------------------------------------------------------------------------
    @property
    def alarm_notes(self) -> list[str]:
        """A sentence each."""
        return [
            f"ALARM, {alarm.kind} at question {alarm.question:,}: {alarm.text}."
            for alarm in self.alarms
        ]

    def gauges(self) -> Mapping[str, float]:
        """For metrics, at any time: 1 by kind of alarm that was raised, else 0."""
        raised = {alarm.kind for alarm in self.alarms}
        return {kind: float(kind in raised) for kind in KINDS}

    def _standing(self) -> list[dict[str, Any]]:
        """Where each test stands."""
        tests = [standing(monitor, "drift", name) for name, monitor in self._drift.items()]
        if self._calibration is not None:
            tests.append(standing(self._calibration, "calibration"))
        tests.append(standing(self._stopping.draws, "exploration"))
        if self._coverage is not None:
            tests += [standing(held, kind) for kind, held in self._coverage.monitors.items()]
        return tests

    @property
    def rounds_saved(self) -> float | None:
        """Of the rounds of full budgets the share that was not run, explored questions among them."""
        full = self.counts["full_rounds"]
        return 1.0 - self.counts["budgeted"] / full if full else None

    def _reliability(self) -> list[dict[str, Any]]:
        """Bins with answers, from unsure to sure; each interval holds at all times by itself."""
        return [
            {
                "low": place / BINS,
                "high": (place + 1) / BINS,
                "confidence": self._stated[place] / right.count,
                "right": right.at(self.settings.level),
            }
            for place, right in enumerate(self._right)
            if right.count
        ]

    def to_json(self) -> dict[str, Any]:
        """Where everything stands, as strict JSON."""
        told = {
            "policy": self._policy,
            "level": self.settings.level,
            "metric": self._promised.metric.key(self._promised.score),
            "promised_loss": self._promised.most,
            **self.counts,
            "waiting_for_labels": len(self._waiting),
            "alarm": bool(self.alarms),
            "tests": self._standing(),
            "stopped_early": self._stopping.means["early"].at(self.settings.level),
            "loss": self._stopping.loss,
            "saved": self._stopping.saved,
            "rounds_saved": self.rounds_saved,
            "reliability": self._reliability(),
            "coverage": self._coverage,
            "alarms": self.alarms,
        }
        return {name: as_json(value) for name, value in told.items()}

    def tables(self) -> tuple[Table, ...]:
        """The tests, what stopping loses and saves, and reliability where there are labels."""
        tables = [self._tests_table(), self._stopping_table()]
        if reliability := self._reliability():
            columns = (
                Column(name="confidence"),
                Column(name="labelled", kind="count"),
                Column(name="stated", kind="percent", head="stated, %"),
                Column(name="right", kind="percent", interval=True, head="right, %"),
            )
            rows: list[list[Value]] = [
                [
                    f"{part['low']:.1f}-{part['high']:.1f}",
                    part["right"].count,
                    part["confidence"],
                    part["right"],
                ]
                for part in reliability
            ]
            title = "How often labelled answers are right, by the policy's confidence."
            tables.append(Table(name="reliability", title=title, columns=columns, rows=rows))
        if self._coverage is not None:
            tables.extend(self._coverage.tables())
        return tuple(tables)

    def _tests_table(self) -> Table:
        columns = (
            Column(name="watched"),
            Column(name="of", head=""),
            Column(name="taken", kind="count"),
            Column(name="capital", kind="significant", digits=4),
            Column(name="p_value", kind="significant", digits=3, head="p-value"),
            Column(name="alarm", kind="count"),
        )
        rows: list[list[Value]] = []
        for test in self._standing():
            kind, of, taken, capital, p_value, at = test.values()
            if taken or kind not in ("calibration", "exploration"):
                told = Cell(None, "no") if at is None else Cell(at, f"at {at:,}", "bad")
                rows.append([kind, of, taken, capital, p_value, told])
        notes = []
        if self._lacking:
            notes.append(
                f"Drift is not tested yet: the first {self.settings.first:,} questions stand for the past, "
                f"{self._lacking:,} to come."
            )
        if drifts := len(self._drift):
            level = self.settings.level
            notes.append(
                f"Each kind raises a false alarm with probability at most {level:g}, ever; the "
                f"{drifts} numbers whose drift is watched have {level / drifts:.2g} each."
            )
        notes += self.alarm_notes
        counts = self.counts
        title = (
            f"{counted(counts['questions'], 'question')} of policy {self._policy}, {counts['rounds']:,} "
            "rounds: "
            f"{counts['early']:,} stopped early, of which {counts['explored']:,} ran on; "
            f"{counts['labelled']:,} labelled, {len(self._waiting):,} waiting for a label."
        )
        if counts["others"]:
            title += f"\n{counted(counts['others'], 'question')} of another policy passed over."
        return Table(name="tests", title=title, columns=columns, rows=rows, notes=notes, names=2)

    def _stopping_table(self) -> Table:
        columns = (
            Column(name="per_question", head="per question"),
            Column(name="explored", kind="count", head="ran on"),
            Column(name="mean", kind="percent", interval=True, head="mean, %"),
            Column(name="promised", kind="percent", head="promised"),
        )
        loss, counts = self._stopping.loss, self.counts
        rows: list[list[Value]] = []
        if loss.explored:
            rows.append([loss.name, loss.explored, loss, self._promised.most])
        rows += [
            [f"{find_cost(part.name).label} saved", part.explored, part, None]
            for part in self._stopping.saved
        ]
        notes = [
            f"Intervals hold at all times together with probability {1 - self.settings.level:g} each, for "
            "questions whose means do not change."
        ]
        if not counts["explored"]:
            notes = [
                "No question ran on past its stop: what stopping loses is unknown (explore=0.05)."
            ]
        elif not loss.explored:
            notes.append("The loss is unknown: no question that ran on was scored at both ends.")
        if counts["unanswered"]:
            ran_on = f"{counted(counts['unanswered'], 'question')} that ran on have no"
            notes.append(
                f"{ran_on} score of yours at the stop: observe(..., score=...), or --metric em."
                if self._promised.metric.against == "scores"
                else f"{ran_on} answer at the stop; suffice probe asks for it."
            )
        if counts["cut"]:
            notes.append(
                f"{counted(counts['cut'], 'question')} ended by a budget, an error or the user; what "
                "they returned counts as what running on brings."
            )
        if self.rounds_saved is not None:
            notes.append(
                f"By plain count {percent(self.rounds_saved)}% of the rounds of full budgets were not run, "
                "those of explored questions included."
            )
        title = "What stopping early loses and saves."
        return Table(name="stopping", title=title, columns=columns, rows=rows, notes=notes)

    # --- state -----------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        drift = {
            "reference": self._reference,
            "waiting": self._past,
            "monitors": list(self._drift.values()),
        }
        calibration = None
        if self._calibration is not None:
            held = {"monitor": self._calibration, "right": self._right}
            calibration = {**held, "stated": self._stated}
        own = {
            "settings": self._kept_for(),
            "counts": self.counts,
            "drift": drift,
            "calibration": calibration,
            "stopping": self._stopping.state(),
            "coverage": None if self._coverage is None else self._coverage.state(),
            "waiting": self._waiting,
            "alarms": self.alarms,
        }
        return {"suffice_production": VERSION, "policy": self._policy, **as_json(own)}

    def _kept_for(self) -> dict[str, Any]:
        settings, promised = self.settings, self._promised
        return {
            "level": settings.level,
            "seed": settings.seed,
            "first": settings.first,
            "metric": promised.metric.key(promised.score),
            "loss": promised.loss,
            "max_loss": promised.most,
        }

    def resume(self, state: object) -> None:
        """Go on from what :meth:`state` gave; nothing may have been taken before."""
        kept_for = {"policy": self._policy, **as_json(self._kept_for())}
        held = opened(state, "suffice_production", kept_for)
        with undamaged():
            self.counts = {name: whole(held["counts"][name], name) for name in _COUNTS}
            drift = held["drift"]
            if drift.get("reference", self._reference) != self._reference:
                raise DataError(
                    "the state was kept for another --reference; begin another state file",
                    column="reference",
                )
            monitors = [ExchangeabilityMonitor.from_json(one) for one in drift["monitors"]]
            names = self.reading.names
            self._drift = dict(zip(names, monitors, strict=True)) if monitors else {}
            self._past = {
                name: [math.nan if value is None else number(value, "waiting") for value in values]
                for name, values in drift["waiting"].items()
            }
            self._stopping.resume(held["stopping"])
            if self._calibration is not None:
                kept = held["calibration"]
                self._calibration = ProbabilityMonitor.from_json(kept["monitor"])
                self._right = [MeanSequence.from_json(right, 0.0, 1.0) for right in kept["right"]]
                self._stated = list(numbers(kept["stated"], "stated"))
            if self._coverage is not None:
                self._coverage.resume(held["coverage"])
            self._waiting = {name: dict(waiting) for name, waiting in held["waiting"].items()}
            self.alarms = [Alarm.from_json(alarm) for alarm in held["alarms"]]
