"""Watching the coverage that a policy file promises, over answers as they arrive."""

from __future__ import annotations

import hashlib
import json
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

from suffice.contracts import StopPolicy, strict_json
from suffice.errors import DataError, SufficeWarning, UsageError, near_misses, plain_file
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor, scores_by_count
from suffice.policies.file import policy_hash
from suffice.results.formats import percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.scoring import Match
from suffice.stats.betting import Monitor
from suffice.stats.fields import map_fields, number, whole
from suffice.stats.p_values import exact_interval

VERSION = 1
"""Of the state that a watch keeps."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """What monitors read of one answer; its score at round 1 is NaN where undefined, ``None``: not told."""

    covered: bool | None = None
    undecided: bool = False
    score: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a policy file promises, and what its calibration questions looked like."""

    alpha: float
    n_calibration: int
    first_round_scores: tuple[float, ...] = ()
    stop_on: str = "entropy"
    penalty: float = 0.0
    match: Match = field(default_factory=Match)
    shows_all: bool = True
    policy: str = ""

    @property
    def fingerprint(self) -> str:
        """Twelve hexadecimal digits over all of it."""
        scores = ["undefined" if math.isnan(score) else score for score in self.first_round_scores]
        parts = [self.alpha, self.n_calibration, scores, self.stop_on, self.penalty]
        parts += [self.match.f1, self.shows_all, self.policy]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    def read(self, document: object) -> Arrived:
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
        covered, undecided = self._coverage(document)
        if "score" in document:
            score: float | None = _defined(document["score"], "score")
        else:
            score = self._scored(document.get("reasons"))
        score = None if score is None else round(score, _DECIMALS)
        return Arrived(covered=covered, undecided=undecided, score=score)

    def _coverage(self, document: Mapping[str, Any]) -> tuple[bool | None, bool]:
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
        if any(self.match(member, gold) for member in _texts(members, "answer_set.answers")):
            return True, False
        if not isinstance(cannot_answer, bool):
            raise _wrong("answer_set.cannot_answer", "true or false", cannot_answer)
        samples = document.get("samples")
        if samples is None:
            return (None, True) if cannot_answer or not self.shows_all else (False, False)
        if isinstance(samples, list) and any(isinstance(sample, list) for sample in samples):
            samples = [text for sample in samples for text in _texts(sample, "samples")]
        if any(self.match(sample, gold) for sample in _texts(samples, "samples")):
            return (False, False) if self.shows_all else (None, True)
        return cannot_answer, False

    def _scored(self, reasons: object) -> float | None:
        """The score of round 1 by the values told of it."""
        if reasons is None or reasons == []:
            return None
        first = reasons[0] if isinstance(reasons, list) else None
        told = first.get("values") if isinstance(first, Mapping) else None
        if not isinstance(told, Mapping):
            raise _wrong("reasons", "a list of objects with values", reasons)
        values = {name: _defined(one, f"reasons[0].values.{name}") for name, one in told.items()}
        entropy, top = values.get("normalized_entropy"), values.get("top_cluster_confidence")
        if self.stop_on == "entropy":
            return entropy
        if top is None or not self.penalty:
            return None if top is None else -top
        return None if entropy is None else -(top - self.penalty * entropy)


def _wrong(column: str | None, wanted: str, found: object) -> DataError:
    text = json.dumps(found, ensure_ascii=False, default=str)
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return DataError(f"must be {wanted}, found {shown}", column=column)


@lru_cache(maxsize=256)
def _meant(name: str) -> list[str]:
    # an answer, as suffice ask --json writes it beside the rest, is no slip for answer_set
    return near_misses(name, _FIELDS, most=1, likeness=0.83)


