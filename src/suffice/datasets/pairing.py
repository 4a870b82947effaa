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
    asked, given = _told(calls), _told(results)
    counts = Counter(name for name, _ in asked)
    own = {name: at for at, (name, _) in enumerate(asked) if name and counts[name] == 1}
    found = [own.get(name) for name, _ in given]
    left = [at for at in range(len(asked)) if at not in found]
    for same in ((0, 1), (0,), (1,), ()):
        for place, result in enumerate(given):
            if found[place] is None:
                fitting = (at for at in left if _fits(asked[at], result, same))
                found[place] = next(fitting, None)
                left = [at for at in left if at != found[place]]
    last = range(len(asked) - 1, -1, -1)
    return [
        next((at for at in last if _fits(asked[at], result)), None) if at is None else at
        for at, result in zip(found, given, strict=True)
    ]


def _told(named: Sequence[Named]) -> list[tuple[str, ...]]:
    return [tuple("" if part is None else str(part).strip() for part in one) for one in named]


def _fits(call: tuple[str, ...], result: tuple[str, ...], same: tuple[int, ...] = ()) -> bool:
    """Say whether neither differs where both are told, and those in ``same`` are told."""
    pairs = [(call[part], result[part]) for part in (0, 1)]
    told = all(all(pairs[part]) for part in same)
    return told and all(a == b or not (a and b) for a, b in pairs)
