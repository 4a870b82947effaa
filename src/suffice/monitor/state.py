"""What a watch kept in a file, read again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suffice.errors import DataError, plain_file
from suffice.protocols import strict_json

VERSION = 1


def read_state(file: Path) -> object:
    """The JSON of a state's file."""
    try:
        return strict_json(plain_file(file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error


def opened(state: object, name: str, kept_for: Mapping[str, object]) -> Mapping[str, Any]:
    """A state whose version stands under ``name``, kept for this policy and these settings."""
    held = state if isinstance(state, Mapping) else {}
    if held.get(name) != VERSION:
        raise DataError(
            f"must be {VERSION}, found {held.get(name)!r}: no state of suffice monitor, or one of a newer "
            "version",
            column=name,
        )
    stated = {**(held.get("settings") or {}), **held}
    for column, now in kept_for.items():
        if stated.get(column) != now:
            raise DataError(
                f"the state was kept for another {column} ({stated.get(column)!r}, now {now!r}); begin "
                "another state file",
                column=column,
            )
    return held


@contextmanager
def undamaged(file: Path | None = None) -> Iterator[None]:
    """What cannot be gone on from is a fault of the state, named with its file."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        if isinstance(error, DataError):  # a ValueError
            named = error.file or (None if file is None else str(file))
            raise DataError(error.message, file=named, column=error.column) from error
        said = f"the state is damaged ({type(error).__name__}: {error}); begin another state file"
        raise DataError(said, file=None if file is None else str(file)) from error
