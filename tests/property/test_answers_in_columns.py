"""Forms and scores of answers by columns equal those of one answer, bit for bit, on hostile texts."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.columns.answers import answer_forms, normal_forms
from suffice.scoring import answer_form, normalize_answer
from suffice.signals.answer_stability import published_normalizer
from suffice.signals.by_columns.answers import as_published

# what normalising takes away, what ends a word for Arrow and not for Python, and the other way round
_PIECES = (
    *("a", "an", "the", "A", "The", "AN", "yes", "no", "noanswer", "oslo", "Oslo", "9"),
    *(" ", "  ", "\t", "\n", "\v", "\x1c", "\x1f", "\0", "\x08", "\x1b", "\x7f"),
    *("_", "-", "'", ".", "\\", "`", "{", "^", "]", "/", " the ", " a "),
    *("é", "İ", "ß", "K", "\x85", "\xa0", "\u3000", "\u0301", "—", "“"),
)
texts = st.one_of(
    st.lists(st.sampled_from(_PIECES), max_size=9).map("".join),
    st.text(st.characters(codec="utf-8"), max_size=9),
)


@pytest.mark.parametrize(
    ("forms", "form"),
    [
        (normal_forms, normalize_answer),
        (answer_forms, answer_form),
        (as_published, published_normalizer),
    ],
)
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
@given(column=st.lists(texts, max_size=40))
@settings(max_examples=examples(60), deadline=None)
def test_forms_are_those_of_one_text(forms, form, kind, column) -> None:  # type: ignore[no-untyped-def]
    found = forms(pa.array(column, kind))
    assert found.type == kind
    assert found.to_pylist() == [form(text) for text in column]
