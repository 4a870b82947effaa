"""Candidate next steps: the tokens they share (paper 4, SC) and markers of conflict with the plan (CD)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.columns.texts import NONE
from suffice.signals.samples import NO_SAMPLES, sample_signal
from suffice.signals.spec import share

Array = NDArray[np.float64]


def token_set(text: str) -> frozenset[str]:
    """The upper-case tokens between white space; punctuation stays with its word (paper 4; published).

    >>> sorted(token_set("Enable TLS, then enable tls"))
    ['ENABLE', 'THEN', 'TLS', 'TLS,']
    """
    return frozenset(text.upper().split())


def agreement(candidates: Sequence[str]) -> float:
    """Tokens all candidates share over tokens any has, in [0, 1] (paper 4, Eq. 13); high: they agree.

    An empty union counts as 0, since failed generations are no agreement (corrected: the paper leaves
    it open). So one candidate gives 1 if it has a token, and an empty sequence gives 0.

    >>> agreement(["Enable TLS", "enable TLS now"])
    0.6666666666666666
    >>> agreement(["", ""]), agreement([]), agreement(["Enable TLS"])
    (0.0, 0.0, 1.0)
    """
    sets = [token_set(text) for text in candidates]
    union = frozenset[str]().union(*sets)
    return len(sets[0].intersection(*sets)) / len(union) if union else 0.0


def candidate_agreement(rounds: RoundColumns) -> Array:
    """:func:`agreement` of the round's samples; undefined in a round without samples."""
    samples = rounds.lists("samples")
    texts = [text or "" for text in samples.values.to_pylist()]
    bounds = pairwise(samples.offsets.tolist())
    return np.array([agreement(texts[i:j]) if j > i else np.nan for i, j in bounds], np.float64)


CANDIDATE_AGREEMENT = sample_signal(
    name="candidate_agreement",
    summary="words that the candidate steps, or the samples, have in common",
    columns=candidate_agreement,
    undefined=(NO_SAMPLES,),
)


MARKER_WORDS = frozenset(
    {
        *("not", "cannot", "cant", "dont", "never", "neither", "nor"),
        *("incompatible", "contradict", "contradicts", "contradicting", "contradictory"),
    }
)
"""Words that mark a negation or conflict, case-folded; so does every word that ends in "n't".

The paper names NOT, DO NOT, CANNOT and INCOMPATIBLE. "no" and "without" are left out: in a plan they
mostly say how a step is done ("without downtime"), not that it must not be.
"""
MARKER_PHRASES = ("conflicts with", "conflict with", "conflicting with", "mutually exclusive")
"""Runs of words that mark a conflict; "conflict" alone does not ("resolve the conflict")."""

_COMMON = (
    "a about after all also an and any are as at be been before being both but by can could did do "
    "does doing done each every for from further had has have he her his how i if in into is it its "
    "just may me might more most must my of off on only or our out over own same shall she should so "
    "some step such than that the their them then there these they this those through to too under "
    "until up use using via was we were what when where which while who will with would you your"
)
_STOP_WORDS = frozenset(_COMMON.split())
_WORD = re.compile(r"\w+(?:['’]\w+)*")
_PHRASES = re.compile("|".join(rf"\b{phrase}\b".replace(" ", r"\s+") for phrase in MARKER_PHRASES))
_NEGATED = ("n't", "n’t")
_IN_PHRASES = frozenset(" ".join(MARKER_PHRASES).split())


def _words(text: str) -> tuple[frozenset[str], bool]:
    """The words, case-folded, and whether the text carries a marker."""
    folded = text.casefold()
    words = frozenset(_WORD.findall(folded))
    marked = (
        not MARKER_WORDS.isdisjoint(words)
        or _contracted(folded, words)
        or (not _IN_PHRASES.isdisjoint(words) and _PHRASES.search(folded) is not None)
    )
    return words, marked


def _contracted(folded: str, words: frozenset[str]) -> bool:
    """Whether a word ends in "n't"."""
    if not any(ending in folded for ending in _NEGATED):
        return False  # the usual case, at a fraction of the time
    return any(word.endswith(_NEGATED) for word in words)


def _content(words: frozenset[str]) -> frozenset[str]:
    return frozenset(
        word
        for word in words - _STOP_WORDS - MARKER_WORDS - _IN_PHRASES
        if not word.endswith(_NEGATED)
    )


def marker_conflict(step: str, candidate: str) -> float:
    """1.0 when exactly one of the two carries a marker and both share a content word, else 0.0.

    This is h of paper 4, Eq. 14. The paper says which markers flag a conflict and not how the two
    texts are compared; asking for exactly one marked text and a shared word is this library's
    reading. A content word is a run of letters, digits and underscores, case-folded, that is neither
    a stop word nor a marker; a name such as ``do_not_log_004`` is one word and no marker. The order
    of the two texts makes no difference.

    >>> marker_conflict("Allow public access.", "Do NOT allow access from outside")
    1.0
    >>> marker_conflict("Allow public access.", "Block public access")
    0.0
    """
    return _conflict(_words(step), _words(candidate))


def _conflict(first: tuple[frozenset[str], bool], second: tuple[frozenset[str], bool]) -> float:
    if first[1] == second[1]:
        return 0.0
    return float(bool(_content(first[0] & second[0])))


class MarkerDetector:
    """:func:`marker_conflict` as a :class:`suffice.contracts.ContradictionDetector`; needs no model.

    Safe to call from several threads.
    """

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """1.0 or 0.0 for every (plan step, candidate), (len(pairs),)."""
        texts = {text for pair in pairs for text in pair}
        words = {
            text: _words(text) for text in texts
        }  # a step stands in a pair with each candidate
        return np.array([_conflict(words[step], words[other]) for step, other in pairs], np.float64)


def contradiction(rounds: RoundColumns) -> Array:
    """:func:`marker_conflict` of the previous round's answer and this one's, 0.0 or 1.0.

    0.0 in round 1, which has nothing to contradict. Undefined where this answer or the previous one is
    empty. A planning agent records the CD of its gate under the same name.
    """
    answers = rounds.texts("answer")
    texts = answers.distinct.to_pylist()
    blank = answers.through(np.array([not text.strip() for text in texts], bool), True)
    previous, unsaid = rounds.before(answers.codes, NONE), rounds.before(blank, False)
    conflicts = np.where(blank | unsaid, np.nan, 0.0)
    rows = np.flatnonzero(~rounds.first & ~blank & ~unsaid & (previous != answers.codes))
    pair, places = by_appearance(previous[rows] * len(texts) + answers.codes[rows])
    pairs = zip(previous[rows[places]].tolist(), answers.codes[rows[places]].tolist(), strict=True)
    said = [(texts[step], texts[other]) for step, other in pairs]
    conflicts[rows] = MarkerDetector().contradictions(said)[pair]
    return conflicts


CONTRADICTION = share(
    name="contradiction",
    summary="1 when a candidate step contradicts the plan, or the answer the one before",
    columns=contradiction,
    undefined=(Absence("the answer or the previous one is empty", lambda _: True),),
)
