"""Printing: one JSON document, tables or text on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from suffice.results.table import Table


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Any) -> None:
    """The one JSON document of a command: strict, so a NaN is a defect."""
    print(json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1))


def add_format(parser: argparse.ArgumentParser) -> None:
    """``--format`` and its short form ``--json``, for a command that prints tables."""
    parser.add_argument(
        "--format",
        choices=("text", "json", "csv", "markdown", "latex"),
        default="text",
        help="how results are printed (default: text); json: one document, nothing else on stdout; csv: "
        "unrounded values, a blank line between tables; markdown: a heading above each table",
    )
    parser.add_argument(
        "--json",
        action="store_const",
        const="json",
        dest="format",
        help="the same as --format json",
    )


def print_result(
    arguments: argparse.Namespace,
    tables: Sequence[Table],
    document: Callable[[], Any],
    notes: Sequence[str] = (),
) -> None:
    """Print a result as ``--format`` asks; ``notes`` go to stderr where they are not in the tables."""
    if arguments.format in ("json", "csv"):
        for note in notes:
            say(note)
    if arguments.format == "json":
        print_json(document())
    else:
        print(in_form(tables, arguments.format))


def in_form(tables: Sequence[Table], form: str) -> str:
    """Tables as text for this terminal, CSV, Markdown or LaTeX; without a final line feed."""
    from suffice.results.table import WIDTH

    if form == "text":
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
        blocks = [table.text(width) for table in tables]
    else:
        blocks = [getattr(table, form)() for table in tables]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def one_line_warnings() -> None:
    """Show warnings as lines of ours, without the source that raised them."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(f"suffice: warning: {message}")

    warnings.showwarning = show
    warnings.simplefilter("default")


INTERRUPTED = 130  # the exit code that shells expect of a command ended by Ctrl-C
_ENOUGH_TO_ESTIMATE = 3  # the first one also loads the model, and others are under way beside it


class ProgressLine:
    """Progress with time left: rewritten in place on a terminal, else a line every ten seconds."""

    def __init__(self, label: str, *, every_s: float = 10.0) -> None:
        self._label = label
        self._every_s = every_s
        self._started = time.monotonic()
        self._shown = self._started - every_s
        self._in_place = sys.stderr.isatty()

    def show(self, finished: int, planned: int, *, failed: int = 0) -> None:
        """State how many of ``planned`` are finished or failed."""
        now = time.monotonic()
        done = finished + failed
        if not self._in_place and now - self._shown < self._every_s and done < planned:
            return
        self._shown = now
        text = f"{self._label} {finished}/{planned}"
        if failed:
            text += f", {failed} failed"
        if done >= min(_ENOUGH_TO_ESTIMATE, planned):
            left = (now - self._started) / done * (planned - done)
            text += f", {_duration(now - self._started)} gone, about {_duration(left)} left"
        if self._in_place:
            end = "\n" if done >= planned else ""
            print(f"\r\x1b[K{text}", file=sys.stderr, end=end, flush=True)
        else:
            say(text)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
