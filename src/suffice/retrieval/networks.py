"""Networks that read two texts together, through sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suffice._optional import require
from suffice.errors import BackendError, UsageError, first_line

SAFE = {"use_safetensors": True}
"""What a loader of transformers is told: weights in a pickle, which may run code, are not read."""


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


def load_pair_network(name_or_path: str | Path, what: str) -> Any:
    """A ``CrossEncoder``: a folder that sentence-transformers saved, or a model's name on the Hub.

    ``what`` says in errors what was looked for.
    """
    module = require("sentence_transformers", extra="rerank", purpose=f"The {what}")
    try:
        with without_bars():
            return module.CrossEncoder(str(name_or_path), model_kwargs=SAFE)
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(
            f"no {what} at {str(name_or_path)!r}: {first_line(error)}; name a folder that "
            "sentence-transformers' CrossEncoder saved, or a model of the Hub"
        ) from error


def raw_outputs(model: Any, pairs: Sequence[tuple[str, str]], what: str, *, batch_size: int) -> Any:
    """The network's outputs for every pair, without sigmoid or softmax."""
    torch = require("torch", extra="rerank", purpose=f"The {what}")
    try:
        return model.predict(
            list(pairs),
            batch_size=batch_size,
            activation_fn=torch.nn.Identity(),
            show_progress_bar=False,
        )
    except RuntimeError as error:
        raise BackendError(f"the {what} failed: {first_line(error)}") from error
