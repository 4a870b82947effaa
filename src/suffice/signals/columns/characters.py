"""Normal forms and words of many texts at once, by Arrow's kernels.

Python looks at texts with letters beyond Europe's or blanks that are not ASCII, which may be told otherwise
there, and at those in which an article stands beside what Arrow takes for no letter.
"""

from __future__ import annotations

import string
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.signals.columns.texts import by_text
from suffice.trace.rounds.tokens import tokenize

_PUNCTUATION = string.punctuation.encode()
_ARTICLES = pa.array(["", "a", "an", "the"])
_ARTICLE = r"\b(?:a|an|the)\b"
_EUROPEAN = (
    r"^[\x00-\x1b -\x{84}\x{86}-\x{9f}\x{a1}-\x{12f}\x{131}-\x{24f}"
    r"\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{206f}]*$"
)
_BESIDE = r"[^\t\n -~](?:a|an|the)|(?:a|an|the)[^\t\n -~]"
_SEPARATORS = r"[^\pL\pN_ ]+"
_FEW = 16  # texts, as of a loop under way, that are sooner formed one by one


def without_articles(
    texts: pa.Array, one: Callable[[str], str], *, articles_first: bool = False
) -> pa.Array:
    """Texts in lower case without punctuation and articles; ``one`` gives the same of a single text."""
    if len(texts) <= _FEW:
        return by_text(one)(texts).cast(texts.type)
    lower = pc.utf8_lower(texts)
    bare = _without_punctuation(lower)
    beside = pc.match_substring_regex(lower if articles_first else bare, _BESIDE)
    alike = pc.and_not(pc.match_substring_regex(texts, _EUROPEAN), beside)
    if articles_first:
        lower = pc.replace_substring_regex(lower, _ARTICLE, " ")
        bare = _without_punctuation(lower)
    words = pc.ascii_split_whitespace(bare)
    gone = _ARTICLES.slice(0, 1) if articles_first else _ARTICLES
    kept = pc.invert(pc.is_in(words.flatten(), value_set=gone.cast(texts.type)))
    before = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    lists = pa.ListArray.from_arrays(
        pa.array(before[words.offsets.to_numpy()], pa.int32()), words.flatten().filter(kept)
    )
    formed = pc.binary_join(lists, " ").cast(texts.type)
    return _instead(formed, pc.invert(alike), texts, one)


def _without_punctuation(texts: pa.Array) -> pa.Array:
    """Texts less ASCII's punctuation, each with a blank behind it."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.cast("binary"))
    joined = b"%b\xff" % pc.binary_join(whole, b"\xff")[0].as_buffer()
    text = np.frombuffer(bytearray(joined.translate(None, _PUNCTUATION)), np.uint8)
    ends = np.flatnonzero(text == 0xFF) + 1
    text[ends - 1] = ord(" ")
    offsets = pa.py_buffer(np.append(0, ends).astype(np.int32))
    return pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(text))


def words(texts: pa.Array) -> pa.ListArray:
    """What :func:`suffice.trace.rounds.tokens.tokenize` finds in each text, and empty words."""
    spelt = pc.replace_substring_regex(pc.utf8_lower(texts), _SEPARATORS, " ")
    others = pc.invert(pc.match_substring_regex(texts, _EUROPEAN))
    spelt = _instead(spelt, others, texts, lambda text: " ".join(tokenize(text)))
    return pc.split_pattern(spelt, " ")


def _instead(
    formed: pa.Array, others: pa.Array, texts: pa.Array, one: Callable[[str], str]
) -> pa.Array:
    """The forms, where ``others`` is true those that a function of one text gives."""
    if not others.true_count:
        return formed
    own = by_text(one)(texts.filter(others)).cast(formed.type)
    return pc.replace_with_mask(formed, others, own)
