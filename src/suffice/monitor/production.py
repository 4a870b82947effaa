"""Watching a policy in production, over recorded questions as they end and labels as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from suffice.costs.usage import find_cost
from suffice.errors import DataError, UsageError
from suffice.monitor.arrivals import read_arrived
from suffice.monitor.aspects import (
    Alarm,
    Calibration,
    Drift,
    PerQuestion,
    Promised,
    ReliabilityBin,
    Stopping,
    capital_of,
    interval_in_words,
)
from suffice.monitor.coverage_watch import Promise, Watch, Watched, WatchSettings, promise_of
from suffice.monitor.questions import Asked, Reading, Returned
from suffice.numbers.fields import map_fields
from suffice.numbers.intervals.anytime import AnytimeMean
from suffice.numbers.tests.e_process import Monitor, whole
from suffice.policies.file import policy_hash
from suffice.protocols import ConfidentPolicy, StopPolicy
from suffice.results.as_json import as_json
from suffice.results.formats import counted, percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import METRICS
from suffice.trace.rounds.labels import Label
from suffice.trace.rounds.table import TraceSet

VERSION = 1
KINDS = ("drift", "calibration", "coverage", "exchangeability", "loss", "exploration")
"""Of alarms."""
_COUNTS = (
    *("questions", "rounds", "full_rounds", "budgeted", "early", "explored", "labelled", "cut"),
    *("unanswered", "forgotten", "others"),
)
_MOST_WAITING = 100_000  # questions whose labels may still come
_SAYS = {
    "drift": "no longer looks as before; questions, retriever or model changed, not that answers are worse",
    "calibration": "labelled answers are not right as often as the policy's confidence says",
    "coverage": "answer sets miss more often than the promise and the luck of calibration explain",
    "exchangeability": "answers no longer look like those calibrated on; not that coverage fell",
    "loss": "stopping loses more than was promised",
    "exploration": "the share of questions that ran on past their stop is not the one drawn with: losses "
    "and savings are not to be relied on",
}


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
class Tested:
    """Where a test by betting stands; ``alarmed_at`` counts what it took, from 1."""

    kind: str
    of: str
    taken: int
    capital: float
    p_value: float
    alarmed_at: int | None


class Production:
    """One policy, watched over all questions that it ran on.

    Notes
    -----
    Give every question once, in the order in which they end. :class:`suffice.monitor.folder.Folder` does.
    """

    def __init__(
        self,
        policy: StopPolicy,
        settings: ProductionSettings | None = None,
        *,
        past: TraceSet | None = None,
    ) -> None:
        self.settings = settings = settings or ProductionSettings()
        self.reading = Reading(policy, settings.max_rounds)
        self._policy = policy_hash(policy)
        self._promised = Promised.by(policy, settings.metric, settings.max_loss)
        names, level = self.reading.names, settings.level
        values = None
        if past is not None:
            asked = [question.values for question in self.reading.questions(past)]
            if not asked:
                raise UsageError(
                    "no question of the record that stands for the past was run by this policy, or by none"
                )
            values = {name: [held[name] for held in asked] for name in names}
        self._drift = Drift(names, level, past=values, first=settings.first, seed=settings.seed)
        self._calibration = Calibration(level) if isinstance(policy, ConfidentPolicy) else None
        self._stopping = Stopping(self._promised, level)
        self._promise: Promise | None = None
        self._coverage: Watch | None = None
        if policy.facts.coverage is not None:
            self._promise = promise_of(policy)
            self._coverage = Watch(self._promise, WatchSettings(level=level, seed=settings.seed))
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._alarms: list[Alarm] = []

    # --- taking in -------------------------------------------------------------------------------
    def take(self, asked: Asked) -> list[Alarm]:
        """A question that ended; the alarms raised by it."""
        counts = self._counts
        counts["questions"] += 1
        counts["rounds"] += asked.rounds
        counts["early"] += asked.early
        counts["explored"] += asked.explored
        counts["cut"] += asked.cut
        if asked.budget is not None:
            counts["budgeted"] += asked.rounds
            counts["full_rounds"] += asked.budget
        raised = [
            self._alarm("drift", asked.id, self._drift.monitors[name], of=name)
            for name in self._drift.take(asked.values)
        ]
        if self._stopping.take(asked):
            raised.append(self._alarm("exploration", asked.id, self._stopping.draws))
        if self._coverage is not None:
            raised += self._of_coverage(asked.id, self._coverage.take(read_arrived(asked.answers)))
        if asked.explored and self._promised.metric.agreement:
            raised += self._settle_loss(asked.id, asked.at_stop, asked.at_end, ())
        if self._wants_label(asked):
            self._waiting.setdefault(asked.id, _waiting(asked))
            gold = Label(question_id=asked.id, gold_answers=asked.gold)
            raised += self.label(gold) if asked.gold or asked.at_stop.score is not None else []
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                counts["forgotten"] += 1
        return raised

    def _wants_label(self, asked: Asked) -> bool:
        loses = asked.explored and not self._promised.metric.agreement
        sure = self._calibration is not None and asked.confidence is not None
        return loses or sure or self._coverage is not None

    def label(self, label: Label) -> list[Alarm]:
        """What became known of a question that was taken; the alarms raised by it.

        A label of a question that was not taken, or that has one, counts for nothing.
        """
        held = self._waiting.get(label.question_id)
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
            held["stop"], held["end"] = _returned(stop), _returned(end)
        scored = self._promised.metric.against == "scores"
        if not (label.gold_answers or (scored and stop.score is not None)):
            return []
        del self._waiting[label.question_id]
        self._counts["labelled"] += 1
        raised: list[Alarm] = []
        gold, sure = label.gold_answers, held["confidence"]
        if self._calibration is not None and sure is not None:
            right = self._right(stop, gold)
            if right is not None and self._calibration.take(sure, right):
                raised.append(
                    self._alarm("calibration", label.question_id, self._calibration.monitor)
                )
        if held["explored"] and not self._promised.metric.agreement:
            raised += self._settle_loss(label.question_id, stop, end, gold)
        if self._coverage is not None and gold:
            document = {**held["answers"], "gold_answers": list(gold)}
            arrived = read_arrived(document, self._promise.grading)  # type: ignore[union-attr]
            raised += self._of_coverage(label.question_id, self._coverage.label(arrived))
        return raised

    def _right(self, stop: Returned, gold: tuple[str, ...]) -> float | None:
        """Whether an answer is right: equal to a gold answer, or of score 1; ``None``: unknown."""
        if gold:
            return None if stop.answer is None else _EXACT.value(stop, gold)
        return None if stop.score is None else float(stop.score == 1.0)

    def _settle_loss(
        self, name: str, stop: Returned, end: Returned, gold: tuple[str, ...]
    ) -> list[Alarm]:
        promised = self._promised
        if promised.metric.agreement:
            gold = () if end.answer is None else (end.answer,)
        values = promised.value(stop, gold), promised.value(end, gold)
        loss = promised.lost(*values)
        if loss != loss:  # noqa: PLR0124 - undefined
            self._counts["unanswered"] += 1
            return []
        return [self._alarm("loss", name, None)] if self._stopping.lose(loss) else []

    def _of_coverage(self, name: str, kinds: Iterable[str]) -> list[Alarm]:
        if self._coverage is None:
            return []
        monitors = {held.kind: held for held in self._coverage.result().monitors} if kinds else {}
        return [self._alarm(kind, name, monitors[kind]) for kind in kinds]

    def _alarm(self, kind: str, name: str, stands: Any, *, of: str = "") -> Alarm:
        text = _SAYS[kind]
        if stands is None:
            loss = self._stopping.loss
            most = self._promised.most
            text = (
                f"{text}: {interval_in_words(loss)} per question, promised at most {percent(most)}%"
            )
            evidence = {"estimate": loss.estimate, "low": loss.low, "high": loss.high}
            evidence |= {"promised": most or 0.0, "explored": float(loss.explored)}
        elif isinstance(stands, Monitor):
            evidence = capital_of(stands)  # type: ignore[assignment]
        else:
            evidence = {"capital": stands.capital, "p_value": stands.p_value}
        alarm = Alarm(
            kind=kind,
            of=of,
            question=self._counts["questions"],
            question_id=name,
            policy=self._policy,
            text=f"{of} {text}" if of else text,
            evidence=evidence,
        )
        self._alarms.append(alarm)
        return alarm

    def pass_over(self, questions: int) -> None:
        """So many questions that another policy ran on."""
        self._counts["others"] += questions

    # --- telling ---------------------------------------------------------------------------------
    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """All that were raised, in order."""
        return tuple(self._alarms)

    def gauges(self) -> Mapping[str, float]:
        """For metrics, at any time: 1 by kind of alarm that was raised, else 0."""
        raised = Counter(alarm.kind for alarm in self._alarms)
        return {kind: float(raised[kind] > 0) for kind in KINDS}

    def result(self) -> Produced:
        """What was seen so far."""
        tested = [("drift", name, held) for name, held in self._drift.monitors.items()]
        if self._calibration is not None:
            tested.append(("calibration", "", self._calibration.monitor))  # type: ignore[arg-type]
        tested.append(("exploration", "", self._stopping.draws))  # type: ignore[arg-type]
        covered = None if self._coverage is None else self._coverage.result()
        return Produced(
            policy=self._policy,
            settings=self.settings,
            promised=self._promised,
            counts=dict(self._counts),
            waiting=len(self._waiting),
            lacking=self._drift.lacking,
            tests=(
                *(
                    Tested(
                        kind=kind,
                        of=of,
                        taken=held.seen,
                        capital=held.capital,
                        p_value=held.p_value,
                        alarmed_at=held.alarmed_at,
                    )
                    for kind, of, held in tested
                ),
                *(
                    Tested(
                        kind=held.kind,
                        of="",
                        taken=held.taken,
                        capital=held.capital,
                        p_value=held.p_value,
                        alarmed_at=held.alarmed_at,
                    )
                    for held in (covered.monitors if covered is not None else ())
                ),
            ),
            early=self._stopping.early,
            loss=self._stopping.loss,
            saved=tuple(self._stopping.saved),
            reliability=() if self._calibration is None else tuple(self._calibration.bins),
            coverage=covered,
            alarms=self.alarms,
        )

    # --- state -----------------------------------------------------------------------------------
    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_production": VERSION,
            "policy": self._policy,
            "settings": as_json(self._kept_for()),
            "counts": dict(self._counts),
            "drift": self._drift.to_json(),
            "calibration": None if self._calibration is None else self._calibration.to_json(),
            "stopping": self._stopping.to_json(),
            "coverage": None if self._coverage is None else self._coverage.to_json(),
            "waiting": self._waiting,
            "alarms": [alarm.to_json() for alarm in self._alarms],
        }

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
        """Go on from what :meth:`to_json` gave; nothing may have been taken before."""
        fields = state if isinstance(state, Mapping) else {}
        if fields.get("suffice_production") != VERSION:
            raise DataError(
                f"must be {VERSION}, found {fields.get('suffice_production')!r}: no state of suffice "
                "monitor --policy, or one of a newer version",
                column="suffice_production",
            )
        fields = map_fields(state, "a state of suffice monitor", tuple(self.to_json()))
        kept = {"policy": fields.get("policy"), **dict(fields.get("settings") or {})}
        for name, now in {"policy": self._policy, **as_json(self._kept_for())}.items():
            if kept.get(name) != now:
                raise DataError(
                    f"the state was kept for another {name} ({kept.get(name)!r}, now {now!r}); begin "
                    "another state file",
                    column=name,
                )
        counts = map_fields(fields.get("counts"), "counts", _COUNTS)
        self._counts = {name: whole(counts.get(name), name) for name in _COUNTS}
        self._drift.resume(fields.get("drift"))
        self._stopping.resume(fields.get("stopping"))
        if self._calibration is not None:
            self._calibration.resume(fields.get("calibration"))
        if self._coverage is not None:
            self._coverage = self._coverage.resumed(fields.get("coverage"))
        waiting, alarms = fields.get("waiting"), fields.get("alarms")
        if not isinstance(waiting, Mapping) or not isinstance(alarms, list):
            raise DataError("must be questions by id, and a list", column="waiting")
        self._waiting = {str(name): _read_waiting(held) for name, held in waiting.items()}
        self._alarms = [Alarm.from_json(held) for held in alarms]


_EXACT = Promised(metric=METRICS["em"], score="em")


def _returned(asked: Returned) -> dict[str, Any]:
    return {"answer": asked.answer, "score": asked.score}


def _waiting(asked: Asked) -> dict[str, Any]:
    """What is kept of a question until its label comes."""
    return {
        "rounds": [asked.stop or asked.rounds, asked.rounds],
        "explored": asked.explored,
        "confidence": asked.confidence,
        "stop": _returned(asked.at_stop),
        "end": _returned(asked.at_end),
        "answers": dict(asked.answers),
    }


def _read_waiting(held: object) -> dict[str, Any]:
    own = ("rounds", "explored", "confidence", "stop", "end", "answers")
    fields = map_fields(held, "a question whose label may come", own)
    if {*own} - {*fields}:
        raise DataError(f"needs {', '.join(own)}", column="waiting")
    for name in ("stop", "end"):
        map_fields(fields[name], name, ("answer", "score"))
    return dict(fields)


# --- what was seen -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Produced(Tabular):
    """Where everything stands.

    ``counts`` are of questions and rounds, ``waiting`` of those whose labels may come, ``lacking`` of those
    that are to stand for the past still. ``early`` is the share that the policy stops before the full
    budget; ``loss`` and ``saved`` are per question, of all.
    """

    policy: str
    settings: ProductionSettings
    promised: Promised
    counts: Mapping[str, int]
    waiting: int
    lacking: int
    tests: tuple[Tested, ...]
    early: AnytimeMean
    loss: PerQuestion
    saved: tuple[PerQuestion, ...]
    reliability: tuple[ReliabilityBin, ...]
    coverage: Watched | None
    alarms: tuple[Alarm, ...]

    @property
    def alarmed(self) -> bool:
        """Whether there was any alarm."""
        return bool(self.alarms)

    @property
    def alarm_notes(self) -> list[str]:
        """A sentence each."""
        return [
            f"ALARM, {alarm.kind} at question {alarm.question:,}: {alarm.text}."
            for alarm in self.alarms
        ]

    @property
    def rounds_saved(self) -> float | None:
        """Of the rounds of full budgets the share that was not run, explored questions among them."""
        full = self.counts["full_rounds"]
        return 1.0 - self.counts["budgeted"] / full if full else None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "policy": self.policy,
            "level": self.settings.level,
            "metric": self.promised.metric.key(self.promised.score),
            "promised_loss": self.promised.most,
            **self.counts,
            "waiting_for_labels": self.waiting,
            "alarm": self.alarmed,
            "tests": as_json(self.tests),
            "stopped_early": as_json(self.early),
            "loss": as_json(self.loss),
            "saved": as_json(self.saved),
            "rounds_saved": self.rounds_saved,
            "reliability": as_json(self.reliability),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "alarms": [alarm.to_json() for alarm in self.alarms],
        }

    def tables(self) -> tuple[Table, ...]:
        """The tests, what stopping loses and saves, and reliability where there are labels."""
        tables = [self._tests(), self._stopping()]
        if self.reliability:
            tables.append(self._reliability())
        if self.coverage is not None:
            tables.extend(self.coverage.tables())
        return tuple(tables)

    def _tests(self) -> Table:
        columns = (
            Column(name="watched"),
            Column(name="of", head=""),
            Column(name="taken", kind="count"),
            Column(name="capital", kind="significant", digits=4),
            Column(name="p_value", kind="significant", digits=3, head="p-value"),
            Column(name="alarm", kind="count"),
        )
        rows: list[list[Value]] = [
            [
                *(test.kind, test.of, test.taken, test.capital, test.p_value),
                Cell(None, "no")
                if test.alarmed_at is None
                else Cell(test.alarmed_at, f"at {test.alarmed_at:,}", "bad"),
            ]
            for test in self.tests
            if test.taken or test.kind not in ("calibration", "exploration")
        ]
        drifts = sum(test.kind == "drift" for test in self.tests)
        notes = []
        if self.lacking:
            notes.append(
                f"Drift is not tested yet: the first {self.settings.first:,} questions stand for the past, "
                f"{self.lacking:,} to come."
            )
        if drifts:
            notes.append(
                f"Each kind raises a false alarm with probability at most {self.settings.level:g}, ever; the "
                f"{drifts} numbers whose drift is watched have {self.settings.level / drifts:.2g} each."
            )
        notes += self.alarm_notes
        return Table(
            name="tests", title=self._title(), columns=columns, rows=rows, notes=notes, names=2
        )

    def _title(self) -> str:
        counts = self.counts
        title = (
            f"{counted(counts['questions'], 'question')} of policy {self.policy}, {counts['rounds']:,} "
            "rounds: "
            f"{counts['early']:,} stopped early, of which {counts['explored']:,} ran on; "
            f"{counts['labelled']:,} labelled, {self.waiting:,} waiting for a label."
        )
        if counts["others"]:
            title += f"\n{counted(counts['others'], 'question')} of another policy passed over."
        return title

    def _stopping(self) -> Table:
        columns = (
            Column(name="per_question", head="per question"),
            Column(name="explored", kind="count", head="ran on"),
            Column(name="mean", kind="percent", interval=True, head="mean, %"),
            Column(name="promised", kind="percent", head="promised"),
        )
        rows: list[list[Value]] = []
        if self.loss.explored:
            rows.append([self.loss.name, self.loss.explored, self.loss, self.promised.most])
        rows += [
            [f"{find_cost(part.name).label} saved", part.explored, part, None]
            for part in self.saved
        ]
        notes = [
            f"Intervals hold at all times together with probability {1 - self.settings.level:g} each, for "
            "questions whose means do not change."
        ]
        if not self.counts["explored"]:
            notes = [
                "No question ran on past its stop: what stopping loses is unknown (explore=0.05)."
            ]
        elif not self.loss.explored:
            notes.append("The loss is unknown: no question that ran on was scored at both ends.")
        if self.counts["unanswered"]:
            ran_on = f"{counted(self.counts['unanswered'], 'question')} that ran on have no"
            notes.append(
                f"{ran_on} score of yours at the stop: observe(..., score=...), or --metric em."
                if self.promised.metric.against == "scores"
                else f"{ran_on} answer at the stop; suffice probe asks for it."
            )
        if self.counts["cut"]:
            notes.append(
                f"{counted(self.counts['cut'], 'question')} ended by a budget, an error or the user; what "
                "they returned counts as what running on brings."
            )
        if self.rounds_saved is not None:
            notes.append(
                f"By plain count {percent(self.rounds_saved)}% of the rounds of full budgets were not run, "
                "those of explored questions included."
            )
        return Table(
            name="stopping",
            title="What stopping early loses and saves.",
            columns=columns,
            rows=rows,
            notes=notes,
        )

    def _reliability(self) -> Table:
        columns = (
            Column(name="confidence"),
            Column(name="labelled", kind="count"),
            Column(name="stated", kind="percent", head="stated, %"),
            Column(name="right", kind="percent", interval=True, head="right, %"),
        )
        rows: list[list[Value]] = [
            [f"{part.low:.1f}-{part.high:.1f}", part.right.count, part.confidence, part.right]
            for part in self.reliability
        ]
        return Table(
            name="reliability",
            title="How often labelled answers are right, by the policy's confidence.",
            columns=columns,
            rows=rows,
        )
