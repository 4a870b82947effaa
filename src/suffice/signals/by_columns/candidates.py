"""Markers of conflict between the answers of all rounds."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.texts import NONE, Texts
from suffice.signals.by_columns.rounds import RoundColumns, by_appearance
from suffice.signals.candidates import MARKER_PHRASES, MARKER_WORDS, MarkerDetector

Array = NDArray[np.float64]

_FIRST_WORDS = sorted({*MARKER_WORDS, *(phrase.split()[0] for phrase in MARKER_PHRASES)})
_PERHAPS_MARKED = rf"(?i)\b(?:{'|'.join(_FIRST_WORDS)})\b|n't|[^\x00-\x7f]"
_PERHAPS_BLANK = r"^(?:[\x00-\x20]|[^\x00-\x7f])*$"


def contradiction(rounds: RoundColumns) -> Array:
    """``contradiction``."""
    answers = rounds.texts("answer")
    blank = answers.through(_blank(answers.distinct), True)
    marked = answers.through(_matching(answers.distinct, _PERHAPS_MARKED), False)
    compared = ~rounds.first & ~blank & ~rounds.before(blank, False)
    rows = np.flatnonzero(compared & (marked | rounds.before(marked, False)))
    conflicts = np.where(blank | rounds.before(blank, False), np.nan, 0.0)
    conflicts[rows] = _conflicts(answers, rounds.before(answers.codes, NONE)[rows], rows)
    return conflicts


def _conflicts(answers: Texts, previous: NDArray[np.int64], rows: NDArray[np.int64]) -> Array:
    """Of the answers of rows and the ones before them, each distinct pair looked at once."""
    pair, places = by_appearance(previous * len(answers.distinct) + answers.codes[rows])
    steps = answers.distinct.take(pa.array(previous[places])).to_pylist()
    others = answers.distinct.take(pa.array(answers.codes[rows][places])).to_pylist()
    return MarkerDetector().contradictions(list(zip(steps, others, strict=True)))[pair]


def _blank(texts: pa.Array) -> NDArray[np.bool_]:
    """Texts of nothing but what ``str.strip`` takes away."""
    blank = _matching(texts, _PERHAPS_BLANK)
    perhaps = texts.filter(pa.array(blank)).to_pylist()
    blank[blank] = [not text.strip() for text in perhaps]
    return blank


def _matching(texts: pa.Array, pattern: str) -> NDArray[np.bool_]:
    matching = pc.match_substring_regex(texts, pattern)
    return np.array(matching.to_numpy(zero_copy_only=False))
