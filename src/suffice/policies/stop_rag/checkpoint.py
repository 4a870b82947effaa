"""A training that can be killed and continued: one file, replaced whole at every evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from suffice._optional import require
from suffice.errors import DataError, first_line
from suffice.policies.stop_rag.encoder import PURPOSE
from suffice.trace.atomic import replace_file

__all__ = ["Checkpoint", "Run", "read_tensors", "write_tensors"]

Run = Mapping[str, Any]
"""What identifies a training, as JSON: a checkpoint that says otherwise is refused."""
_KEY = "suffice"


def write_tensors(path: Path, tensors: Mapping[str, Any], header: Mapping[str, Any]) -> None:
    """A safetensors file whose metadata hold the header as JSON; written aside and renamed."""
    weights = require("safetensors.torch", extra="learn", purpose=PURPOSE)
    plain = {name: each.detach().cpu().contiguous().clone() for name, each in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(dict(header), allow_nan=False, sort_keys=True)
    replace_file(path, weights.save(plain, metadata={_KEY: text}))


def read_tensors(path: Path, what: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tensors and header of such a file.

    Raises
    ------
    DataError
        When it is missing, damaged, or another file; ``what`` names what it should be.
    """
    weights = require("safetensors", extra="learn", purpose=PURPOSE)
    try:
        with weights.safe_open(str(path), framework="pt") as file:
            header = json.loads((file.metadata() or {})[_KEY])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise DataError(f"there is no {what} here", file=str(path)) from error
    except KeyError as error:
        raise DataError(
            f"not {what} of this library: its header is missing", file=str(path)
        ) from error
    except (OSError, ValueError, weights.SafetensorError) as error:
        raise DataError(f"not {what}, or damaged ({first_line(error)})", file=str(path)) from error
    if not isinstance(header, dict):
        raise DataError(f"not {what} of this library", file=str(path))
    return tensors, header


class Checkpoint:
    """The file of a training; ``run`` is what it must agree on."""

    def __init__(self, path: Path, run: Run) -> None:
        self._path = path
        self._run: dict[str, Any] = json.loads(json.dumps(dict(run)))

    def write(self, found: tuple[dict[str, Any], dict[str, Any]]) -> None:
        """Tensors, and the rest as JSON."""
        tensors, rest = found
        write_tensors(self._path, tensors, {"schema": 1, "run": self._run, "state": rest})

    def read(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """What :meth:`write` was given; ``None``: there is no such file.

        Raises
        ------
        DataError
            When it is damaged, or of a training with other settings, questions or another encoder.
        """
        if not self._path.exists():
            return None
        tensors, header = read_tensors(self._path, "a training's checkpoint")
        run, state = header.get("run"), header.get("state")
        if header.get("schema") != 1 or not isinstance(run, dict) or not isinstance(state, dict):
            raise DataError("not a training's checkpoint", file=str(self._path))
        differing = sorted(
            name for name in {*run, *self._run} if run.get(name) != self._run.get(name)
        )
        if differing:
            name = differing[0]
            raise DataError(
                f"this checkpoint is of another training: {name} was {_short(run.get(name))}, now "
                f"{_short(self._run.get(name))}; train with what it had, or choose an empty folder",
                file=str(self._path),
            )
        return tensors, state


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:16]}..."
