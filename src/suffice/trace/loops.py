"""Which loop the questions of a file are of, and where the files of a folder are of different ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LOOP = ("pipeline", "model", "prompt", "retriever", "rounds", "step", "temperature", "samples")
"""Entries of a run document that make a loop what it is; others say what it was asked."""
_MOST_VALUE = 40
_MOST_FILES = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of run documents and, by what they say of it, the files."""

    entry: str
    files: Mapping[str, tuple[str, ...]]

    @property
    def between_files(self) -> bool:
        """Whether one file says this and another that; else one says both, since it was joined of several."""
        return len({frozenset(names) for names in self.files.values()}) > 1


def differences(files: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Difference, ...]:
    """What files do not all say alike of their runs, of those that say it; given names and run documents."""
    said: dict[str, dict[str, dict[str, None]]] = {entry: {} for entry in LOOP}
    for file, run in files:
        for document in _documents(run.get("runs")) or [dict(run)]:
            stated = {
                entry: value
                for entry, value in document.items()
                if isinstance(value, str | int | float) or entry in LOOP
            }
            if not any(_filtered_out(stated, step) for step in _documents(run.get("derived"))):
                for entry, value in stated.items():
                    said.setdefault(entry, {}).setdefault(str(value), {})[file] = None
    return tuple(
        Difference(entry, {value: tuple(names) for value, names in by_value.items()})
        for entry, by_value in said.items()
        if len(by_value) > 1
    )


def of_loops(runs: Iterable[Difference]) -> tuple[Difference, ...]:
    """Those that tell loops apart."""
    return tuple(one for one in runs if one.entry in LOOP)


def in_words(found: Sequence[Difference]) -> str:
    """``they differ in pipeline react (a.parquet), iterative (b.parquet); step 1, 3``.

    Files are named by the first entry that tells them apart so.
    """
    told, apart = [], set()
    for difference in found:
        parts = frozenset(difference.files.values())
        values = []
        for value, names in difference.files.items():
            said = value if len(value) <= _MOST_VALUE else f"{value[: _MOST_VALUE - 3]}..."
            if difference.between_files and parts not in apart:
                more = len(names) - _MOST_FILES
                named = ", ".join(names[:_MOST_FILES])
                said += f" ({named}{f' and {more} more' if more > 0 else ''})"
            values.append(said)
        told.append(f"{difference.entry} {', '.join(values)}")
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
