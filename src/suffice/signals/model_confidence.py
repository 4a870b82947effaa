"""The model's confidence in its answer: token margins, token probabilities and its own rating."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.reasoning import said_span, thinks
from suffice.scoring import answer_form
from suffice.signals.answer_stability import forms
from suffice.signals.columns.arrays import NONE, Ragged, by_length, ranges, segment_means
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.known_signals import SignalSpec, WithSettings, unrecorded
from suffice.stats.units import Array
from suffice.trace.rounds.records import Round

Places = NDArray[np.int64]

BLANKS = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What ``str.strip`` takes off."""
MARKUP = "*_`"
LABEL = r"(?:Answer|answer is)[*_`]*:"
"""What answers stand behind in a reply, unless the round says where they start."""
_LABEL = re.compile(LABEL)
_OTHER_LABEL = re.compile(r"\b(?:Answer|answer is)[*_`]*[ \t]*[:：]", re.IGNORECASE)
_CERTAIN_LABEL = re.compile(rf"^[ \t*_`>•#+-]*{LABEL}", re.MULTILINE)
_BEFORE = re.compile(r"(?:\n[ \t]*(?:[-+>•]|#+)[ \t]|[\s*_`])*+")
_RATING = re.compile(r"Confidence[*_`]*(?::|\Z)")
PARTING = ",;|/([–—-"
"""What may stand between an answer and its rating on the same line, beside blanks and markup."""
_RATING_BEHIND = re.compile(
    rf"(?<![\s{MARKUP}{re.escape(PARTING)}])(?:(?<=[^\W\d_]{{3}})\.)?[\s{MARKUP}{re.escape(PARTING)}]++"
    r"Confidence[*_`]*[ \t]*[:：][\s*_`]*(?=\d|\Z)",
    re.IGNORECASE,
)


def labelled_span(text: str, *, certain: bool = False) -> tuple[int, int] | None:
    """Return where the answer stands behind the first ``Answer:``; ``None`` without that label.

    It is looked for behind the reply's reasoning. ``certain``: only what no later text can change.
    """
    start, stop = said_span(text)
    labels = (_CERTAIN_LABEL,) if certain else (_LABEL, _OTHER_LABEL)
    label = next(filter(None, (label.search(text, start, stop) for label in labels)), None)
    if label is None or (
        certain
        and (_LABEL.search(text, start, label.end() - 1) or thinks(text, start, label.start()))
    ):
        return None
    begins, ends = span_behind(text, label.end())
    return min(begins, stop), min(ends, stop)


def span_behind(text: str, place: int) -> tuple[int, int]:
    """Return the first line from ``place`` on with more than white space and markup, as a span."""
    behind = _BEFORE.match(text, place)
    start = behind.end() if behind else place
    if "\n" in text[place:start] and _RATING.match(text, start):
        return start, start
    line = text[start:].partition("\n")[0]
    if rating := _RATING_BEHIND.search(line):
        line = line[: rating.start()]
    return start, start + len(line.rstrip(BLANKS + MARKUP))


def answer_span(text: str, place: int | None, form: str) -> tuple[int, int] | None:
    """Return the answer's span: behind ``place`` or its label, or the whole reply if that is the answer."""
    if place is not None:
        return span_behind(text, place)
    if (labelled := labelled_span(text)) is not None:
        return labelled
    begins, ends = said_span(text)
    said = text[begins:ends]
    if not form or form != answer_form(said):
        return None
    start = ends - len(said.lstrip(BLANKS + MARKUP))
    return start, max(start, begins + len(said.rstrip(BLANKS + MARKUP)))


def verbalized_confidence(rounds: RoundColumns) -> Array:
    """Return the model's own rating, 1 to 5; high: sure; NaN if missing or outside (paper 0; corrected)."""
    rating = rounds.numbers("verbalized_confidence")
    return np.where((rating >= 1) & (rating <= 5), rating, np.nan)


def token_probability(rounds: RoundColumns) -> Array:
    """Return the mean probability of all generated tokens, in [0, 1]; high: sure (paper 2, S1)."""
    tokens = rounds.lists("tokens")
    means = segment_means(np.exp(np.minimum(tokens.numbers("logprob"), 0.0)), tokens.offsets)
    means[tokens.lengths == 0] = 0.0
    return np.where(tokens.valid, means, np.nan)


