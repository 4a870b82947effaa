"""Watching a policy in production: drift, calibration and what stopping costs, over questions as they end."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Annotated, Any

from suffice.contracts import ConfidentPolicy, CoveragePolicy, StopPolicy
from suffice.costs.usage import find_cost
from suffice.errors import UsageError, counted
from suffice.monitor.alarms import ExchangeabilityMonitor, ProbabilityMonitor
from suffice.monitor.coverage import Coverage
from suffice.monitor.questions import Asked, Promised, Reading, Stopping
from suffice.options import Option, as_share
from suffice.policies.policy_file import policy_hash
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import percent
from suffice.results.table import Cell, Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import exact_match
from suffice.stats.betting import Monitor
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.trace_set import TraceSet

_COUNTS = (
    *("questions", "rounds", "full_rounds", "budgeted", "early", "explored", "labelled", "cut"),
    *("unanswered", "forgotten", "others"),
)
_MOST_WAITING = 100_000  # questions whose labels may still come
_EARLIEST = datetime.min.replace(tzinfo=UTC)  # when a question ended of which no time is recorded
_SAYS = {
    "drift": "has drifted; questions, retriever or model changed, answers are not proven worse",
    "calibration": "answers are not right as often as the policy's confidence says",
    "coverage": "answer sets miss more often than promised",
    "exchangeability": "answers differ from those of the calibration; coverage is not proven to fall",
    "loss": "stopping loses more than promised",
    "exploration": "the share of explored questions is not the configured one, so losses may be wrong",
}
KINDS = tuple(_SAYS)
"""Of alarms."""


def _alarm_cell(test: Mapping[str, Any]) -> Cell:
    at = test["alarmed_at"]
    return Cell(None, "no") if at is None else Cell(at, f"at {at:,}", "bad")


_TESTS: Sequence[Described] = (
    ("kind", Column(name="watched")),
    ("of", Column(name="of", head="")),
    ("taken", Column(name="taken", kind="count")),
    ("capital", Column(name="capital", kind="significant", digits=4)),
    ("p_value", Column(name="p_value", kind="significant", digits=3, head="p-value")),
    (_alarm_cell, Column(name="alarm", kind="count")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductionSettings:
    """How to watch."""

    first: Annotated[
        int, Option(at_least=1, help="first questions to compare later ones with (no --reference)")
    ] = 200
    metric: Annotated[
        str | None, Option(help="metric that scores answers (default: as certified, else f1)")
    ] = None
    max_loss: Annotated[
        float | None,
        Option(
            metavar="LOSS",
            parse=as_share,
            help="mean loss that raises an alarm (default: as certified)",
        ),
    ] = None
    max_rounds: Annotated[
        int | None,
        Option(at_least=1, help="full budget (default: the policy file's or the record's)"),
    ] = None
    level: Annotated[
        float,
        Option(
            metavar="P", parse=as_share, help="lifetime false-alarm chance for each kind of alarm"
        ),
    ] = 0.05
    seed: Annotated[int, Option(at_least=0, help="seed of all random draws")] = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A deviation that chance does not explain."""

    kind: str = field(metadata={"json": "alarm"})
    of: str = ""
    question: int
    question_id: str
    policy: str
    text: str
    evidence: Mapping[str, float]

    @property
    def id(self) -> str:
        """The same id if another reading of the record raises the alarm again."""
        named = [self.policy, self.kind, self.of, self.evidence.get("promised")]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON."""
        return {**fields_as_json(self), "id": self.id}


class Production(Tabular):
    """A monitor of one policy over all questions that it ran on, given once each in the order of their ends.

    Drift is a conformal martingale for each number of a question, ranked among past and later ones, ties
    broken at random. Each of the k numbers has the level divided by k, valid for any dependence. An average
    of their capitals would not be valid, since each is fair only given its own ranks.
    """

    def __init__(
        self,
        policy: StopPolicy,
        settings: ProductionSettings | None = None,
        *,
        past: TraceSet | None = None,
    ) -> None:
        settings = settings or ProductionSettings()
        self.settings: ProductionSettings = settings
        if settings.first < 1:
            raise UsageError(f"--first must be at least 1, found {settings.first}")
        self.reading: Reading = Reading(policy, settings.max_rounds)
        self.counts: dict[str, int] = dict.fromkeys(_COUNTS, 0)
        self._policy = policy_hash(policy)
        self._promised = Promised.by(policy, settings.metric, settings.max_loss)
        self._stopping = Stopping(self._promised, settings.level)
        self._waiting: dict[str, Asked] = {}
        self.alarms: list[Alarm] = []
        """All that were raised, in order."""
        self._past: dict[str, list[float]] = {name: [] for name in self.reading.names}
        self._drift: dict[str, ExchangeabilityMonitor] = {}
        if past is not None:
            asked = [question.values for question in self.reading.questions(past)]
            if not asked:
                raise UsageError(
                    "no question of the record to compare with was run by this policy, or by none"
                )
            self._past = {name: [held[name] for held in asked] for name in self._past}
            self._begin_drift()
        self._calibration: ProbabilityMonitor | None = None
        if isinstance(policy, ConfidentPolicy):
            self._calibration = ProbabilityMonitor(settings.level)
        self._coverage: Coverage | None = None
        if isinstance(policy, CoveragePolicy):
            self._coverage = Coverage(policy, settings.level, settings.seed)

    def _begin_drift(self) -> None:
        level, seed = self.settings.level / len(self._past), self.settings.seed
        self._drift = {
            name: ExchangeabilityMonitor(values, level, seed=seed)
            for name, values in self._past.items()
        }
        self._past = {}

    @property
    def _lacking(self) -> int:
        return 0 if self._drift else self.settings.first - len(next(iter(self._past.values())))

    # --- taking in -------------------------------------------------------------------------------
    def read(
        self, parts: Iterable[tuple[TraceSet, Sequence[str]]], labels: Sequence[Label] = ()
    ) -> list[Asked]:
        """Take new questions and labels; return the questions of this policy in the order of their ends.

        Each part of a record comes with its questions' ids in stored order, for questions with equal or
        unknown times.
        """
        found: list[Asked] = []
        for traces, order in parts:
            asked = {one.id: one for one in self.reading.questions(traces)}
            found += [asked[name] for name in order if name in asked]
            self.counts["others"] += len(order) - len(asked)
        found.sort(key=lambda question: question.time or _EARLIEST)
        for question in found:
            self.take(question)
        # of one look, labels come in the order of their questions: a file sorted by outcome is no alarm
        place = {question.id: number for number, question in enumerate(found)}
        for label in sorted(labels, key=lambda one: place.get(one.question_id, len(place))):
            self.label(label)
        return found

    def take(self, asked: Asked) -> None:
        """Take a question that ended."""
        counts = self.counts
        counts["questions"] += 1
        counts["rounds"] += asked.rounds
        counts["early"] += asked.early
        counts["explored"] += asked.explored
        counts["cut"] += asked.cut
        if asked.budget is not None:
            counts["budgeted"] += asked.rounds
            counts["full_rounds"] += asked.budget
        for name, monitor in self._drift.items():
            monitor.update(asked.values[name])
        for name, held in self._past.items():
            held.append(asked.values[name])
        if not (self._drift or self._lacking):
            self._begin_drift()
        self._stopping.take(asked)
        if self._coverage is not None and asked.answer_set is not None:
            self._coverage.take(asked.answer_set)
        self._look_at_bets(asked.id)
        agreement = self._promised.metric.agreement
        if asked.explored and agreement:
            self._settle_loss(asked, ())
        sure = self._calibration is not None and asked.confidence is not None
        if (asked.explored and not agreement) or sure or self._coverage is not None:
            self._waiting.setdefault(asked.id, asked)
            if asked.gold or asked.at_stop.score is not None:
                self.label(Label(question_id=asked.id, gold_answers=asked.gold))
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                counts["forgotten"] += 1

    def label(self, label: Label) -> None:
        """Take a label; it counts only for a taken question without a label."""
        gold, asked = label.gold_answers, self._waiting.get(label.question_id)
        if asked is None:
            return
        if label.score is not None:
            scored_round = asked.rounds if label.round is None else label.round
            if scored_round == (asked.stop or asked.rounds):
                asked = replace(asked, at_stop=replace(asked.at_stop, score=label.score))
            if scored_round == asked.rounds:
                asked = replace(asked, at_end=replace(asked.at_end, score=label.score))
            self._waiting[asked.id] = asked
        scored = self._promised.metric.against == "scores"
        if not (gold or (scored and asked.at_stop.score is not None)):
            return
        del self._waiting[asked.id]
        self.counts["labelled"] += 1
        self._calibrate(asked, gold)
        if asked.explored and not self._promised.metric.agreement:
            self._settle_loss(asked, gold)
        if self._coverage is not None and asked.answer_set is not None and gold:
            self._coverage.label(asked.answer_set, gold)
        self._look_at_bets(asked.id)

    def _calibrate(self, asked: Asked, gold: Sequence[str]) -> None:
        """Score an answer as right if it equals a gold answer or has score 1; else it is unknown."""
        sure, stop, monitor = asked.confidence, asked.at_stop, self._calibration
        if sure is None or monitor is None:
            return
        if gold and stop.answer is not None:
            right = exact_match(stop.answer, gold)
        elif not gold and stop.score is not None:
            right = float(stop.score == 1.0)
        else:
            return
        monitor.update(sure, right)

    def _settle_loss(self, asked: Asked, gold: Sequence[str]) -> None:
        lost = self._promised.lost(asked.at_stop, asked.at_end, gold)
        if math.isnan(lost):
            self.counts["unanswered"] += 1
        elif self._stopping.lose(lost):
            loss, most = self._stopping.loss, self._promised.most or 0.0
            evidence = {"estimate": loss.estimate, "low": loss.low, "high": loss.high}
            evidence |= {"promised": most, "explored": float(loss.explored)}
            low, mean, high = (percent(part) for part in (loss.low, loss.estimate, loss.high))
            said = f"{mean}% [{low}, {high}] per question, promised at most {percent(most)}%"
            self._raise("loss", asked.id, evidence, text=f"{_SAYS['loss']}: {said}")

    @property
    def _monitors(self) -> dict[tuple[str, str], Monitor]:
        found: dict[tuple[str, str], Monitor] = {
            ("drift", name): monitor for name, monitor in self._drift.items()
        }
        if self._calibration is not None:
            found["calibration", ""] = self._calibration
        found["exploration", ""] = self._stopping.draws
        if self._coverage is not None:
            found |= {(kind, ""): one for kind, one in self._coverage.monitors.items()}
        return found

    def _look_at_bets(self, question_id: str) -> None:
        for (kind, of), monitor in self._monitors.items():
            if monitor.alarmed:
                evidence = {"capital": monitor.capital, "p_value": monitor.p_value}
                evidence["taken"] = float(monitor.seen)
                self._raise(kind, question_id, evidence, of=of)

    def _raise(
        self,
        kind: str,
        question_id: str,
        evidence: Mapping[str, float],
        *,
        of: str = "",
        text: str = "",
    ) -> None:
        if any((alarm.kind, alarm.of) == (kind, of) for alarm in self.alarms):
            return
        alarm = Alarm(
            kind=kind,
            of=of,
            question=self.counts["questions"],
            question_id=question_id,
            policy=self._policy,
            text=text or f"{of} {_SAYS[kind]}".lstrip(),
            evidence=evidence,
        )
        self.alarms.append(alarm)

    # --- telling ---------------------------------------------------------------------------------
    @property
    def alarm_notes(self) -> list[str]:
        """A sentence per alarm."""
        return [
            f"ALARM, {alarm.kind} at question {alarm.question:,}: {alarm.text}."
            for alarm in self.alarms
        ]

    def gauges(self) -> Mapping[str, float]:
        """Return 1 for each kind of alarm that was raised, else 0."""
        raised = {alarm.kind for alarm in self.alarms}
        return {kind: float(kind in raised) for kind in KINDS}

    def _tests(self) -> list[dict[str, Any]]:
        return [
            {
                "kind": kind,
                "of": of,
                "taken": monitor.seen,
                "capital": monitor.capital,
                "p_value": monitor.p_value,
                "alarmed_at": monitor.alarmed_at,
            }
            for (kind, of), monitor in self._monitors.items()
        ]

    @property
    def rounds_saved(self) -> float | None:
        """Share of the full budgets' rounds that were not run, explored questions included."""
        full = self.counts["full_rounds"]
        return 1.0 - self.counts["budgeted"] / full if full else None

    def to_json(self) -> dict[str, Any]:
        """Return the whole state as strict JSON; ``alarmed_at`` counts a test's observations, from 1."""
        told = {
            "policy": self._policy,
            "level": self.settings.level,
            "metric": self._promised.metric.key(self._promised.score),
            "promised_loss": self._promised.most,
            **self.counts,
            "waiting_for_labels": len(self._waiting),
            "alarm": bool(self.alarms),
            "tests": self._tests(),
            "stopped_early": self._stopping.means["early"].at(self.settings.level),
            "loss": self._stopping.loss,
            "saved": self._stopping.saved,
            "rounds_saved": self.rounds_saved,
            "coverage": self._coverage,
            "alarms": self.alarms,
        }
        return {name: as_json(value) for name, value in told.items()}

    def tables(self) -> tuple[Table, ...]:
        """Return the tests, and the losses and savings of stopping."""
        return self._tests_table(), self._stopping_table()

    def _tests_table(self) -> Table:
        told = [
            test
            for test in self._tests()
            if test["taken"] or test["kind"] not in ("calibration", "exploration")
        ]
        notes = []
        if self._lacking:
            notes.append(
                f"Drift is not tested yet: {self._lacking:,} of the first {self.settings.first:,} "
                "questions are missing."
            )
        if drifts := len(self._drift):
            level = self.settings.level
            notes.append(
                f"{100 * level:g}% lifetime false-alarm chance for each kind of alarm. Each of the "
                f"{drifts} numbers watched for drift has {level / drifts:.2g}."
            )
        if self._coverage is not None:
            notes += self._coverage.notes
        notes += self.alarm_notes
        counts = self.counts
        title = (
            f"{counted(counts['questions'], 'question')} of policy {self._policy}, {counts['rounds']:,} "
            f"rounds. {counts['early']:,} stopped early, {counts['explored']:,} of them explored. "
            f"Labels that count: {counts['labelled']:,} known, {len(self._waiting):,} missing."
        )
        if counts["others"]:
            title += f"\n{counted(counts['others'], 'question')} of other policies are left out."
        return replace(table_of("tests", told, _TESTS, title, notes), names=2)

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
            f"Intervals hold at all times together, each with {100 * (1 - self.settings.level):g}% "
            "confidence, if the means do not change."
        ]
        if not counts["explored"]:
            notes = ["The loss of stopping is unknown: no question was explored (explore=0.05)."]
        elif not loss.explored:
            notes.append("The loss of stopping is unknown: no explored question has both scores.")
        if counts["unanswered"]:
            ran_on = f"{counted(counts['unanswered'], 'explored question')} lack"
            notes.append(
                f"{ran_on} your score at the stop: observe(..., score=...), or --metric em."
                if self._promised.metric.against == "scores"
                else f"{ran_on} an answer at the stop; suffice probe asks for it."
            )
        if counts["cut"]:
            notes.append(
                f"{counted(counts['cut'], 'question')} ended by a budget, an error or the user; their "
                "last answer counts as that of the full budget."
            )
        if self.rounds_saved is not None:
            notes.append(
                f"Stopping saved {percent(self.rounds_saved)}% of the rounds of full budgets, explored "
                "questions included."
            )
        title = "What stopping early loses and saves"
        return Table(name="stopping", title=title, columns=columns, rows=rows, notes=notes)
