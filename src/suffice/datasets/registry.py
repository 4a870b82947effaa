"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suffice.datasets.example import Example
from suffice.datasets.generated import generate
from suffice.datasets.hotpotqa import read_hotpotqa, read_wikimultihop
from suffice.datasets.musique import read_musique
from suffice.errors import UsageError

_READERS: dict[str, Callable[..., tuple[Example, ...]]] = {
    "hotpotqa": read_hotpotqa,
    "2wikimultihopqa": read_wikimultihop,
    "musique": read_musique,
}
_GENERATED_SIZE = 200

DATASETS: tuple[str, ...] = ("generated", *_READERS)
"""Every name :func:`load` knows."""


def load(
    name: str, path: str | Path | None = None, *, limit: int | None = None, seed: int = 42
) -> tuple[Example, ...]:
    """Read or generate a data set.

    Parameters
    ----------
    name
        One of :data:`DATASETS`.
    path
        The data file, plain or ``.gz``, in the format its authors publish; none for ``generated``.
    limit
        The first so many questions; ``None``: all of a file, 200 generated ones.
    seed
        The world of ``generated``; files are read in their own order whatever it is.

    Raises
    ------
    UsageError
        When the name is unknown, a path is missing or too much, or the limit is below 1.
    DataError
        When the file is not what it must be.

    >>> [example.question.type for example in load("generated", limit=3, seed=7)]
    ['3hop', '1hop', '1hop']
    """
    if name not in DATASETS:
        raise UsageError(f"no data set {name!r}; allowed: {', '.join(DATASETS)}")
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be at least 1, found {limit}")
    if name == "generated":
        if path is not None:
            raise UsageError(f"the data set 'generated' is made from a seed; drop the path {path}")
        return tuple(generate(_GENERATED_SIZE if limit is None else limit, seed=seed))
    if path is None:
        raise UsageError(f"the data set {name!r} needs the path of its file: --data PATH")
    return _READERS[name](path, limit=limit)
