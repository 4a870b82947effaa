"""Data sets by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from suffice.datasets.example import Example
from suffice.datasets.files import TABLE_SUFFIXES, plain_suffix
from suffice.datasets.generated import generate
from suffice.datasets.public import PUBLIC
from suffice.datasets.question_files import NQ_OPEN, read_questions
from suffice.errors import UsageError, did_you_mean

_READERS: dict[str, Callable[..., tuple[Example, ...]]] = {
    **{name: layout.read for name, layout in PUBLIC.items()},
    "nq-open": partial(read_questions, columns=NQ_OPEN),
}
_GENERATED_SIZE = 200

WITH_PASSAGES: tuple[str, ...] = ("generated", *PUBLIC)
"""Data sets whose questions bring paragraphs, the gold ones among them; of triviaqa not every file."""
DATASETS: tuple[str, ...] = ("generated", *_READERS)
"""Every name :func:`load` knows."""


def is_question_file(name: str) -> bool:
    """Whether a name is that of a file of questions, and no data set's."""
    path = Path(name)
    return name not in DATASETS and (plain_suffix(path) in TABLE_SUFFIXES or path.exists())


def dataset_name(name: str) -> str:
    """A data set's name, or a question file as it was named."""
    if name in DATASETS or is_question_file(name):
        return name
    raise UsageError(
        f"no data set {name!r}; allowed: {', '.join(DATASETS)}, or a file of questions that ends in "
        f"{', '.join(TABLE_SUFFIXES)}{did_you_mean(name, DATASETS)}"
    )


def load(
    name: str,
    path: str | Path | None = None,
    *,
    limit: int | None = None,
    seed: int = 42,
    columns: Mapping[str, str] | None = None,
) -> tuple[Example, ...]:
    """Read or generate a data set."""
    dataset_name(name)
    if limit is not None and limit < 1:
        raise UsageError(f"limit must be at least 1, found {limit}")
    if is_question_file(name):
        if path is not None:
            raise UsageError(
                f"the questions are read from {name}; drop --data {path}, which goes with the name of a data "
                f"set ({', '.join(_READERS)})"
            )
        return read_questions(name, columns, limit=limit)
    if columns is not None:
        raise UsageError(
            f"the columns of {name} are known; --columns goes with a file of your own: --dataset FILE"
        )
    if name == "generated":
        if path is not None:
            raise UsageError(f"the data set 'generated' is made from a seed; drop the path {path}")
        return tuple(generate(_GENERATED_SIZE if limit is None else limit, seed=seed))
    if path is None:
        raise UsageError(f"the data set {name!r} needs the path of its file: --data PATH")
    return _READERS[name](path, limit=limit)
