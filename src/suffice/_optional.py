"""Optional dependencies: imported when used, with an error that prints the install line."""

from __future__ import annotations

import importlib
from types import ModuleType

from suffice.errors import MissingExtra

__all__ = ["require"]


def require(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import ``module`` or say how to install it.

    Parameters
    ----------
    module
        Dotted name to import.
    extra
        The extra of this distribution that brings it.
    purpose
        What the caller wants it for; completes "... needs".

    Raises
    ------
    MissingExtra
        When the module, or something it imports, is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = (
            f"{purpose} needs the package {error.name!r}, which is not installed. "
            f"Install it with: pip install 'suffice[{extra}]'"
        )
        raise MissingExtra(message) from error
