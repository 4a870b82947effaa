"""Parts of a summary that a record may not allow: computed, or left out with the reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from suffice.errors import DataError, UsageError

__all__ = ["attempt"]

Found = TypeVar("Found")


def attempt(compute: Callable[[], Found]) -> tuple[Found | None, str | None]:
    """What ``compute`` gives, or why this record or these settings do not allow it, in one line."""
    try:
        return compute(), None
    except (UsageError, DataError) as error:
        return None, " ".join(str(error).split())
