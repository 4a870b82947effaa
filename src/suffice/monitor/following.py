"""A policy watched over a record as it grows, with a state that a restart goes on from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from suffice.errors import DataError, plain_file
from suffice.monitor.aspects import Alarm
from suffice.monitor.folder import Folder, Found
from suffice.monitor.production import Production
from suffice.numbers.fields import map_fields
from suffice.numbers.tests.e_process import whole
from suffice.protocols import strict_json
from suffice.trace.durable import replace_file

VERSION = 1


class Following:
    """What is new in a folder, taken in; what it raised, told once.

    Notes
    -----
    The state is written after a look and after every alarm that was told, so that a crash loses nothing and
    counts nothing twice; an alarm that was told just before it is told again, under the same ``id``.
    """

    def __init__(self, folder: Folder, production: Production, *, file: Path | None = None) -> None:
        self._folder, self.production, self._file = folder, production, file
        self._told = 0

    def go_on(self) -> None:
        """Go on from the state's file, where there is one; nothing may have been looked at before."""
        if self._file is not None and self._file.exists():
            self.resume(read_state(self._file))

    def look(self) -> Found:
        """Take in what came since the last look: questions in the order in which they ended, then labels."""
        found = self._folder.look()
        place = {question.id: number for number, question in enumerate(found.questions)}
        for question in found.questions:
            self.production.take(question)
        # of one look, labels come in the order of their questions: a file sorted by outcome is no alarm
        before = len(place)
        for label in sorted(found.labels, key=lambda one: place.get(one.question_id, before)):
            self.production.label(label)
        self.production.pass_over(found.others)
        if found:
            self._keep()
        return found

    @property
    def untold(self) -> tuple[Alarm, ...]:
        """Alarms that were not told yet, in order."""
        return self.production.alarms[self._told :]

    def told(self) -> None:
        """The first of them was told."""
        self._told += 1
        self._keep()

    def _keep(self) -> None:
        if self._file is not None:
            replace_file(self._file, json.dumps(self.to_json(), allow_nan=False).encode())

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_following": VERSION,
            "folder": self._folder.to_json(),
            "production": self.production.to_json(),
            "told": self._told,
        }

    def resume(self, state: object) -> None:
        """Go on from what :meth:`to_json` gave; nothing may have been looked at before."""
        try:
            self._resume(state)
        except DataError as error:
            named = error.file or (None if self._file is None else str(self._file))
            raise DataError(error.message, file=named, column=error.column) from error

    def _resume(self, state: object) -> None:
        own = ("suffice_following", "folder", "production", "told")
        fields = map_fields(state, "a state of suffice monitor --policy", own)
        if fields.get("suffice_following") != VERSION:
            raise DataError(
                f"must be {VERSION}, found {fields.get('suffice_following')!r}",
                column="suffice_following",
            )
        self.production.resume(fields.get("production"))
        self._folder.resume(fields.get("folder"))
        self._told = min(whole(fields.get("told"), "told"), len(self.production.alarms))


def read_state(file: Path) -> object:
    """The JSON of a state's file."""
    try:
        return strict_json(plain_file(file).read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"not JSON: {error}", file=str(file)) from error
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", file=str(file)) from error
