"""Normal forms of many texts at once, by Arrow's kernels.

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

_PUNCTUATION = string.punctuation.encode()
_ARTICLES = ("", "a", "an", "the")
_ARTICLE = r"\b(?:a|an|the)\b"
EUROPEAN = (
    r"^[\x00-\x1b -\x{84}\x{86}-\x{9f}\x{a1}-\x{12f}\x{131}-\x{24f}"
    r"\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{206f}]*$"
)
_BESIDE = r"[^\t\n -~](?:a|an|the)|(?:a|an|the)[^\t\n -~]"
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
    alike = pc.and_not(pc.match_substring_regex(texts, EUROPEAN), beside)
    if articles_first:
        lower = pc.replace_substring_regex(lower, _ARTICLE, " ")
        bare = _without_punctuation(lower)
    words = pc.ascii_split_whitespace(bare)
    gone = pa.array(_ARTICLES[:1] if articles_first else _ARTICLES, texts.type)
    kept = pc.invert(pc.is_in(words.flatten(), value_set=gone))
    before = np.append(0, np.cumsum(kept.to_numpy(zero_copy_only=False)))
    lists = pa.ListArray.from_arrays(
        pa.array(before[words.offsets.to_numpy()], pa.int32()), words.flatten().filter(kept)
    )
    formed = pc.binary_join(lists, " ").cast(texts.type)
    return instead(formed, pc.invert(alike), texts, one)


def _without_punctuation(texts: pa.Array) -> pa.Array:
    """Texts less ASCII's punctuation, each with a blank behind it."""
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts.cast("binary"))
    joined = b"%b\xff" % pc.binary_join(whole, b"\xff")[0].as_buffer()
    text = np.frombuffer(bytearray(joined.translate(None, _PUNCTUATION)), np.uint8)
    ends = np.flatnonzero(text == 0xFF) + 1
    text[ends - 1] = ord(" ")
    offsets = pa.py_buffer(np.append(0, ends).astype(np.int32))
    return pa.StringArray.from_buffers(len(texts), offsets, pa.py_buffer(text))


def instead(
    formed: pa.Array, others: pa.Array, texts: pa.Array, one: Callable[[str], str]
) -> pa.Array:
    """The forms, where ``others`` is true those that a function of one text gives."""
    if not others.true_count:
        return formed
    own = by_text(one)(texts.filter(others)).cast(formed.type)
    return pc.replace_with_mask(formed, others, own)
