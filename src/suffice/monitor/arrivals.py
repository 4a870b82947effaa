"""Answers given in use, one JSON object a line: whether each covered, and its score at round 1."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, BinaryIO

from suffice.errors import DataError, SufficeWarning, near_misses
from suffice.numbers.fields import number
from suffice.protocols import strict_json
from suffice.scoring import Match

MOST_BYTES = 16_000_000  # of one line


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
        raise DataError(f"must be one JSON object, found {_shown(document)}")
    _tell_misspelt(document)
    covered, undecided = _coverage(document, grading)
    score = _defined(document["score"], "score") if "score" in document else None
    return Arrived(
        covered=covered,
        undecided=undecided,
        score=score,
        first_round=None if "score" in document else _first_round(document.get("reasons")),
    )


_FIELDS = ("covered", "gold_answers", "answer_set", "samples", "score", "reasons")


def _tell_misspelt(document: Mapping[str, Any]) -> None:
    """Warn of each field that is near one that is read and not there; the same is said once."""
    for name in document:
        if name not in _FIELDS and (near := _meant(name)) and near[0] not in document:
            warnings.warn(
                f"field {name!r} of an answer is not read; did you mean {near[0]!r}?",
                SufficeWarning,
                stacklevel=4,
            )


@lru_cache(maxsize=256)
def _meant(name: str) -> list[str]:
    # an answer, as suffice ask --json writes it beside the rest, is no slip for answer_set
    return near_misses(name, _FIELDS, most=1, likeness=0.83)


def _coverage(document: Mapping[str, Any], grading: Grading) -> tuple[bool | None, bool]:
    """Whether it covered, and whether only that is unknown."""
    stated = document.get("covered")
    if stated is not None:
        if not isinstance(stated, bool):
            raise DataError(
                f"must be true, false or null, found {_shown(stated)}", column="covered"
            )
        return stated, False
    gold = document.get("gold_answers")
    if gold is None or gold == []:
        return None, False
    gold = _texts(gold, "gold_answers")
    held = document.get("answer_set")
    if not isinstance(held, Mapping):
        raise DataError(
            f"with gold_answers it must be an object with answers and cannot_answer, found "
            f"{_shown(held)}; or state covered",
            column="answer_set",
        )
    if any(grading.match(member, gold) for member in _members(held.get("answers"))):
        return True, False
    cannot_answer = held.get("cannot_answer")
    if not isinstance(cannot_answer, bool):
        raise DataError(
            f"must be true or false, found {_shown(cannot_answer)}",
            column="answer_set.cannot_answer",
        )
    samples = document.get("samples")
    if samples is None:
        return (None, True) if cannot_answer or not grading.shows_all else (False, False)
    if any(grading.match(sample, gold) for sample in _samples(samples)):
        return (False, False) if grading.shows_all else (None, True)
    return cannot_answer, False


def _members(answers: object) -> list[str]:
    column = "answer_set.answers"
    if not isinstance(answers, list):
        raise DataError(f"must be a list, found {_shown(answers)}", column=column)
    return _texts(
        [answer.get("answer") if isinstance(answer, Mapping) else answer for answer in answers],
        column,
    )


def _samples(samples: object) -> list[str]:
    """All rounds' samples, given as one list or one list a round."""
    if isinstance(samples, list) and any(isinstance(sample, list) for sample in samples):
        return [text for sample in samples for text in _texts(sample, "samples")]
    return _texts(samples, "samples")


def _texts(values: object, column: str) -> list[str]:
    if not isinstance(values, list) or not all(isinstance(text, str) for text in values):
        raise DataError(f"must be a list of texts, found {_shown(values)}", column=column)
    return values


def _first_round(reasons: object) -> Mapping[str, float] | None:
    if reasons is None or reasons == []:
        return None
    first = reasons[0] if isinstance(reasons, list) else None
    values = first.get("values") if isinstance(first, Mapping) else None
    if not isinstance(values, Mapping):
        raise DataError(
            f"must be a list of objects with values, found {_shown(reasons)}", column="reasons"
        )
    return {name: _defined(value, f"reasons[0].values.{name}") for name, value in values.items()}


def _defined(value: object, column: str) -> float:
    """A finite number; NaN where null."""
    figure = math.nan if value is None else number(value, column)
    if math.isinf(figure):
        raise DataError(f"must be finite or null, found {_shown(value)}", column=column)
    return figure


class Arrivals:
    """Answers from a stream of JSON lines, as they come; iterate once.

    Blank lines are passed over. ``skipped`` counts invalid lines left out so far and ``first_skipped``
    says what was wrong with the first.
    """

    def __init__(
        self,
        stream: BinaryIO,
        name: str,
        grading: Grading = _EXACT,
        *,
        skip_invalid: bool = False,
    ) -> None:
        self._grading = grading
        self._stream, self._name, self._skip = stream, name, skip_invalid
        self.skipped = 0
        self.first_skipped: str | None = None

    def __iter__(self) -> Iterator[Arrived]:
        at = 0
        while line := self._stream.readline(MOST_BYTES + 1):
            at += 1
            if line.isspace():
                continue
            try:
                arrived = self._read(line)
            except DataError as error:
                named = DataError(
                    f"line {at}: {error.message}", file=self._name, column=error.column
                )
                if not self._skip:
                    raise named from error
                self.skipped += 1
                self.first_skipped = self.first_skipped or str(named)
                continue
            yield arrived

    def _read(self, line: bytes) -> Arrived:
        if len(line) > MOST_BYTES:
            while line and not line.endswith(b"\n"):
                line = self._stream.readline(MOST_BYTES)
            raise DataError(f"longer than {MOST_BYTES} bytes")
        try:
            document = strict_json(line.decode("utf-8-sig"), finite=True)
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"not one JSON object on one line ({error}); jq -c . puts a document on one line"
            ) from error
        return read_arrived(document, self._grading)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else f"{text[:77]}..."
