"""Watching a policy in production: drift, calibration and what stopping costs, over questions as they end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from suffice.contracts import ConfidentPolicy, CoveragePolicy, StopPolicy
from suffice.errors import DataError, UsageError, counted
from suffice.monitor.alarms import ExchangeabilityMonitor, ProbabilityMonitor
from suffice.monitor.coverage import Coverage
from suffice.monitor.questions import CLOCK_S, Asked, Promised, Reading, Stopping
from suffice.options import Option, as_share, read_since
from suffice.policies.policy_file import policy_hash
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import percent
from suffice.results.markup import shorten
from suffice.results.table import Cell, Column, Described, Table, table_of
from suffice.results.tabular import Tabular
from suffice.scoring import exact_match
from suffice.signals.plugins import answered_by
from suffice.stats.betting import Monitor
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.trace_set import TraceSet

_MOST_WAITING = 100_000  # questions whose labels may still come
_EARLIEST = datetime.min.replace(tzinfo=UTC)  # when a question ended of which no time is recorded
_SAYS = {
    "loss": "stopping loses more than promised",
    "calibration": "answers are not right as often as the policy's confidence says",
    "coverage": "answer sets miss more often than promised",
    "exchangeability": "answers differ from those of the calibration; coverage is not proven to fall",
    "drift": "has drifted; questions, retriever or model changed, answers are not proven worse",
    "exploration": "the share of explored questions is not the configured one, so losses may be wrong",
}
KINDS = tuple(_SAYS)
"""Of alarms, the gravest first."""
_LEADS = {
    "kept": "Kept its promise",
    "not shown": "Not shown to keep its promise",
    "no promise": "No alarm, and no promise to test",
}


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
    since: Annotated[
        datetime | None,
        Option(
            metavar="TIME",
            parse=read_since,
            help="also report on the time since: 12h, 7d, 2w, or an ISO date or time (UTC)",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    kind: str = field(metadata={"json": "alarm"})
    of: str = ""
    question: int
    question_id: str
    policy: str
    text: str
    evidence: Mapping[str, float]
    time: datetime | None = None

    @property
    def id(self) -> str:
        """The same id if another reading of the record raises the alarm again."""
        named = [self.policy, self.kind, self.of, self.evidence.get("promised")]
        return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:12]

    def to_json(self) -> dict[str, Any]:
        """Return strict JSON."""
        return {**fields_as_json(self), "id": self.id}


class Production(Tabular):
    """A monitor of one policy over all questions that it ran on, given once each in the order they began.

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
        self._policy = policy_hash(policy)
        with answered_by(policy, f"the {policy.kind} policy"):
            self._promised = Promised.by(policy, settings.metric, settings.max_loss)
        self._all = Stopping(self._promised, settings.level)
        self._recent, self._since = None, "so far"
        if settings.since is not None:
            self._recent = Stopping(self._promised, settings.level)
            self._since = f"since {settings.since:%Y-%m-%d %H:%M} UTC"
        self.counts: dict[str, int] = self._all.counts
        self.counts |= {"forgotten": 0, "others": 0}
        self._last: datetime | None = None
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
        """Take new questions and labels; return the questions of this policy in the order they began.

        Each part of a record comes with its questions' ids in stored order, for questions with equal or
        unknown times.
        """
        stored: list[tuple[Asked, Asked]] = []
        for traces, order in parts:
            asked = {one.id: one for one in self.reading.questions(traces)}
            part = [asked[name] for name in order if name in asked]
            stored += zip(part, self._dated(part), strict=True)
            self.counts["others"] += len(order) - len(asked)
        if stored and self._recent is not None and self._last is None:
            raise DataError(
                "no question has a time, which --since needs; leave it out", column="time"
            )
        # of loops side by side the explored ones end last, so the order of ends is no order of chance
        stored.sort(key=lambda pair: pair[0].begun or _EARLIEST)
        found = [dated for _, dated in stored]
        for question in found:
            self.take(question)
        # of one look, labels come in the order of their questions: a file sorted by outcome is no alarm
        place = {question.id: number for number, question in enumerate(found)}
        for label in sorted(labels, key=lambda one: place.get(one.question_id, len(place))):
            self.label(label)
        return found

    def _dated(self, part: Sequence[Asked]) -> Iterator[Asked]:
        """Give a misdated question the time of the question stored before it, else of the next."""
        latest = datetime.now(UTC) + timedelta(seconds=CLOCK_S)
        times = [
            None if one.misdated or (one.time or latest) >= latest else one.time for one in part
        ]
        self._last = next(filter(None, times), self._last)
        for one, time in zip(part, times, strict=True):
            self._last = time or self._last
            yield replace(one, time=self._last, misdated=time is None)

    def _of(self, asked: Asked) -> list[Stopping]:
        recent = self._recent
        return [self._all] if recent is None or not self._is_recent(asked) else [self._all, recent]

    def take(self, asked: Asked) -> None:
        for name, monitor in self._drift.items():
            monitor.update(asked.values[name])
        for name, held in self._past.items():
            held.append(asked.values[name])
        if not (self._drift or self._lacking):
            self._begin_drift()
        for stopping in self._of(asked):
            stopping.take(asked)
        if self._coverage is not None and asked.answer_set is not None:
            self._coverage.take(asked.answer_set)
        self._look_at_bets(asked)
        agreement = self._promised.metric.agreement
        if asked.ran_on and agreement:
            self._settle_loss(asked, ())
        sure = self._calibration is not None and asked.confidence is not None
        if (asked.ran_on and not agreement) or sure or self._coverage is not None:
            self._waiting.setdefault(asked.id, asked)
            if asked.gold or asked.at_stop.score is not None:
                self.label(Label(question_id=asked.id, gold_answers=asked.gold))
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                self.counts["forgotten"] += 1

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
        for stopping in self._of(asked):
            stopping.counts["labelled"] += 1
        self._calibrate(asked, gold)
        if asked.ran_on and not self._promised.metric.agreement:
            self._settle_loss(asked, gold)
        if self._coverage is not None and asked.answer_set is not None and gold:
            self._coverage.label(asked.answer_set, gold)
        self._look_at_bets(asked)

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
        lost = self._promised.lost_by(asked, gold)
        broken = [stopping.lose(lost) for stopping in self._of(asked)]
        if broken[0]:
            loss, most = self._all.loss, self._promised.most or 0.0
            evidence = {"estimate": loss.estimate, "low": loss.low, "high": loss.high}
            evidence |= {"promised": most, "explored": float(loss.explored)}
            low, mean, high = (percent(part) for part in (loss.low, loss.estimate, loss.high))
            said = f"{mean}% [{low}, {high}] per question, promised at most {percent(most)}%"
            self._raise("loss", asked, evidence, text=f"{_SAYS['loss']}: {said}")

    @property
    def _monitors(self) -> dict[tuple[str, str], Monitor]:
        found: dict[tuple[str, str], Monitor] = {
            ("drift", name): monitor for name, monitor in self._drift.items()
        }
        if self._calibration is not None:
            found["calibration", ""] = self._calibration
        found["exploration", ""] = self._all.draws
        if self._coverage is not None:
            found |= {(kind, ""): one for kind, one in self._coverage.monitors.items()}
        return found

    def _look_at_bets(self, asked: Asked) -> None:
        for (kind, of), monitor in self._monitors.items():
            if monitor.alarmed:
                evidence = {"capital": monitor.capital, "p_value": monitor.p_value}
                evidence["taken"] = float(monitor.seen)
                self._raise(kind, asked, evidence, of=of)

    def _raise(
        self,
        kind: str,
        asked: Asked,
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
            question_id=asked.id,
            time=asked.time,
            policy=self._policy,
            text=text or f"{of} {_SAYS[kind]}".lstrip(),
            evidence=evidence,
        )
        self.alarms.append(alarm)

    # --- telling ---------------------------------------------------------------------------------
    @property
    def alarm_notes(self) -> list[str]:
        return [
            f"ALARM, {alarm.kind} at question {alarm.question:,} ({shorten(alarm.question_id, 60)})"
            f"{self._when(alarm)}: {alarm.text}."
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

    def to_json(self) -> dict[str, Any]:
        """Return the whole state as strict JSON; ``alarmed_at`` counts a test's observations, from 1."""
        decision, headline = self.decided
        told = {
            "policy": self._policy,
            "decision": decision,
            "headline": headline,
            "level": self.settings.level,
            "metric": self._promised.metric.key(self._promised.score),
            "promised_loss": self._promised.most,
            **self._all.to_json(),
            "waiting_for_labels": len(self._waiting),
            "alarm": bool(self.alarms),
            "tests": self._tests(),
            "coverage": self._coverage,
            "alarms": self.alarms,
        }
        if self._recent is not None:
            told["since"] = {
                "since": self.settings.since,
                **self._recent.to_json(),
                "alarms": [alarm for alarm in self.alarms if self._is_recent(alarm)],
            }
        return {name: as_json(value) for name, value in told.items()}

    @property
    def decided(self) -> tuple[str, str]:
        """The decision on the time asked for, else on all questions, in a word and in a sentence."""
        told, when = self._recent or self._all, self._since
        if not told.counts["questions"]:
            return "nothing", f"No question of policy {self._policy} ended {when}."
        if self.alarms:
            first = min(self.alarms, key=lambda a: (not self._is_recent(a), KINDS.index(a.kind)))
            return "alarm", f"Alarm{self._when(first)}: {first.text}."
        decision, why = told.decided
        if decision == "no promise" and self._coverage is not None:
            decision, why = self._coverage.decided
        elif decision == "not shown" and not told.loss.estimate > (self._promised.most or 0.0):
            whole, said = self._all.decided
            if whole == "kept":
                decision, why, when = whole, f"{said}, over all questions", "so far"
        return decision, f"{_LEADS[decision]} {when}: {why}."

    def tables(self) -> tuple[Table, ...]:
        """Return the decision, the losses and savings of stopping, and the tests."""
        headline, recent = Table(name="", title=self.decided[1]), self._recent
        whole = self._all.table("stopping", "What stopping loses and saves over all questions")
        if recent is None:
            return headline, self._tests_table(), whole
        tests = self._tests_table().picked("watched", "of", "taken", "alarm")
        if not recent.counts["questions"]:
            return headline, whole, tests
        title = f"S{self._since[1:]}: {recent.told()}."
        every = recent.counts["questions"] == self._all.counts["questions"]
        return headline, recent.table("period", title), *(() if every else (whole,)), tests

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
        title = f"{self._all.told(f' of policy {self._policy}')}, {len(self._waiting):,} missing."
        if counts["others"]:
            title += f"\n{counted(counts['others'], 'question')} of other policies are left out."
        return replace(table_of("tests", told, _TESTS, title, notes), names=2)

    def _is_recent(self, one: Asked | Alarm) -> bool:
        since = self.settings.since
        return since is not None and one.time is not None and one.time >= since

    def _when(self, alarm: Alarm) -> str:
        if alarm.time is None:
            return ""
        before = self._recent is not None and not self._is_recent(alarm)
        return f" on {alarm.time:%Y-%m-%d}{', before this time' if before else ''}"
