"""Optional dependencies: imported when used, with an error that prints the install line."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from suffice.errors import MissingExtra


def require(
    module: str, *, purpose: str, extra: str | None = None, package: str | None = None
) -> ModuleType:
    """Import ``module`` or say how to install it; name either an extra or a package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = (
            f"{purpose} needs the package {error.name!r}, which is not installed. "
            f"Install it with: pip install {package or repr(f'suffice[{extra}]')}"
        )
        raise MissingExtra(message) from error


@contextmanager
def without_bars(logging: Any) -> Iterator[None]:
    """Turn the progress bars of transformers' ``logging`` off inside, and restore them after."""
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
