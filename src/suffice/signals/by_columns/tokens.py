"""What the model's tokens say of its answer in all rounds: margins and probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import answer_forms
from suffice.columns.ragged import Ragged, by_length, ranges
from suffice.columns.sums import segment_means
from suffice.columns.texts import NONE, Texts
from suffice.signals.by_columns.answers import forms
from suffice.signals.by_columns.rounds import RoundColumns
from suffice.signals.model_confidence import BLANKS, LABEL, MARKUP, span_behind

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_AROUND = BLANKS + MARKUP


def verbalized_confidence(rounds: RoundColumns) -> Array:
    """``verbalized_confidence``."""
    rating = rounds.numbers("verbalized_confidence")
    return np.where((rating >= 1) & (rating <= 5), rating, np.nan)


def token_probability(rounds: RoundColumns) -> Array:
    """``token_probability``."""
    tokens = rounds.lists("tokens")
    means = segment_means(np.exp(np.minimum(tokens.numbers("logprob"), 0.0)), tokens.offsets)
    means[tokens.lengths == 0] = 0.0
    return np.where(tokens.valid, means, np.nan)


def answer_token_margin(rounds: RoundColumns) -> Array:
    """``answer_token_margin``."""
    answers = rounds.once(_answers)
    margins = rounds.undefined()
    rows = np.flatnonzero(answers.first < answers.end)
    margins[rows] = _margins(rounds.once(_tops), answers.first[rows])
    return margins


def margin(rounds: RoundColumns, statistic: str) -> Array:
    """``margin_min`` and its kin: a statistic of the margins of the answer's tokens that have one."""
    margins = rounds.once(_answer_margins)
    values, offsets = margins.values, margins.offsets
    if statistic == "mean":
        return segment_means(values, offsets)
    return by_length(values, offsets[:-1], offsets[1:], _STATISTICS[statistic])


# --- margins -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class _Margins:
    """Margins of the answer's tokens that have one: those of a row begin at its ``offsets`` (n_rows + 1,)."""

    offsets: Places
    values: Array


def _answer_margins(rounds: RoundColumns) -> _Margins:
    answers, spelt = rounds.once(_answers), rounds.once(_spelt)
    at = ranges(answers.first, answers.end)
    rows = np.repeat(np.arange(rounds.n_rows), answers.end - answers.first)
    margins = _margins(rounds.once(_tops), at)
    there = ~np.isnan(margins) & (spelt.tokens[at] < spelt.tokens[at + 1])
    held = np.bincount(rows[there], minlength=rounds.n_rows)
    return _Margins(np.concatenate([[0], np.cumsum(held)]), margins[there])


def _tops(rounds: RoundColumns) -> Ragged:
    """The alternatives of every token."""
    return rounds.lists("tokens").lists("top", "logprob")


def _margins(tops: Ragged, tokens: Places) -> Array:
    """What the best alternative of each of these tokens has over the second, NaN with fewer than two."""
    lengths = tops.lengths[tokens]
    several = np.flatnonzero(lengths > 1)
    margins = np.full(len(tokens), np.nan)
    if not len(several):
        return margins
    tokens, lengths = tokens[several], lengths[several]
    logprobs = tops.field("logprob").to_numpy(zero_copy_only=False)
    values = logprobs[ranges(tops.offsets[tokens], tops.offsets[tokens + 1])].astype(np.float64)
    starts = np.cumsum(lengths) - lengths
    best = np.maximum.reduceat(values, starts)
    at_best = np.flatnonzero(values == np.repeat(best, lengths))
    once = np.searchsorted(at_best, starts)  # the first of the best
    values[at_best[once]] = -np.inf
    second = np.maximum.reduceat(values, starts)
    with np.errstate(invalid="ignore"):
        margins[several] = np.where(second > -np.inf, best - second + 0.0, np.nan)  # never -0.0
    return margins


_STATISTICS: Mapping[str, Callable[[Array], Array]] = {
    "min": lambda rows: rows.min(axis=1),
    "p10": lambda rows: np.percentile(rows, 10, axis=1),
    "median": lambda rows: np.median(rows, axis=1),
}


# --- where the answer is -------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, eq=False)
class _Spelt:
    """What the tokens spell, all of them end to end, in bytes of UTF-8.

    Token ``i`` lies from ``tokens[i]`` to ``tokens[i + 1]`` of ``text``, row ``r`` from ``rows[r]`` to
    ``rows[r + 1]``.
    """

    text: pa.Buffer
    tokens: Places
    rows: Places

    def between(self, begins: Places, ends: Places) -> pa.Array:
        """The texts between these places, each pair after the one before."""
        bounds = np.stack([begins, ends], axis=1).ravel()
        pieces = pa.Array.from_buffers(
            pa.large_string(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), self.text]
        )
        return pieces.take(pa.array(np.arange(0, len(pieces), 2)))


