"""The access log: a JSON object a line for each question that ended; texts only where asked for."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from suffice.errors import struck
from suffice.serve.events import Event, QuestionBegun, QuestionEnded, RoundEnded

_MOST_LETTERS = 2_000  # of a text in a line
_MOST_OPEN = 100_000


@dataclass(slots=True)
class _Open:
    begun: QuestionBegun
    at: float
    answer: str | None = None


class AccessLog:
    """An observer that writes lines; no line break of a text breaks one, and no key stands in one.

    A ``stream`` that fails is written to no more until it works again; left out: standard error.
    """

    def __init__(
        self,
        stream: IO[str] | None = None,
        *,
        texts: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._texts = texts
        self._clock = clock
        self._lock = threading.Lock()
        self._open: dict[str, _Open] = {}
        self.lost = 0
        """Lines that could not be written."""

    def on(self, event: Event) -> None:
        """Take it in; write where a question ended."""
        if isinstance(event, QuestionBegun):
            with self._lock:
                if len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[event.trace_id] = _Open(event, self._clock())
        elif isinstance(event, RoundEnded):
            if self._texts and (held := self._open.get(event.trace_id)) is not None:
                held.answer = event.round.answer
        else:
            with self._lock:
                ended = self._open.pop(event.trace_id, None)
            if ended is not None:
                self.write(self._document(ended, event))

    def _document(self, held: _Open, ended: QuestionEnded) -> dict[str, Any]:
        begun = held.begun
        document: dict[str, Any] = {
            "time": datetime.fromtimestamp(held.at, UTC).isoformat(timespec="milliseconds"),
            "trace_id": begun.trace_id,
            "endpoint": begun.endpoint,
            "policy": begun.policy,
            "policy_hash": begun.policy_hash,
            "model": begun.model,
            "rounds": ended.rounds,
            "stopped_by": ended.stopped_by,
            "declined": ended.declined,
            "seconds": round(ended.took_s, 6),
            "prompt_tokens": ended.prompt_tokens,
            "cached_tokens": ended.cached_tokens,
            "completion_tokens": ended.completion_tokens,
            "usd": ended.usd,
        }
        if ended.error:
            # what failed may quote what a model or a client said
            document["error"] = ended.error if self._texts else True
        if self._texts:
            document |= {"question": begun.text, "answer": held.answer, "reason": ended.reason}
        return {name: _plain(value) for name, value in document.items() if value is not None}

    def write(self, document: dict[str, Any]) -> None:
        """One line more."""
        line = json.dumps(document, ensure_ascii=True, allow_nan=False)  # no line separators either
        with self._lock:
            try:
                self._stream.write(line + "\n")
                self._stream.flush()
            except (OSError, ValueError):
                self.lost += 1


def _plain(value: Any) -> Any:
    """As JSON holds it; texts cut, and without keys."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return struck(value)[:_MOST_LETTERS] if isinstance(value, str) else value
