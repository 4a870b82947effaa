"""Watching the coverage that a policy file promises, over answers as they arrive."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO

from suffice.errors import DataError, SufficeWarning, UsageError, near_misses
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor, scores_by_count
from suffice.monitor.state import opened, undamaged
from suffice.numbers.fields import map_fields, number
from suffice.numbers.tests.e_process import Monitor, whole
from suffice.numbers.tests.tails import exact_interval
from suffice.policies.file import policy_hash
from suffice.protocols import StopPolicy, strict_json
from suffice.results.as_json import as_json, fields_as_json
from suffice.results.formats import percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import Match

_INTERVAL = 0.05
_DECIMALS = 9  # of scores: tools that copy JSON change last digits, and ties would be none
_COUNTS = ("answers", "labelled", "undecided", "misses")
_FIELDS = ("covered", "gold_answers", "answer_set", "samples", "score", "reasons")
ALARMS = {
    "coverage": "answers miss more often than the promise and the luck of calibration explain",
    "exchangeability": "answers no longer look like those calibrated on; not that coverage fell",
}
_MISSING = {
    "coverage": "no answer came with its right answer",
    "exchangeability": "no answer came with its score at round 1",
}


# --- answers as JSON lines -----------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What monitors read of one answer."""

    covered: bool | None = None
    undecided: bool = False
    score: float | None = None
    first_round: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grading:
    """When an answer set covers."""

    match: Match = field(default_factory=Match)
    shows_all: bool = True


_EXACT = Grading()


def read_arrived(document: object, grading: Grading = _EXACT) -> Arrived:
    """One answer from its JSON: ``covered``, or ``gold_answers`` with ``answer_set``; and scores.

    ``covered`` (true, false, null) is taken as stated. Otherwise the answer set covers when one of its
    answers is right. Where none is and the set holds "Can't Answer", that is right when no sample is:
    ``samples``, the sampled answers of all rounds, decides, and without it the answer is undecided.
    The score is ``score``, else comes from the values of ``reasons[0]``, as ``suffice ask --json``
    writes them; null is undefined.
    """
    if not isinstance(document, Mapping):
        raise _wrong(None, "one JSON object", document)
    for name in document:
        if name not in _FIELDS and (near := _meant(name)) and near[0] not in document:
            said = f"field {name!r} of an answer is not read; did you mean {near[0]!r}?"
            warnings.warn(said, SufficeWarning, stacklevel=3)
    covered, undecided = _coverage(document, grading)
    if "score" in document:
        score = _defined(document["score"], "score")
        return Arrived(covered=covered, undecided=undecided, score=score)
    first = _first_round(document.get("reasons"))
    return Arrived(covered=covered, undecided=undecided, first_round=first)


def _wrong(column: str | None, wanted: str, found: object) -> DataError:
    text = json.dumps(found, ensure_ascii=False, default=str)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return DataError(f"must be {wanted}, found {shown}", column=column)


@lru_cache(maxsize=256)
def _meant(name: str) -> list[str]:
    # an answer, as suffice ask --json writes it beside the rest, is no slip for answer_set
    return near_misses(name, _FIELDS, most=1, likeness=0.83)


def _coverage(document: Mapping[str, Any], grading: Grading) -> tuple[bool | None, bool]:
    """Whether it covered, and whether only that is unknown."""
    stated, gold = document.get("covered"), document.get("gold_answers")
    if stated is not None:
        if not isinstance(stated, bool):
            raise _wrong("covered", "true, false or null", stated)
        return stated, False
    if gold is None or gold == []:
        return None, False
    gold, held = _texts(gold, "gold_answers"), document.get("answer_set")
    if not isinstance(held, Mapping):
        raise _wrong("answer_set", "an object with answers and cannot_answer", held)
    members, cannot_answer = held.get("answers"), held.get("cannot_answer")
    if isinstance(members, list):
        members = [one.get("answer") if isinstance(one, Mapping) else one for one in members]
    if any(grading.match(member, gold) for member in _texts(members, "answer_set.answers")):
        return True, False
    if not isinstance(cannot_answer, bool):
        raise _wrong("answer_set.cannot_answer", "true or false", cannot_answer)
    samples = document.get("samples")
    if samples is None:
        return (None, True) if cannot_answer or not grading.shows_all else (False, False)
    if isinstance(samples, list) and any(isinstance(sample, list) for sample in samples):
        samples = [text for sample in samples for text in _texts(sample, "samples")]
    if any(grading.match(sample, gold) for sample in _texts(samples, "samples")):
        return (False, False) if grading.shows_all else (None, True)
    return cannot_answer, False


