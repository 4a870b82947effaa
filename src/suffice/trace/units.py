"""Which questions count as one: those of one group, or else of one text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

if TYPE_CHECKING:
    from suffice.trace.rounds.records import Question
    from suffice.trace.rounds.table import TraceSet

_ENDS = " .,;:!?"  # what a question asked again may end with or not


def unit_keys(traces: TraceSet) -> NDArray[np.float64]:
    """A whole number of every question, equal for those of one unit in any part of any record.

    Questions of one ``group`` are a unit, others with those of their text: case, white space and closing
    punctuation apart. One with neither is a unit of its own. The numbers are hashes below 2**52: two units
    of a million have one number by chance once in 9,000 records.
    """
    group = traces.first_rounds("group") if traces.has("group") else None
    return _hashes(traces.first_rounds("question"), group, lambda: traces.question_ids)


def keys_of(questions: Sequence[Question]) -> NDArray[np.float64]:
    """The same of questions that are not recorded yet."""
    return _hashes(
        pa.array([question.text for question in questions], pa.string()),
        pa.array([getattr(question, "group", None) for question in questions], pa.string()),
        lambda: [question.id for question in questions],
    )


def _hashes(
    text: pa.Array | pa.ChunkedArray,
    group: pa.Array | pa.ChunkedArray | None,
    ids: Callable[[], Sequence[str]],
) -> NDArray[np.float64]:
    words = pc.binary_join(pc.utf8_split_whitespace(pc.utf8_lower(pc.cast(text, pa.string()))), " ")
    form = pc.utf8_trim(words, characters=" ")
    form = pc.fill_null(pc.utf8_rtrim(form, characters=_ENDS), "")
    keys = pc.binary_join_element_wise("text", form, " ")
    alone = pc.equal(form, "")
    if pc.any(alone).as_py():
        names = pa.chunked_array([pa.array(ids(), pa.string())])
        keys = pc.if_else(alone, pc.binary_join_element_wise("id", names, " "), keys)
    if group is not None:
        group = pc.fill_null(pc.cast(group, pa.string()), "")
        grouped = pc.binary_join_element_wise("group", group, " ")
        keys = pc.if_else(pc.equal(group, ""), keys, grouped)
    hashes = [
        int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 12
        for key in pc.cast(keys, pa.binary()).to_pylist()
    ]
    return np.array(hashes, np.float64)
