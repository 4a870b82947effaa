"""Which call of a tool a result belongs to, whether or not servers and logs give ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

Named = tuple[Any, Any]
"""A call's id and its tool's name, each ``None`` or empty where it is not told."""


def paired(calls: Sequence[Named], results: Sequence[Named]) -> list[int | None]:
    """Return for each result of a message's calls the place of its call; ``None``: nobody asked for it.

    An id that one call alone has names that call, for all results with it. Other results go in order to calls
    without one, of the same id and tool where these are told; further ones to the last call that fits.
    """
    asked, given = (
        [tuple("" if part is None else str(part).strip() for part in one) for one in side]
        for side in (calls, results)
    )
    counts = Counter(name for name, _ in asked)
    own = {name: at for at, (name, _) in enumerate(asked) if name and counts[name] == 1}
    found = [own.get(name) for name, _ in given]
    for same in ((0, 1), (0,), (1,), (), None):  # what both must tell; None: a call may have two
        for place, result in enumerate(given):
            if found[place] is None:
                fitting = [
                    at
                    for at, call in enumerate(asked)
                    if all(a == b or not (a and b) for a, b in zip(call, result, strict=True))
                    and (
                        same is None
                        or (at not in found and all(call[n] and result[n] for n in same))
                    )
                ]
                found[place] = fitting[-1 if same is None else 0] if fitting else None
    return found