def _texts(values: object, column: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise _wrong(column, "a list of texts", values)
    return values


def _first_round(reasons: object) -> Mapping[str, float] | None:
    if reasons is None or reasons == []:
        return None
    first = reasons[0] if isinstance(reasons, list) else None
    values = first.get("values") if isinstance(first, Mapping) else None
    if not isinstance(values, Mapping):
        raise _wrong("reasons", "a list of objects with values", reasons)
    return {name: _defined(value, f"reasons[0].values.{name}") for name, value in values.items()}


def _defined(value: object, column: str) -> float:
    """A finite number; NaN where null."""
    figure = math.nan if value is None else number(value, column)
    if math.isinf(figure):
        raise _wrong(column, "finite or null", value)
    return figure


class Arrivals:
    """Answers from a stream of JSON lines, as they come; iterate once.

    Blank lines are passed over. ``skipped`` counts invalid lines left out so far and ``first_skipped``
    says what was wrong with the first.
    """

    def __init__(
        self, stream: BinaryIO, name: str, grading: Grading = _EXACT, *, skip_invalid: bool = False
    ) -> None:
        self._stream, self._name, self._grading = stream, name, grading
        self._skip = skip_invalid
        self.skipped = 0
        self.first_skipped: str | None = None

    def __iter__(self) -> Iterator[Arrived]:
        for at, line in enumerate(self._stream, start=1):
            if line.isspace():
                continue
            try:
                arrived = self._read(line)
            except DataError as error:
                said = f"line {at}: {error.message}"
                named = DataError(said, file=self._name, column=error.column)
                if not self._skip:
                    raise named from error
                self.skipped += 1
                self.first_skipped = self.first_skipped or str(named)
            else:
                yield arrived

    def _read(self, line: bytes) -> Arrived:
        try:
            document = strict_json(line.decode("utf-8-sig"), finite=True)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"not one JSON object on one line ({error}); jq -c . puts a document on one line"
            ) from error
        return read_arrived(document, self._grading)


# --- what is promised ----------------------------------------------------------------------------
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
    promised, fitted_on = policy.facts.coverage, policy.facts.fitted_on
    if promised is None:
        raise UsageError(
            f"a policy of kind {policy.kind!r} promises no coverage; only micp does: "
            "suffice fit micp TRACES --out policy.json"
        )
    n = whole(fitted_on.get("calibration_questions"), "fitted_on.calibration_questions", 1)
    return Promise(
        alpha=promised.alpha,
        n_calibration=n,
        first_round_scores=_first_round_scores(fitted_on.get("first_round_scores"), n),
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
    absent = scores_by_count([None], [undefined]) if undefined else ()
    return (*(round(score, _DECIMALS) for score in scores), *absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """How to watch: the probability of a false alarm of each monitor, and the seed of its ties."""

    level: float = 0.05
    seed: int = 42


# --- what was seen -------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Where a test by betting stands; ``alarmed_at`` counts what it took, from 1."""

    kind: str
    of: str = ""
    taken: int
    capital: float
    p_value: float
    alarmed_at: int | None

    @classmethod
    def by(cls, monitor: Monitor, kind: str, of: str = "") -> Tested:
        """Where it stands now."""
        return cls(
            kind=kind,
            of=of,
            taken=monitor.seen,
            capital=monitor.capital,
            p_value=monitor.p_value,
            alarmed_at=monitor.alarmed_at,
        )


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
            **{name: getattr(self, name) for name in _COUNTS},
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
        rows: list[list[Value]] = []
        notes = []
        for monitor in self.monitors:
            kind, at = monitor.kind, monitor.alarmed_at_answer
            told = Cell(None, "no") if at is None else Cell(at, f"at answer {at}")
            rows.append([kind, monitor.taken, monitor.capital, monitor.p_value, told])
            if at is not None:
                notes.append(f"{kind}: {ALARMS[kind]}.")
            elif monitor.taken == 0:
                notes.append(f"{kind}: nothing to go by, since {_MISSING[kind]}.")
        if len(self.monitors) == 1:
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
            kind
            for kind, monitor in self.monitors.items()
            if monitor.alarmed and kind not in self._alarms
        )
        self._alarms |= dict.fromkeys(raised, self._counts["answers"])
        return raised

    @property
    def answers(self) -> int:
        """Answers taken."""
        return self._counts["answers"]

    @property
    def monitors(self) -> Mapping[str, CoverageMonitor | ExchangeabilityMonitor]:
        """By kind."""
        both = (self._coverage, self._exchangeability)
        return {monitor.kind: monitor for monitor in both if monitor is not None}

    def result(self) -> Watched:
        """What was seen so far."""
        return Watched(
            promise=self._promise,
            settings=self._settings,
            monitors=tuple(
                WatchedMonitor(
                    kind=kind,
                    taken=monitor.seen,
                    capital=monitor.capital,
                    p_value=monitor.p_value,
                    alarmed_at=monitor.alarmed_at,
                    alarmed_at_answer=self._alarms.get(kind),
                    limit=monitor.limit if isinstance(monitor, CoverageMonitor) else None,
                )
                for kind, monitor in self.monitors.items()
            ),
            **self._counts,
        )

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_watch": 1,
            "promise": self._promise.fingerprint,
            **fields_as_json(self._settings),
            **self._counts,
            "alarms": dict(self._alarms),
            "monitors": [monitor.to_json() for monitor in self.monitors.values()],
        }

    def resumed(self, state: object) -> Watch:
        """The watch that gave ``state`` by :meth:`to_json`, of the same promise and settings."""
        resumed = Watch(self._promise, self._settings)
        kept_for = {"promise": self._promise.fingerprint, **fields_as_json(self._settings)}
        resumed._go_on(opened(state, "suffice_watch", kept_for))
        return resumed

    def _go_on(self, held: Mapping[str, Any]) -> None:
        with undamaged():
            self._counts = {name: whole(held[name], name) for name in _COUNTS}
            self._alarms = {kind: whole(at, "alarms", 1) for kind, at in held["alarms"].items()}
            coverage, *others = held["monitors"]
            self._coverage = CoverageMonitor.from_json(coverage)
            if self._exchangeability is not None:
                (self._exchangeability,) = map(ExchangeabilityMonitor.from_json, others)
