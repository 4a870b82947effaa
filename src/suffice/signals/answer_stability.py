"""Answer stability: the model repeats its previous round's answer, exactly or nearly."""

from __future__ import annotations

import difflib
import re
import string

from suffice.protocols import Absence
from suffice.scoring import answer_form, token_f1
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec
from suffice.trace.rounds.records import LoopView, Round

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETE_PUNCTUATION = str.maketrans("", "", string.punctuation)
MAX_COMPARED = 2_000
"""Letters of an answer that are compared letter by letter."""
_SHORT = 40 * 40


def added_nothing(current: Round, earlier: tuple[Round, ...]) -> bool:
    """Whether passages were recorded and none of them is new by id."""
    if current.passages is None:
        return False
    seen = {passage.id for round_ in earlier for passage in round_.passages or ()}
    return all(passage.id in seen for passage in current.passages)


def _pair(view: LoopView) -> tuple[str, str] | None:
    """Previous and current answer; ``None`` where ``answer_stable`` is undefined."""
    previous = _previous_answer(view)
    if previous is None or added_nothing(view.current, view.rounds[:-1]):
        return None
    return previous, view.current.answer_text


def _previous_answer(view: LoopView) -> str | None:
    """Of the round before; ``None`` where there is none, or it was not asked for an answer."""
    return None if view.previous is None else view.previous.answer


def answer_stable(view: LoopView) -> float:
    """1.0 when the normalised answer equals the previous round's, else 0.0 (paper 0, Eq. 1; corrected).

    Undefined in round 1 and in a round that added no new passage, where a repeated prompt repeats the
    answer trivially. Two answers that normalise to nothing are equal; ``abstained`` tells them apart.
    """
    pair = _pair(view)
    return UNDEFINED if pair is None else float(len(set(map(answer_form, pair))) == 1)


_NO_EARLIER = Absence(
    "there is no earlier answer to repeat",
    lambda view: _previous_answer(view) is None,
    "record with --rounds 2 or more",
)
_NOTHING_NEW = Absence(
    "the round added no new passage, so its answer repeats by itself",
    lambda view: added_nothing(view.current, view.rounds[:-1]),
    "record with --corpus pooled, or read answer_repeats, which is defined there",
)


def answer_repeats(view: LoopView) -> float:
    """1.0 when the normalised answer equals the previous round's, whatever the round read, else 0.0.

    Where ``answer_stable`` is defined the two are equal. Undefined in round 1.
    """
    previous = _previous_answer(view)
    if previous is None:
        return UNDEFINED
    return float(answer_form(previous) == answer_form(view.current.answer_text))


def published_normalizer(text: str) -> str:
    """The published code's normaliser: articles go before punctuation, so "A-ha" becomes "ha"."""
    text = _ARTICLES.sub(" ", text.lower())
    return " ".join(text.translate(_DELETE_PUNCTUATION).split())


def answer_stable_published(view: LoopView) -> float:
    """Stability as the published code computes it (paper 0; published).

    Its own normaliser drops articles before punctuation. Undefined in round 1 only.
    """
    previous = _previous_answer(view)
    if previous is None:
        return UNDEFINED
    current = published_normalizer(view.current.answer_text)
    return float(current == published_normalizer(previous))


ANSWER_STABLE = SignalSpec(
    name="answer_stable",
    summary="1 when the answer is that of the round before",
    low=0.0,
    high=1.0,
    compute=answer_stable,
    in_columns=InColumns("answers", "stable"),
    undefined=(_NO_EARLIER, _NOTHING_NEW),
    binary=True,
)
ANSWER_REPEATS = SignalSpec(
    name="answer_repeats",
    summary="1 when the answer is that of the round before, also where nothing new was found",
    low=0.0,
    high=1.0,
    compute=answer_repeats,
    in_columns=InColumns("answers", "repeats"),
    undefined=(_NO_EARLIER,),
    binary=True,
    variant_of="answer_stable",
)
ANSWER_STABLE_PUBLISHED = SignalSpec(
    name="answer_stable_published",
    summary="1 when the answer is that of the round before, compared as the published code does",
    low=0.0,
    high=1.0,
    compute=answer_stable_published,
    in_columns=InColumns("answers", "stable_published"),
    undefined=(_NO_EARLIER,),
    binary=True,
    variant_of="answer_stable",
)


