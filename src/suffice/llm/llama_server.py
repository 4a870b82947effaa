"""A llama.cpp server inside this process, whatever it serves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from suffice.errors import BackendError
from suffice.llm.llama_api import xllamacpp


def processors() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def quiet_params(path: Path, *, threads: int, purpose: str) -> Any:
    """Parameters of a server of one GGUF file that prints nothing and takes any free port.

    Raises
    ------
    MissingExtra
        When the extra ``embedded`` is not installed, naming ``purpose``.
    """
    params = xllamacpp(purpose).CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.port = 0
    params.ui = False
    params.fit_params = False
    params.verbosity = -1  # nothing on stdout or stderr
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    return params


def start_server(params: Any, *, check: str) -> Any:
    """The server, its weights loaded; ``check`` says in errors what else to look at.

    Raises
    ------
    BackendError
        When llama.cpp cannot load the file.
    """
    try:
        return xllamacpp("The embedded model").Server(params)
    except RuntimeError as error:
        raise BackendError(
            f"llama.cpp could not load {str(params.model.path)!r}: {error} Check that the file is complete, "
            f"that llama.cpp knows its architecture{check}"
        ) from error
