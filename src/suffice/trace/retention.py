"""How long a record of live loops is kept: by age, and by what it takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from suffice.errors import UsageError
from suffice.trace.recording import live_store
from suffice.trace.store import NAME, Pruned


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept of a store."""

    days: float | None = None
    gigabytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("days", "gigabytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} of a record that is kept must be above 0, found {value}")

    @property
    def limited(self) -> bool:
        """Whether anything is ever removed."""
        return self.days is not None or self.gigabytes is not None


def prune(
    path: str | Path, retention: Retention, *, now: float | None = None, dry: bool = False
) -> Pruned:
    """Remove questions of a store that are too old or too much, the oldest first.

    What is under way stays, and the question that ended last. ``dry``: say only what would be removed.
    """
    store = live_store(path)
    if store is None:
        raise UsageError(
            f"{path} holds no store of live loops; name a FILE.db, a folder with {NAME}, or postgresql://..."
        )
    moment = time.time() if now is None else now
    before = None if retention.days is None else moment - retention.days * 86_400
    most = None if retention.gigabytes is None else retention.gigabytes * 10**9
    return store.prune(before, most, dry=dry)