def answer_likelihood(rounds: RoundColumns) -> Array:
    """Exp of the mean logprob of all generated tokens, in (0, 1]: their geometric mean (ACS, draft_conf)."""
    tokens = rounds.lists("tokens")
    means = segment_means(np.minimum(tokens.numbers("logprob"), 0.0), tokens.offsets)
    return np.where(tokens.valid & (tokens.lengths > 0), np.exp(means), np.nan)


def answer_token_margin(rounds: RoundColumns) -> Array:
    """Return the log-probability gap of the answer's first token, in nats, >= 0; high: sure (paper 0).

    The gap is logprob(top-1) - logprob(top-2); NaN with fewer than two alternatives or without a located
    answer.
    """
    first, end = rounds.once(_answers)
    margins = rounds.undefined()
    rows = np.flatnonzero(first < end)
    margins[rows] = _margins(rounds.once(_tops), first[rows])
    return margins


def margin(rounds: RoundColumns, statistic: str) -> Array:
    """Return a statistic of the margins of the answer's tokens, such as ``margin_min``, in nats."""
    values, offsets = rounds.once(_answer_margins)
    if statistic == "mean":
        return segment_means(values, offsets)
    return by_length(values, offsets[:-1], offsets[1:], _STATISTICS[statistic])


def _answer_margins(rounds: RoundColumns) -> tuple[Array, Places]:
    """Return the margins of all answer tokens, and where those of each row begin, (n_rows + 1,)."""
    (first, end), spelt = rounds.once(_answers), rounds.once(_spelt)
    at = ranges(first, end)
    rows = np.repeat(np.arange(rounds.n_rows), end - first)
    margins = _margins(rounds.once(_tops), at)
    there = ~np.isnan(margins) & (spelt.tokens[at] < spelt.tokens[at + 1])
    held = np.bincount(rows[there], minlength=rounds.n_rows)
    return margins[there], np.concatenate([[0], np.cumsum(held)])


def _tops(rounds: RoundColumns) -> Ragged:
    return rounds.lists("tokens").lists("top", "logprob")


def _margins(tops: Ragged, tokens: Places) -> Array:
    """Return best minus second alternative of these tokens; NaN with fewer than two."""
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


@dataclass(frozen=True, slots=True, eq=False)
class _Spelt:
    """Hold the text of all tokens, end to end, in bytes of UTF-8."""

    text: pa.Buffer
    tokens: Places
    rows: Places

    def between(self, begins: Places, ends: Places) -> pa.Array:
        bounds = np.stack([begins, ends], axis=1).ravel()
        pieces = pa.Array.from_buffers(
            pa.large_string(), max(len(bounds) - 1, 0), [None, pa.py_buffer(bounds), self.text]
        )
        return pieces.take(pa.array(np.arange(0, len(pieces), 2)))


def _spelt(rounds: RoundColumns) -> _Spelt:
    tokens = rounds.lists("tokens")
    texts = pc.fill_null(tokens.field("token").cast(pa.large_string()), "")
    _, bounds, text = texts.buffers()
    ends = np.zeros(1, np.int64)
    if len(texts):
        ends = np.frombuffer(bounds, np.int64, len(texts) + 1, 8 * texts.offset)
    return _Spelt(text or pa.py_buffer(b""), ends, ends[tokens.offsets])


