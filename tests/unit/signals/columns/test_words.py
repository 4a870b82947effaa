"""The words of columns are those of the one tokenizer, whatever the texts hold."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.signals.columns import words
from suffice.signals.columns.words import Words
from suffice.trace.rounds.tokens import tokenize

_PIECES = (
    "A-Team",
    "ΟΔΟΣ",
    "ΑΣ'Σ",
    "Σ",
    "1983–1990",
    "—",
    "İi",
    "é",
    "e\u0301",
    "ﬁ",
    "_",
    "\0",
    "x" * 9,
)
_texts = st.one_of(
    st.lists(st.sampled_from((*_PIECES, " ", ".", "'", "a")), max_size=8).map("".join),
    st.text(max_size=12),
)


def _assert_those_of_tokenize(texts: list[str]) -> None:
    found = Words.of(pa.array(texts, pa.string()))
    expected = [tokenize(text) for text in texts]
    assert found.offsets.tolist()[0] == 0
    assert [*map(len, expected)] == [
        stop - start for start, stop in zip(found.offsets[:-1], found.offsets[1:], strict=True)
    ]
    by_code = dict(zip(found.codes.tolist(), chain.from_iterable(expected), strict=True))
    assert [by_code[code] for code in found.codes.tolist()] == [*chain.from_iterable(expected)]
    assert len({*by_code.values()}) == len(by_code)
    assert all(0 <= code < found.n_distinct for code in by_code)


@given(st.lists(_texts, max_size=6))
@settings(max_examples=examples(60), deadline=None)
def test_hostile_texts(texts: list[str]) -> None:
    _assert_those_of_tokenize(texts)


@pytest.mark.parametrize("size", [1, 7, 40])
def test_texts_in_several_slices(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suffice.signals.columns.texts._SLICE", size)
    _assert_those_of_tokenize(["The ΟΔΟΣ", "", "the end – a b", "a", "x" * 50, "", "END é–é"])


def test_only_runs_that_are_not_ascii_go_through_python(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def tokenized(text: str) -> list[str]:
        asked.append(text)
        return tokenize(text)

    monkeypatch.setattr(words, "tokenize", tokenized)
    _assert_those_of_tokenize(["Émile is 5", "is Émile", "Émile Σ"])
    assert sorted(asked) == ["Émile", "Émile Σ", "émile", "σ"]