@dataclass(frozen=True, slots=True, eq=False)
class _Answers:
    """The tokens of every round's answer: ``first`` (n_rows,) to before ``end``, empty ones included."""

    first: Places
    end: Places


def _spelt(rounds: RoundColumns) -> _Spelt:
    tokens = rounds.lists("tokens")
    texts = pc.fill_null(tokens.field("token").cast(pa.large_string()), "")
    _, bounds, text = texts.buffers()
    ends = np.zeros(1, np.int64)
    if len(texts):
        ends = np.frombuffer(bounds, np.int64, len(texts) + 1, 8 * texts.offset)
    return _Spelt(text or pa.py_buffer(b""), ends, ends[tokens.offsets])


def _answers(rounds: RoundColumns) -> _Answers:
    spelt = rounds.once(_spelt)
    begins, stops = spelt.rows[:-1], spelt.rows[1:]
    starts, ends = begins.copy(), begins.copy()
    said = rounds.numbers("answer_starts")

    rows = np.flatnonzero(~np.isnan(said))
    token = rounds.lists("tokens").offsets[rows] + said[rows].astype(np.int64)
    begin = np.minimum(spelt.tokens[np.minimum(token, len(spelt.tokens) - 1)], stops[rows])
    starts[rows], ends[rows] = _behind(spelt, begin, stops[rows])

    rows = np.flatnonzero(np.isnan(said))
    texts = spelt.between(begins[rows], stops[rows])
    label = _numbers(pc.find_substring_regex(texts, LABEL))
    unlabelled = label < 0
    texts, bare, rows = texts.filter(pa.array(unlabelled)), rows[unlabelled], rows[~unlabelled]
    begin = begins[rows] + label[~unlabelled]
    colon = _numbers(pc.find_substring(spelt.between(begin, stops[rows]), ":"))
    starts[rows], ends[rows] = _behind(spelt, begin + colon + 1, stops[rows])

    is_answer = _is_answer(texts, rounds, bare)
    texts, rows = texts.filter(pa.array(is_answer)), bare[is_answer]
    starts[rows] = begins[rows] + _bytes(texts) - _bytes(pc.utf8_ltrim(texts, _AROUND))
    ends[rows] = stops[rows] - (_bytes(texts) - _bytes(pc.utf8_rtrim(texts, _AROUND)))
    first = np.searchsorted(spelt.tokens[1:], starts, "right")
    end = np.searchsorted(spelt.tokens[:-1], ends)
    return _Answers(first, np.where(starts < ends, end, first))


def _behind(spelt: _Spelt, begins: Places, stops: Places) -> tuple[Places, Places]:
    """Where what stands behind these places starts and ends; one on a lower line is read singly."""
    texts = spelt.between(begins, stops)
    newline = _numbers(pc.find_substring(texts, "\n"))
    ends = np.where(newline < 0, stops, begins + newline)
    lines = spelt.between(begins, ends)
    starts = begins + _bytes(lines) - _bytes(pc.utf8_ltrim(lines, _AROUND))
    lower = np.flatnonzero((starts == ends) & (ends < stops))
    ends -= _bytes(lines) - _bytes(pc.utf8_rtrim(lines, _AROUND))
    for row, text in zip(lower.tolist(), texts.take(pa.array(lower)).to_pylist(), strict=True):
        start, end = span_behind(text, 0)
        starts[row] = begins[row] + len(text[:start].encode())
        ends[row] = begins[row] + len(text[:end].encode())
    return starts, ends


def _is_answer(texts: pa.Array, rounds: RoundColumns, rows: Places) -> NDArray[np.bool_]:
    """Whether each text normalises to the answer of its row, and not to nothing."""
    answers = rounds.once(forms)
    spelt = Texts.of(texts).mapped(answer_forms)
    alike = spelt.distinct.cast(answers.distinct.type)
    same = _numbers(pc.fill_null(pc.index_in(alike, answers.distinct), NONE))
    same[_bytes(spelt.distinct) == 0] = NONE
    found = spelt.through(same, NONE)
    return np.asarray((found == answers.codes[rows]) & (found != NONE))


def _bytes(texts: pa.Array) -> Places:
    return _numbers(pc.binary_length(texts))


def _numbers(values: pa.Array) -> Places:
    return np.asarray(values.to_numpy(zero_copy_only=False), np.int64)