def _texts(values: object, column: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise _wrong(column, "a list of texts", values)
    return values


def _defined(value: object, column: str) -> float:
    """A finite number; NaN where null."""
    figure = math.nan if value is None else number(value, column)
    if math.isinf(figure):
        raise _wrong(column, "finite or null", value)
    return figure


def promise_of(policy: StopPolicy) -> Promise:
    """What a fitted policy promises."""
    promised, fitted_on = policy.facts.coverage, policy.facts.fitted_on
    if promised is None:
        raise UsageError(
            f"a policy of kind {policy.kind!r} promises no coverage; only micp does: "
            "suffice fit micp TRACES --out policy.json"
        )
    n = whole(fitted_on.get("calibration_questions"), "fitted_on.calibration_questions", 1)
    scores: list[float] = []
    if (stored := fitted_on.get("first_round_scores")) is not None:
        fields = map_fields(stored, "first_round_scores", ("values", "counts"))
        scores = scores_by_count(fields.get("values"), fields.get("counts"))
        if len(scores) > n:
            raise DataError(
                f"add up to {len(scores)}, more than the {n} calibration questions", column="counts"
            )
        # calibration questions that have none are the undefined ones
        undefined = n - len(scores)
        scores += scores_by_count([None], [undefined]) if undefined else []
    return Promise(
        alpha=promised.alpha,
        n_calibration=n,
        first_round_scores=tuple(round(score, _DECIMALS) for score in scores),
        stop_on=promised.stop_on,
        penalty=promised.penalty,
        match=promised.match,
        shows_all=promised.shows_all,
        policy=policy_hash(policy),
    )


class Arrivals:
    """Answers from a stream of JSON lines, as they come; iterate once."""

    def __init__(
        self, stream: BinaryIO, name: str, promise: Promise, *, skip_invalid: bool = False
    ) -> None:
        self._stream, self._name, self._promise = stream, name, promise
        self._skip = skip_invalid
        self.skipped = 0
        self.first_skipped: str | None = None

    def __iter__(self) -> Iterator[Arrived]:
        for at, line in enumerate(self._stream, start=1):
            if line.isspace():
                continue
            try:
                yield self._promise.read(strict_json(line.decode("utf-8-sig"), finite=True))
            except (ValueError, RecursionError) as error:  # DataError is one
                said, column = (
                    f"line {at}: no JSON object on one line, as of jq -c . ({error})",
                    None,
                )
                if isinstance(error, DataError):
                    said, column = f"line {at}: {error.message}", error.column
                named = DataError(said, file=self._name, column=column)
                if not self._skip:
                    raise named from error
                self.skipped += 1
                self.first_skipped = self.first_skipped or str(named)


def standing(monitor: Monitor, kind: str, of: str = "") -> dict[str, Any]:
    """Where a test by betting stands; ``alarmed_at`` counts what it took, from 1."""
    return {
        "kind": kind,
        "of": of,
        "taken": monitor.seen,
        "capital": monitor.capital,
        "p_value": monitor.p_value,
        "alarmed_at": monitor.alarmed_at,
    }


class Watch(Tabular):
    """Both monitors over one stream of answers, and what was seen so far.

    ``labelled`` answers are those whose right answer was known, ``undecided`` of them are sets of which
    it is not known whether "Can't Answer" is right; they count as covered. ``coverage`` and its 95%
    interval are ``None`` when nothing was labelled; the interval's low end counts undecided as misses.
    The interval is for one look at the end, not for stopping when it looks bad: that is what monitors
    are for.
    """

    def __init__(self, promise: Promise, level: float = 0.05, seed: int = 42) -> None:
        self._promise, self._level, self._seed = promise, level, seed
        self.counts = dict.fromkeys(_COUNTS, 0)
        self._alarms: dict[str, int] = {}  # at which answer of all, from 1
        self.monitors: dict[str, Any] = {
            "coverage": CoverageMonitor(promise.alpha, promise.n_calibration, level)
        }
        if promise.first_round_scores:
            scored = ExchangeabilityMonitor(promise.first_round_scores, level, seed=seed)
            self.monitors["exchangeability"] = scored

    def take(self, arrived: Arrived) -> tuple[str, ...]:
        """Count one answer; the kinds of monitors that raised their alarm at it."""
        self.counts["answers"] += 1
        if arrived.score is not None and "exchangeability" in self.monitors:
            self.monitors["exchangeability"].update(arrived.score)
        return self.label(arrived)

    def label(self, arrived: Arrived) -> tuple[str, ...]:
        """What became known of an answer that was counted before; the kinds that raised their alarm."""
        if arrived.covered is not None or arrived.undecided:
            covered = arrived.covered is not False  # undecided can only delay an alarm
            self.counts["labelled"] += 1
            self.counts["undecided"] += arrived.undecided
            self.counts["misses"] += not covered
            self.monitors["coverage"].update(covered)
        alarmed = [kind for kind, monitor in self.monitors.items() if monitor.alarmed]
        raised = tuple(kind for kind in alarmed if kind not in self._alarms)
        self._alarms |= dict.fromkeys(raised, self.counts["answers"])
        return raised

    # --- what was seen ---------------------------------------------------------------------------
    @property
    def alarmed(self) -> bool:
        """Whether any monitor raised an alarm."""
        return bool(self._alarms)

    @property
    def coverage(self) -> float | None:
        """Share of the labelled answers that covered."""
        labelled = self.counts["labelled"]
        return None if labelled == 0 else 1.0 - self.counts["misses"] / labelled

    @property
    def interval(self) -> tuple[float, float] | None:
        """Its exact 95% interval (Clopper and Pearson)."""
        labelled = self.counts["labelled"]
        if labelled == 0:
            return None
        covered = labelled - self.counts["misses"]
        low, _ = exact_interval(covered - self.counts["undecided"], labelled, _INTERVAL)
        return low, exact_interval(covered, labelled, _INTERVAL)[1]

    def to_json(self) -> dict[str, Any]:
        """What was seen, as strict JSON."""
        low, high = self.interval or (None, None)
        return {
            "alpha": self._promise.alpha,
            "calibration_questions": self._promise.n_calibration,
            "level": self._level,
            **self.counts,
            "coverage": {"estimate": self.coverage, "low": low, "high": high},
            "alarm": self.alarmed,
            "monitors": [
                {
                    **standing(monitor, kind),
                    "alarmed_at_answer": self._alarms.get(kind),
                    "limit": getattr(monitor, "limit", None),
                    "alarm": monitor.alarmed,
                }
                for kind, monitor in self.monitors.items()
            ],
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
        for kind, monitor in self.monitors.items():
            at = self._alarms.get(kind)
            told = Cell(None, "no") if at is None else Cell(at, f"at answer {at}")
            rows.append([kind, monitor.seen, monitor.capital, monitor.p_value, told])
            if at is not None:
                notes.append(f"{kind}: {ALARMS[kind]}.")
            elif monitor.seen == 0:
                notes.append(f"{kind}: nothing to go by, since {_MISSING[kind]}.")
        if len(self.monitors) == 1:
            notes.append(
                "The policy file holds no first-round scores: without labels nothing is seen."
            )
        title = (
            f"Promised: at most {percent(self._promise.alpha)}% of answer sets miss, calibrated on "
            f"{self._promise.n_calibration} questions.\n{self._seen()}"
        )
        return (Table(name="monitors", title=title, columns=columns, rows=rows, notes=notes),)

    def _seen(self) -> str:
        counts = self.counts
        read = f"{counts['answers']} answers read, {counts['labelled']} with a right answer"
        if self.interval is None or self.coverage is None:
            return f"{read}."
        low, high = self.interval
        text = (
            f"{read}, {counts['misses']} misses: coverage {percent(self.coverage)}% "
            f"[{percent(low)}, {percent(high)}]"
        )
        if counts["undecided"]:
            text += (
                f'; {counts["undecided"]} of them came without samples to tell whether "Can\'t Answer" '
                "is right: counted as covered, and as misses at the interval's low end"
            )
        return f"{text}."

    # --- state -----------------------------------------------------------------------------------
    def state(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_watch": VERSION,
            **self._kept_for(),
            **self.counts,
            "alarms": dict(self._alarms),
            "monitors": [monitor.to_json() for monitor in self.monitors.values()],
        }

    def _kept_for(self) -> dict[str, Any]:
        fingerprint = self._promise.fingerprint
        return {"promise": fingerprint, "level": self._level, "seed": self._seed}

    def resume(self, state: object) -> Watch:
        """Go on from what :meth:`state` gave of the same promise and settings."""
        held = opened(state, "suffice_watch", self._kept_for())
        with undamaged():
            self.counts = {name: whole(held[name], name) for name in _COUNTS}
            self._alarms = {kind: whole(at, "alarms", 1) for kind, at in held["alarms"].items()}
            pairs = zip(self.monitors.items(), held["monitors"], strict=True)
            self.monitors = {kind: type(own).from_json(kept) for (kind, own), kept in pairs}
        return self


# --- what a watch kept in a file ------------------------------------------------------------------
def read_state(file: Path) -> object:
    """The JSON of a state's file."""
    try:
        return strict_json(plain_file(file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error


def opened(state: object, name: str, kept_for: Mapping[str, object]) -> Mapping[str, Any]:
    """A state whose version stands under ``name``, kept for this policy and these settings."""
    held = state if isinstance(state, Mapping) else {}
    if held.get(name) != VERSION:
        raise DataError(
            f"must be {VERSION}, found {held.get(name)!r}: no state of suffice monitor, or one of a newer "
            "version",
            column=name,
        )
    stated = {**(held.get("settings") or {}), **held}
    for column, now in kept_for.items():
        if stated.get(column) != now:
            raise DataError(
                f"the state was kept for another {column} ({stated.get(column)!r}, now {now!r}); begin "
                "another state file",
                column=column,
            )
    return held


@contextmanager
def undamaged(file: Path | None = None) -> Iterator[None]:
    """What cannot be gone on from is a fault of the state, named with its file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, DataError):  # a ValueError
            named = error.file or (None if file is None else str(file))
            raise DataError(error.message, file=named, column=error.column) from error
        said = f"the state is damaged ({type(error).__name__}: {error}); begin another state file"
        raise DataError(said, file=None if file is None else str(file)) from error
