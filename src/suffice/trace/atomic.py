"""Write a file whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from suffice.errors import BackendError

__all__ = ["replace_file"]


def replace_file(path: Path, content: bytes) -> None:
    """Write a file aside, flush it to disk and rename it over ``path``.

    Raises
    ------
    BackendError
        When the disk is full or refuses; what stood at ``path`` before is intact.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise BackendError(
            f"cannot write {path}: {error.strerror or error}; what stood there before is kept, "
            "make room or choose another --out and run the same command again"
        ) from error
    _sync_directory(path.parent)


def _sync_directory(folder: Path) -> None:
    """Make the rename itself durable, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
