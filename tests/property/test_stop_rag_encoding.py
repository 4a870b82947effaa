"""What the network reads fits its window, and is what a slow, obvious reading gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from suffice.policies.stop_rag.encoding import Piece, Tokenizer
from suffice.policies.stop_rag.states import StateTexts


class Letters:
    """A tokenizer of transformers' kind: one token a letter, [1] a [2] b [2]."""

    all_special_tokens = ("[CLS]", "[SEP]")
    is_fast = True

    def __call__(
        self,
        first: object,
        second: str | None = None,
        *,
        add_special_tokens: bool = True,
        **_: object,
    ) -> dict[str, object]:
        if isinstance(first, list):
            return {
                "input_ids": [[ord(letter) for letter in each] for each in first],
                "offset_mapping": [[(i, i + 1) for i in range(len(each))] for each in first],
            }
        assert isinstance(first, str)
        one = [ord(letter) for letter in first]
        if not add_special_tokens:
            return {"input_ids": one}
        two = [ord(letter) for letter in second or ""]
        ids = [1, *one, 2, *two, 2]
        special = [1, *[0] * len(one), 1, *[0] * len(two), 1]
        types = [0] * (len(one) + 2) + [1] * (len(two) + 1)
        return {"input_ids": ids, "special_tokens_mask": special, "token_type_ids": types}


TEXTS = st.text(alphabet="ab c.", max_size=30)
STATES = st.builds(
    StateTexts,
    question=TEXTS,
    documents=st.lists(st.lists(TEXTS, max_size=3).map(tuple), min_size=1, max_size=4).map(tuple),
)
WINDOWS = st.integers(16, 60)


def question_as_read(question: str, window: int) -> str:
    return question[: window - 3 - window // 4]


def joined_twin(question: str, documents: list[str], window: int) -> tuple[str, bool]:
    """The documents as read, "|" between them, and whether anything was lost."""
    room = window - 3 - len(question_as_read(question, window))
    for first in range(len(documents)):
        text = "|".join(documents[first:])
        if len(text) <= room:
            return text, first > 0
    return (documents[-1][:room], True) if documents else ("", False)


@settings(deadline=None)
@given(STATES, WINDOWS)
def test_joined_texts(states: StateTexts, window: int) -> None:
    tokenizer = Tokenizer(Letters(), window=window, mode="joined")
    encoded = tokenizer.encode([states])
    cut = 0
    for number in range(1, states.n_rounds + 1):
        (place,) = encoded.reads[0][number - 1]
        found = encoded.texts[place]
        assert len(found.ids) <= window
        assert found == tokenizer.joint(states.question, states.seen(number))
        expected, lost = joined_twin(states.question, list(states.seen(number)), window)
        shown = "".join(
            "|" if each == 2 else chr(each) for each in found.ids[slice(*found.document)]
        )
        assert shown == expected
        cut += lost
    assert encoded.truncation.states_cut == cut


@settings(deadline=None)
@given(STATES, WINDOWS)
def test_pairs(states: StateTexts, window: int) -> None:
    tokenizer = Tokenizer(Letters(), window=window, mode="separate")
    encoded = tokenizer.encode([states])
    question = question_as_read(states.question, window)
    room = window - 3 - len(question)
    for number in range(1, states.n_rounds + 1):
        seen = states.seen(number)
        found = [encoded.texts[place] for place in encoded.reads[0][number - 1]]
        assert found == [tokenizer.pair(states.question, each) for each in seen]
        shown = ["".join(map(chr, each.ids[slice(*each.document)])) for each in found]
        assert shown == [each[:room] for each in seen]
        assert encoded.documents[0][number - 1] == len(seen)
        assert all(len(each.ids) == len(each.types) == len(each.words) <= window for each in found)
    cuts = [any(len(text) > room for text in added) for added in states.documents]
    assert encoded.truncation.states_cut == sum(any(cuts[: t + 1]) for t in range(len(cuts)))
    assert encoded.truncation.questions_cut == (question != states.question)


@settings(deadline=None)
@given(TEXTS)
def test_words(text: str) -> None:
    (found,) = Tokenizer(Letters(), window=60, mode="separate").pieces([text])
    assert found.cut(3) == Piece(found.ids[:3], found.words[:3])
    for left in range(len(text)):
        for right in range(left + 1, len(text)):
            same = found.words[left] == found.words[right]
            assert same == text[left : right + 1].isalnum()


def test_the_twin_sees_a_difference() -> None:
    assert joined_twin("q", ["aaaa", "bb", "c"], 16) == ("aaaa|bb|c", False)
    assert joined_twin("q", ["a" * 9, "bb", "c"], 16) == ("bb|c", True)
    assert joined_twin("q", ["a" * 99], 16) == ("a" * 12, True)


def test_nothing_to_read() -> None:
    tokenizer = Tokenizer(Letters(), window=20, mode="joined")
    assert tokenizer.pieces([]) == []
    with pytest.raises(IndexError):
        tokenizer.encode([]).texts[0]
