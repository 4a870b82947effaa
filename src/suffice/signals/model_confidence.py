"""What the model says of its own answer: margins and probabilities of its tokens, and its rating."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from suffice.protocols import Absence
from suffice.scoring import answer_form
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec, unrecorded
from suffice.trace.rounds.records import LoopView, Round, Token

BLANKS = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""What ``str.strip`` takes off."""
MARKUP = "*_`"
LABEL = r"(?:Answer|answer is)[*_`]*:"
"""What answers stand behind in a reply, unless the round says where they start."""
_LABEL = re.compile(LABEL)
_BEFORE = re.compile(r"(?:\n[ \t]*(?:[-+>•]|#+)[ \t]|[\s*_`])*+")
_RATING = re.compile(r"Confidence[*_`]*(?::|\Z)")


def labelled_span(text: str) -> tuple[int, int] | None:
    """Where the answer stands behind the first ``Answer:``, as :func:`span_behind`; ``None`` without one."""
    label = _LABEL.search(text)
    return span_behind(text, label.end()) if label else None


def span_behind(text: str, place: int) -> tuple[int, int]:
    """What stands on the first line from ``place`` on that holds more than white space and markup.

    Neither is part of it at its ends: emphasis, backticks, a list's or heading's sign on a line of its
    own. Nothing stands there where that is a lower line, and ``Confidence:`` begins it.
    """
    behind = _BEFORE.match(text, place)
    start = behind.end() if behind else place
    if "\n" in text[place:start] and _RATING.match(text, start):
        return start, start
    return start, start + len(text[start:].partition("\n")[0].rstrip(BLANKS + MARKUP))


def answer_tokens(
    tokens: Sequence[Token], answer: str = "", starts: int | None = None
) -> tuple[Token, ...]:
    """Tokens that carry a character of the answer.

    The answer stands behind the first of these that is known (:func:`span_behind`): the token numbered
    ``starts`` (the round's ``answer_starts``), that one included; ``Answer:``. Without either, tokens that
    normalise to the ``answer`` are the answer, all of them. Tokens are placed by character offset in their
    concatenation, so a token that holds the colon and the answer's beginning counts (the published code
    takes the next one). Empty where nothing follows, or nothing says where the answer is.
    """
    text = "".join(token.token for token in tokens)
    span = _span(text, tokens, answer, starts)
    if span is None:
        return ()
    start, end = span
    of_answer = []
    offset = 0
    for token in tokens:
        begin, offset = offset, offset + len(token.token)
        if begin < end and offset > start and begin < offset:
            of_answer.append(token)
    return tuple(of_answer) if start < end else ()


def _span(
    text: str, tokens: Sequence[Token], answer: str, starts: int | None
) -> tuple[int, int] | None:
    """From the answer's first character to its end; ``None`` where nothing says where it is."""
    if starts is not None:
        return span_behind(text, sum(len(token.token) for token in tokens[:starts]))
    if (labelled := labelled_span(text)) is not None:
        return labelled
    normalized = answer_form(text)
    if normalized and normalized == answer_form(answer):
        around = BLANKS + MARKUP
        return len(text) - len(text.lstrip(around)), len(text.rstrip(around))
    return None


def _of_round(finished: Round) -> tuple[Token, ...]:
    """The tokens of its answer."""
    return answer_tokens(finished.tokens or (), finished.answer_text, finished.answer_starts)


def _is_placed(finished: Round) -> bool:
    """Whether something says where the answer is among the tokens."""
    tokens = finished.tokens or ()
    text = "".join(token.token for token in tokens)
    return _span(text, tokens, finished.answer_text, finished.answer_starts) is not None


def token_margin(token: Token) -> float:
    """logprob(top-1) - logprob(top-2) in nats, >= 0; NaN with fewer than two possible alternatives.

    >>> from suffice.trace.rounds.records import TopToken
    >>> token_margin(Token("Oslo", -0.25, (TopToken("Oslo", -0.25), TopToken("Rome", -1.75))))
    1.5
    """
    ranked = sorted(
        (alternative.logprob for alternative in token.top if alternative.logprob > -math.inf),
        reverse=True,
    )
    return (ranked[0] - ranked[1]) or 0.0 if len(ranked) > 1 else UNDEFINED  # never -0.0


