"""Load a network without the progress bar that transformers draws on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from suffice._optional import require

__all__ = ["without_bars"]


@contextmanager
def without_bars() -> Iterator[None]:
    """Bars are off inside and as before after."""
    logging = require("transformers.utils.logging", extra="rerank", purpose="A cross-encoder")
    if not logging.is_progress_bar_enabled():
        yield
        return
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.enable_progress_bar()