def _answers(rounds: RoundColumns) -> tuple[Places, Places]:
    """Return the first token of every round's answer and the one behind its last, (n_rows,) each."""
    spelt, answers = rounds.once(_spelt), rounds.once(forms)
    begins, stops = spelt.rows[:-1], spelt.rows[1:]
    starts, ends = begins.copy(), begins.copy()
    # the byte at which the answer is said to start
    said = rounds.numbers("answer_starts")
    token = rounds.lists("tokens").offsets[:-1] + np.nan_to_num(said).astype(np.int64)
    places = (spelt.tokens[np.minimum(token, len(spelt.tokens) - 1)] - begins).tolist()
    told = (~np.isnan(said)).tolist()
    known, codes = answers.distinct.to_pylist(), answers.codes.tolist()
    for row, text in enumerate(spelt.between(begins, stops).to_pylist()):
        place = len(text.encode()[: places[row]].decode()) if told[row] else None
        form = known[codes[row]] if codes[row] != NONE else ""
        span = answer_span(text, place, form)
        if span is not None:
            starts[row] += len(text[: span[0]].encode())
            ends[row] += len(text[: span[1]].encode())
    first = np.searchsorted(spelt.tokens[1:], starts, "right")
    end = np.searchsorted(spelt.tokens[:-1], ends)
    return first, np.where(starts < ends, end, first)


def _span(held: Round) -> tuple[int, int] | None:
    """Return the span of the answer in the tokens' text; ``None`` if nothing locates it."""
    tokens, starts = held.tokens or (), held.answer_starts
    text = "".join(token.token for token in tokens)
    place = None if starts is None else sum(len(token.token) for token in tokens[:starts])
    return answer_span(text, place, answer_form(held.answer_text))


_NO_TOKENS = unrecorded(
    "tokens", "its tokens were", "record with a model that gives log-probabilities"
)
_TOP = "record with a server that gives at least two (top_logprobs)"
_NO_MARGIN = (
    _NO_TOKENS,
    Absence(
        "the reply holds no 'Answer:', after which the answer's tokens are looked for, and is not the "
        "answer itself",
        lambda view: _span(view.current) is None,
        "record with --prompt answer-first or no-confidence, or say where the answer starts: "
        "Round(..., answer_starts=0)",
    ),
    Absence(
        "nothing follows 'Answer:', or from answer_starts on",
        lambda view: operator.ge(*(_span(view.current) or (0, 0))),
    ),
    Absence(
        "no token was recorded with two alternatives",
        lambda view: (
            bool(view.current.tokens)
            and all(len(token.top) < 2 for token in view.current.tokens or ())
        ),
        _TOP,
        input="tokens=[suffice.Token(text, logprob, top=[suffice.TopToken(...), ...]), ...]",
    ),
    Absence("fewer than two alternatives of a token were recorded", lambda _: True, _TOP),
)


def _aggregate(name: str, how: str) -> SignalSpec:
    return _of_tokens(
        name=name,
        summary=f"log-probability of the answer's tokens minus the runner-up's, in nats: {how}",
        columns=WithSettings(margin, (name.removeprefix("margin_"),)),
        undefined=_NO_MARGIN,
    )


_of_tokens = partial(
    SignalSpec,
    needs=("tokens",),
    reads=("answer_starts",),
    low=0.0,
    instead="self_consistency (from samples)",
)
ANSWER_TOKEN_MARGIN = _of_tokens(
    summary="log-probability of the answer's first token minus the runner-up's, in nats",
    columns=answer_token_margin,
    undefined=_NO_MARGIN,
)
MARGIN_MIN = _aggregate("margin_min", "the least")
MARGIN_P10 = _aggregate("margin_p10", "the 10th percentile")
MARGIN_MEAN = _aggregate("margin_mean", "their mean")
MARGIN_MEDIAN = _aggregate("margin_median", "their median")
TOKEN_PROBABILITY = _of_tokens(
    summary="mean probability of the generated tokens",
    high=1.0,
    columns=token_probability,
    undefined=(_NO_TOKENS,),
)
ANSWER_LIKELIHOOD = _of_tokens(
    summary="geometric mean of the generated tokens' probabilities",
    high=1.0,
    columns=answer_likelihood,
    undefined=(_NO_TOKENS, Absence("nothing was generated", lambda _: True)),
)
VERBALIZED_CONFIDENCE = SignalSpec(
    summary="the model's own rating of its answer, 1 to 5",
    needs=("verbalized_confidence",),
    low=1.0,
    high=5.0,
    columns=verbalized_confidence,
    undefined=(
        Absence(
            "the reply holds no rating from 1 to 5",
            lambda _: True,
            "record with --prompt answer-first or confidence-first",
        ),
    ),
    instead="self_consistency (from samples)",
)
