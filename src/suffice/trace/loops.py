"""Which loop the questions of a file are of, and where the files of a folder are of different ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

LOOP = ("pipeline", "model", "prompt", "retriever", "rounds", "step", "temperature", "samples")
"""Entries of a run document that make a loop what it is; others say what it was asked."""
_FEWEST = 8
"""Questions of a file that tell its budget, where its run document does not."""
_MOST_VALUE = 40
_MOST_FILES = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of :data:`LOOP` and, by what they say of it, the files."""

    entry: str
    files: Mapping[str, tuple[str, ...]]

    @property
    def between_files(self) -> bool:
        """Whether one file says this and another that; else one says both, since it was joined of several."""
        return len({frozenset(names) for names in self.files.values()}) > 1

    def told(self, *, files: bool) -> str:
        """``pipeline react (a.parquet), iterative (b.parquet)``, with the files or without."""
        return f"{self.entry} " + ", ".join(
            f"{_short(value)} ({_listed(names)})" if files else _short(value)
            for value, names in self.files.items()
        )


@dataclass(slots=True)
class LoopsSeen:
    """Files as they are read, each with what it says of its loop."""

    _files: dict[str, dict[str, dict[str, None]]] = field(default_factory=dict)

    def add(
        self,
        file: str,
        run: Mapping[str, Any],
        rounds: NDArray[np.integer[Any]] | None = None,
    ) -> None:
        """A file with its run document and, where they are at hand, the round of each of its rows."""
        documents = _documents(run.get("runs")) or [dict(run)]
        steps = _documents(run.get("derived"))
        budget = None if rounds is None else _budget(rounds)
        for document in documents:
            stated = {
                entry: value
                for entry, value in document.items()
                if isinstance(value, str | int | float) or entry in LOOP
            }
            if any(_filtered_out(stated, step) for step in steps):
                continue
            if budget is not None and len(documents) == 1:
                stated.setdefault("rounds", budget)
            for entry, value in stated.items():
                files = self._files.setdefault(entry, {}).setdefault(str(value), {})
                files[file] = None

    @property
    def loops(self) -> tuple[Difference, ...]:
        """What not all files say alike of their loop, of those that say it."""
        return tuple(one for one in self.runs if one.entry in LOOP)

    @property
    def runs(self) -> tuple[Difference, ...]:
        """What not all files say alike of their runs."""
        entries = dict.fromkeys((*LOOP, *self._files))
        return tuple(
            Difference(entry, {value: tuple(files) for value, files in by_value.items()})
            for entry in entries
            if len(by_value := self._files.get(entry, {})) > 1
        )


def _budget(rounds: NDArray[np.integer[Any]]) -> int | None:
    """How many rounds every question of a file has; ``None``: not all have as many, or they are few."""
    questions, most = int((rounds == 1).sum()), int(rounds.max(initial=0))
    return most if questions >= _FEWEST and int((rounds > 0).sum()) == questions * most else None


def in_words(differences: Sequence[Difference]) -> str:
    """``they differ in pipeline react (a.parquet), iterative (b.parquet); step 1, 3``.

    Files are named by the first entry that tells them apart so.
    """
    told, apart = [], set()
    for difference in differences:
        parts = frozenset(difference.files.values())
        told.append(difference.told(files=difference.between_files and parts not in apart))
        apart.add(parts)
    return f"they differ in {'; '.join(told)}"


def steps(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a record of this run document went through since it was recorded, and what was joined in it."""
    documents = (run, *_documents(run.get("runs")))
    return [step for document in documents for step in _documents(document.get("derived"))]


def is_veiled(run: Mapping[str, Any]) -> bool:
    """Whether names stand in place of the texts: recorded so by :class:`suffice.Watch`, or redacted since."""
    watched = run.get("watch")
    named = isinstance(watched, dict) and watched.get("texts", "all") != "all"
    return named or any(step.get("by") == "redact" for step in steps(run))


def _documents(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _filtered_out(stated: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    """Whether a step that made the file left such questions out."""
    wanted = ((value, step.get(entry)) for entry, value in stated.items())
    return any(isinstance(kept, list) and str(value) not in kept for value, kept in wanted)


def _short(value: str) -> str:
    return value if len(value) <= _MOST_VALUE else f"{value[: _MOST_VALUE - 3]}..."


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_FILES])
    more = len(names) - _MOST_FILES
    return shown if more <= 0 else f"{shown} and {more} more"
