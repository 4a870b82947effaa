"""Draws that hang on a question's id alone, so that replay and live draw alike."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError

COIN = "coin"
"""The key of the coin that rules read."""


def lot(key: str, question_id: str) -> float:
    """A draw that depends on its arguments only, uniform in [0, 1)."""
    if not question_id:
        raise UsageError(
            "this policy decides by a random draw of each question's own and needs to know whose: "
            "start(question) with the question's text, or start(question_id=...)"
        )
    digest = hashlib.sha256(f"{key}:{question_id}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53


def lots(key: str, question_ids: Sequence[str]) -> NDArray[np.float64]:
    """:func:`lot` of every question, (n_questions,)."""
    if not all(question_ids):
        lot(key, "")  # refuses
    before, sha256 = f"{key}:".encode(), hashlib.sha256
    digests = b"".join([sha256(before + name.encode()).digest()[:8] for name in question_ids])
    return np.asarray((np.frombuffer(digests, ">u8") >> 11) / 2.0**53, np.float64)
