"""Watching a policy in production, over recorded questions as they end and labels as they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from suffice.errors import UsageError
from suffice.monitor.aspects import Alarm, Calibration, Drift, Promised, Stopping
from suffice.monitor.coverage import ALARMS, Tested, Watch, WatchSettings, promise_of, read_arrived
from suffice.monitor.produced import Produced
from suffice.monitor.questions import Asked, Reading, Returned
from suffice.monitor.state import VERSION, opened, undamaged
from suffice.numbers.tests.e_process import Monitor, whole
from suffice.policies.file import policy_hash
from suffice.protocols import ConfidentPolicy, StopPolicy
from suffice.results.as_json import as_json
from suffice.results.formats import percent
from suffice.scoring import exact_match
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


class Production:
    """One policy, watched over all questions that it ran on.

    Notes
    -----
    Give every question once, in the order in which they end. :class:`suffice.monitor.following.Folder` does.
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
        names, level, seed = self.reading.names, settings.level, settings.seed
        values = None
        if past is not None:
            asked = [question.values for question in self.reading.questions(past)]
            if not asked:
                raise UsageError(
                    "no question of the record that stands for the past was run by this policy, or by none"
                )
            values = {name: [held[name] for held in asked] for name in names}
        self._drift = Drift(names, level, past=values, first=settings.first, seed=seed)
        self._calibration = Calibration(level) if isinstance(policy, ConfidentPolicy) else None
        self._stopping = Stopping(self._promised, level)
        self._promise = None if policy.facts.coverage is None else promise_of(policy)
        self._coverage: Watch | None = None
        if self._promise is not None:
            self._coverage = Watch(self._promise, WatchSettings(level=level, seed=seed))
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._waiting: dict[str, dict[str, Any]] = {}
        self._alarms: list[Alarm] = []

    # --- taking in -------------------------------------------------------------------------------
    def take(self, asked: Asked) -> list[Alarm]:
        """A question that ended; the alarms raised by it."""
        counts, before = self._counts, len(self._alarms)
        counts["questions"] += 1
        counts["rounds"] += asked.rounds
        counts["early"] += asked.early
        counts["explored"] += asked.explored
        counts["cut"] += asked.cut
        if asked.budget is not None:
            counts["budgeted"] += asked.rounds
            counts["full_rounds"] += asked.budget
        for name in self._drift.take(asked.values):
            self._bets_won("drift", asked.id, self._drift.monitors[name], of=name)
        if self._stopping.take(asked):
            self._bets_won("exploration", asked.id, self._stopping.draws)
        if self._coverage is not None:
            kinds = self._coverage.take(read_arrived(asked.answers))
            self._coverage_fell(self._coverage, asked.id, kinds)
        agreement = self._promised.metric.agreement
        if asked.explored and agreement:
            self._settle_loss(asked.id, asked.at_stop, asked.at_end, ())
        sure = self._calibration is not None and asked.confidence is not None
        if (asked.explored and not agreement) or sure or self._coverage is not None:
            self._waiting.setdefault(asked.id, _waiting(asked))
            if asked.gold or asked.at_stop.score is not None:
                self.label(Label(question_id=asked.id, gold_answers=asked.gold))
            while len(self._waiting) > _MOST_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
                counts["forgotten"] += 1
        return self._alarms[before:]

    def label(self, label: Label) -> list[Alarm]:
        """What became known of a question that was taken; the alarms raised by it.

        A label of a question that was not taken, or that has one, counts for nothing.
        """
        name, gold, before = label.question_id, label.gold_answers, len(self._alarms)
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
        self._counts["labelled"] += 1
        if (
            self._calibration is not None
            and (sure := held["confidence"]) is not None
            and (right := _right(stop, gold)) is not None
            and self._calibration.take(sure, right)
        ):
            self._bets_won("calibration", name, self._calibration.monitor)
        if held["explored"] and not self._promised.metric.agreement:
            self._settle_loss(name, stop, end, gold)
        if self._coverage is not None and self._promise is not None and gold:
            document = {**held["answers"], "gold_answers": list(gold)}
            arrived = read_arrived(document, self._promise.grading)
            self._coverage_fell(self._coverage, name, self._coverage.label(arrived))
        return self._alarms[before:]

    def pass_over(self, questions: int) -> None:
        """So many questions that another policy ran on."""
        self._counts["others"] += questions

    def _settle_loss(self, name: str, stop: Returned, end: Returned, gold: tuple[str, ...]) -> None:
        promised = self._promised
        if promised.metric.agreement:
            gold = () if end.answer is None else (end.answer,)
        lost = promised.lost(promised.value(stop, gold), promised.value(end, gold))
        if math.isnan(lost):
            self._counts["unanswered"] += 1
        elif self._stopping.lose(lost):
            loss, most = self._stopping.loss, promised.most or 0.0
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
            question=self._counts["questions"],
            question_id=name,
            policy=self._policy,
            text=text or f"{of} {_SAYS[kind]}".lstrip(),
            evidence=evidence,
        )
        self._alarms.append(alarm)

    # --- telling ---------------------------------------------------------------------------------
    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """All that were raised, in order."""
        return tuple(self._alarms)

    def gauges(self) -> Mapping[str, float]:
        """For metrics, at any time: 1 by kind of alarm that was raised, else 0."""
        raised = {alarm.kind for alarm in self._alarms}
        return {kind: float(kind in raised) for kind in KINDS}

    def result(self) -> Produced:
        """What was seen so far."""
        tests = [Tested.by(held, "drift", name) for name, held in self._drift.monitors.items()]
        if self._calibration is not None:
            tests.append(Tested.by(self._calibration.monitor, "calibration"))
        tests.append(Tested.by(self._stopping.draws, "exploration"))
        if self._coverage is not None:
            tests += [Tested.by(held, kind) for kind, held in self._coverage.monitors.items()]
        return Produced(
            policy=self._policy,
            level=self.settings.level,
            first=self.settings.first,
            promised=self._promised,
            counts=dict(self._counts),
            waiting=len(self._waiting),
            lacking=self._drift.lacking,
            tests=tuple(tests),
            early=self._stopping.early,
            loss=self._stopping.loss,
            saved=tuple(self._stopping.saved),
            reliability=() if self._calibration is None else tuple(self._calibration.bins),
            coverage=None if self._coverage is None else self._coverage.result(),
            alarms=self.alarms,
        )

    # --- state -----------------------------------------------------------------------------------
    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        own = {
            "settings": self._kept_for(),
            "counts": self._counts,
            "drift": self._drift,
            "calibration": self._calibration,
            "stopping": self._stopping,
            "coverage": self._coverage,
            "waiting": self._waiting,
            "alarms": self._alarms,
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
        """Go on from what :meth:`to_json` gave; nothing may have been taken before."""
        kept_for = {"policy": self._policy, **as_json(self._kept_for())}
        held = opened(state, "suffice_production", kept_for)
        with undamaged():
            self._counts = {name: whole(held["counts"][name], name) for name in _COUNTS}
            self._drift.resume(held["drift"])
            self._stopping.resume(held["stopping"])
            if self._calibration is not None:
                self._calibration.resume(held["calibration"])
            if self._coverage is not None:
                self._coverage = self._coverage.resumed(held["coverage"])
            self._waiting = {name: dict(waiting) for name, waiting in held["waiting"].items()}
            self._alarms = [Alarm.from_json(alarm) for alarm in held["alarms"]]


def _right(stop: Returned, gold: tuple[str, ...]) -> float | None:
    """Whether an answer is right: equal to a gold answer, or of score 1; ``None``: unknown."""
    if gold:
        return None if stop.answer is None else exact_match(stop.answer, gold)
    return None if stop.score is None else float(stop.score == 1.0)


def _waiting(asked: Asked) -> dict[str, Any]:
    """What is kept of a question until its label comes."""
    return {
        "rounds": [asked.stop or asked.rounds, asked.rounds],
        "explored": asked.explored,
        "confidence": asked.confidence,
        "stop": as_json(asked.at_stop),
        "end": as_json(asked.at_end),
        "answers": dict(asked.answers),
    }
