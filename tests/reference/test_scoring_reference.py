"""Scores against a slow twin written from the definitions of the official SQuAD and HotpotQA scripts.

Normalise: lower-case; delete every character of ``string.punctuation``; blank out the words a, an, the;
squeeze white space. EM: equal strings. F1: harmonic mean of the shares of shared tokens, counted with
multiplicity, 0 when none is shared; HotpotQA gives 0 where the two differ and one is yes, no or noanswer.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.scoring import F1Kind, accuracy, exact_match, f1_score, normalize_answer

PUNCTUATION = set(range(33, 48)) | set(range(58, 65)) | set(range(91, 97)) | set(range(123, 127))


def slow_normalize(text: str) -> str:
    """Character by character; a word is a run of letters and digits, as regular expressions see it."""
    kept = [char for char in text.lower() if ord(char) not in PUNCTUATION]
    runs = ("".join(run) for _, run in groupby(kept, key=str.isalnum))
    return " ".join("".join(" " if run in ("a", "an", "the") else run for run in runs).split())


def slow_f1(prediction: str, gold: str, kind: F1Kind) -> Fraction:
    one, two = slow_normalize(prediction), slow_normalize(gold)
    special = ("yes", "no", "noanswer")
    if kind == "hotpotqa" and one != two and (one in special or two in special):
        return Fraction(0)
    left, shared = two.split(), 0
    for word in one.split():
        if word in left:
            left.remove(word)
            shared += 1
    # 2PR / (P + R) with P = s/n, R = s/m is 2s / (n + m).
    return Fraction(2 * shared, len(one.split()) + len(two.split())) if shared else Fraction(0)


words = st.sampled_from(
    [
        *("a", "The", "an", "Oslo", "oslo.", "yes", "No"),
        *("noanswer", "A-ha", "know", "é", "–", "“the”", "_"),
    ]
)
answers = st.lists(words, max_size=6).map(" ".join) | st.text(max_size=12)
kinds: st.SearchStrategy[F1Kind] = st.sampled_from(["hotpotqa", "squad"])


@given(st.text() | answers)
def test_normalisation(text: str) -> None:
    assert normalize_answer(text) == slow_normalize(text)


@given(answers, st.lists(answers, max_size=4), kinds)
def test_f1(prediction: str, gold: list[str], kind: F1Kind) -> None:
    slow = max((slow_f1(prediction, each, kind) for each in gold), default=Fraction(0))
    assert f1_score(prediction, gold, kind) == pytest.approx(float(slow), abs=1e-15)


@given(answers, st.lists(answers, max_size=4))
def test_exact_match_and_accuracy(prediction: str, gold: list[str]) -> None:
    predicted = slow_normalize(prediction)
    accepted = [slow_normalize(each) for each in gold]
    assert exact_match(prediction, gold) == float(predicted in accepted)
    held = [each for each in accepted if each and predicted.find(each) >= 0]
    assert accuracy(prediction, gold) == float(bool(held))