def answer_similarity_f1(view: LoopView) -> float:
    """Plain token F1 of the normalised answers of this round and the previous one, in [0, 1].

    0 when either is empty, two empty ones included (paper 0); undefined where ``answer_stable`` is.
    """
    pair = _pair(view)
    return UNDEFINED if pair is None else token_f1(answer_form(pair[1]), answer_form(pair[0]))


def answer_similarity_seq(view: LoopView) -> float:
    """Ratio of matching characters (difflib's) of the normalised answers, previous first, in [0, 1].

    0 when either is empty, two empty ones included (paper 0); undefined where ``answer_stable`` is.
    """
    pair = _pair(view)
    if pair is None:
        return UNDEFINED
    previous, current = map(answer_form, pair)
    return matching_characters(previous, current) if previous and current else 0.0


def matching_characters(one: str, other: str) -> float:
    """Their ratio as ``difflib`` defines it, to which their order matters, in [0, 1].

    Of either text the first 2,000 letters are read. ``difflib`` itself takes the cube of the length in
    time and is asked about short ones alone; others take at most its power of 1.5, up to a logarithm.
    """
    one, other = one[:MAX_COMPARED], other[:MAX_COMPARED]
    if len(one) * len(other) <= _SHORT:
        return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    return 2.0 * _matching(one, other) / (len(one) + len(other))


def _matching(one: str, other: str) -> int:
    """Letters in common: those of the longest common run, and of what stands left and right of it.

    Of equally long runs the first in ``one`` is taken, there the first in ``other``. What is right of
    it may hold another one as long; what is left of it holds shorter ones only, so that a piece is
    looked at once for each different length.
    """
    matched = 0
    pieces = [(one, other, MAX_COMPARED)]
    while pieces:
        one, other, most = pieces.pop()
        length = _longest_run(one, other, most)
        if not length:
            continue
        runs = _runs(other, length)
        at = after_one = after_other = 0
        while at + length <= len(one):
            run = one[at : at + length]
            place = other.find(run, after_other) if run in runs else -1
            if place < 0:
                at += 1
                continue
            matched += length
            pieces.append((one[after_one:at], other[after_other:place], length - 1))
            at = after_one = at + length
            after_other = place + length
        pieces.append((one[after_one:], other[after_other:], length - 1))
    return matched


def _longest_run(one: str, other: str, most: int) -> int:
    """The length of their longest common run, known to be at most ``most``; by halving."""
    low, high = 0, min(most, len(one), len(other))
    while low < high:
        length = (low + high + 1) // 2
        if _runs(one, length).isdisjoint(_runs(other, length)):
            high = length - 1
        else:
            low = length
    return low


def _runs(text: str, length: int) -> set[str]:
    return {text[at : at + length] for at in range(len(text) - length + 1)}


ANSWER_SIMILARITY_F1 = SignalSpec(
    name="answer_similarity_f1",
    summary="how alike the answer and the round before's are, word by word",
    low=0.0,
    high=1.0,
    compute=answer_similarity_f1,
    in_columns=InColumns("answers", "similarity_f1"),
    undefined=(_NO_EARLIER, _NOTHING_NEW),
)
ANSWER_SIMILARITY_SEQ = SignalSpec(
    name="answer_similarity_seq",
    summary="how alike the answer and the round before's are, letter by letter",
    low=0.0,
    high=1.0,
    compute=answer_similarity_seq,
    in_columns=InColumns("answers", "similarity_seq"),
    undefined=(_NO_EARLIER, _NOTHING_NEW),
)