def answer_margins(view: LoopView) -> list[float]:
    """Margins of the current answer's tokens, in order; NaN where a token has none."""
    return [token_margin(token) for token in _of_round(view.current)]


def answer_token_margin(view: LoopView) -> float:
    """Margin of the answer's first token in nats (paper 0), >= 0, high: sure.

    Undefined without tokens, knowledge of where the answer starts among them (:func:`answer_tokens`) or
    two alternatives at that token.
    Spellings of one word are rivals, so it can be small where the answer is certain.
    """
    margins = answer_margins(view)
    return margins[0] if margins else UNDEFINED


_NO_TOKENS = unrecorded(
    "tokens", "its tokens were", "record with a model that gives log-probabilities"
)
_TOP = "record with a server that gives at least two (top_logprobs)"
_NO_MARGIN = (
    _NO_TOKENS,
    Absence(
        "the reply holds no 'Answer:', after which the answer's tokens are looked for, and is not the "
        "answer itself",
        lambda view: not _is_placed(view.current),
        "record with --prompt answer-first or no-confidence, or say where the answer starts: "
        "Round(..., answer_starts=0)",
    ),
    Absence(
        "nothing follows 'Answer:', or from answer_starts on",
        lambda view: not _of_round(view.current),
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
    Absence(
        "fewer than two alternatives of a token were recorded",
        lambda _: True,
        _TOP,
    ),
)


def _p10(margins: Sequence[float]) -> float:
    return float(np.percentile(margins, 10))


def _aggregate(name: str, how: str, statistic: Callable[[Sequence[float]], float]) -> SignalSpec:
    def compute(view: LoopView) -> float:
        margins = [margin for margin in answer_margins(view) if not math.isnan(margin)]
        return statistic(margins) if margins else UNDEFINED

    summary = f"by how much the answer's tokens were likelier than the runner-up, in nats: {how}"
    return _of_tokens(
        name=name,
        summary=summary,
        compute=compute,
        in_columns=InColumns("tokens", "margin", (name.removeprefix("margin_"),)),
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
    name="answer_token_margin",
    summary="by how much the answer's first token was likelier than the runner-up, in nats",
    compute=answer_token_margin,
    in_columns=InColumns("tokens", "answer_token_margin"),
    undefined=_NO_MARGIN,
)
MARGIN_MIN = _aggregate("margin_min", "the least", min)
MARGIN_P10 = _aggregate("margin_p10", "the 10th percentile", _p10)
MARGIN_MEAN = _aggregate("margin_mean", "their mean", statistics.fmean)
MARGIN_MEDIAN = _aggregate("margin_median", "their median", statistics.median)


def token_probability(view: LoopView) -> float:
    """Mean of exp(logprob) over all generated tokens, end token included (paper 2, S1), in [0, 1].

    0 when nothing was generated; undefined when tokens were not recorded.
    """
    tokens = view.current.tokens
    if tokens is None:
        return UNDEFINED
    if not tokens:
        return 0.0
    # A server may report a log-probability a hair above 0.
    capped = np.minimum([token.logprob for token in tokens], 0.0)
    return statistics.fmean(
        np.exp(capped).tolist()
    )  # NumPy's, which may round as math.exp does not


TOKEN_PROBABILITY = _of_tokens(
    name="token_probability",
    summary="mean probability of the tokens that the model wrote",
    high=1.0,
    compute=token_probability,
    in_columns=InColumns("tokens", "token_probability"),
    undefined=(_NO_TOKENS,),
)


def verbalized_confidence(view: LoopView) -> float:
    """The recorded rating, 1 to 5 (paper 0; corrected: undefined when missing or outside 1-5)."""
    rating = view.current.verbalized_confidence
    return rating if rating is not None and 1 <= rating <= 5 else UNDEFINED


VERBALIZED_CONFIDENCE = SignalSpec(
    name="verbalized_confidence",
    summary="how sure the model says it is, 1 to 5",
    needs=("verbalized_confidence",),
    low=1.0,
    high=5.0,
    compute=verbalized_confidence,
    in_columns=InColumns("tokens", "verbalized_confidence"),
    undefined=(
        Absence(
            "the reply holds no rating from 1 to 5",
            lambda _: True,
            "record with --prompt answer-first or confidence-first",
        ),
    ),
    instead="self_consistency (from samples)",
)
