"""The forms of :mod:`suffice.scoring` by which answers are compared, of columns of texts."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from suffice.columns.texts import by_ascii
from suffice.scoring import answer_form, normalize_answer

_BLANKS = "\t\n\v\f\r\x1c\x1d\x1e\x1f "
"""What ``str.split`` takes for blank among ASCII."""


def normal_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.normalize_answer` of every text, for :meth:`Texts.mapped`.

    >>> normal_forms(pa.array(["The  A-ha, a.m.", "?"])).to_pylist()
    ['aha am', '']
    """
    return by_ascii(_normal_forms, normalize_answer.__wrapped__)(texts)


def answer_forms(texts: pa.Array) -> pa.Array:
    """:func:`suffice.scoring.answer_form` of every text, for :meth:`Texts.mapped`.

    >>> answer_forms(pa.array(["The Tempest.", "(A)", "the"])).to_pylist()
    ['tempest', 'a', '']
    """
    return by_ascii(_answer_forms, answer_form.__wrapped__)(texts)


def without_articles(texts: pa.Array) -> pa.Array:
    """A blank in place of a, an and the, of ASCII texts in lower case."""
    return pc.replace_substring_regex(texts, r"\b(?:a|an|the)\b", " ")


def without_punctuation(texts: pa.Array) -> pa.Array:
    """Texts less ``string.punctuation``."""
    return pc.replace_substring_regex(texts, r"[!-/:-@\[-`{-~]", "")


def squeezed(texts: pa.Array) -> pa.Array:
    """ASCII texts as ``" ".join(text.split())`` gives them."""
    # single blanks, which are most, are left alone
    single = pc.replace_substring_regex(
        texts, r"[\x09-\x0d\x1c-\x20]{2,}|[\x09-\x0d\x1c-\x1f]", " "
    )
    return pc.ascii_trim(single, " ")


def _normal_forms(texts: pa.Array) -> pa.Array:
    return squeezed(without_articles(without_punctuation(pc.ascii_lower(texts))))


def _answer_forms(texts: pa.Array) -> pa.Array:
    words = without_punctuation(pc.ascii_lower(texts))
    forms = squeezed(without_articles(words))
    letter = pc.and_(pc.equal(forms, ""), pc.equal(pc.ascii_trim(words, _BLANKS), "a"))
    return pc.if_else(letter, "a", forms)
