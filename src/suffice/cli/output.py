"""Printing: JSON, tables and text on stdout, everything else on stderr."""

from __future__ import annotations

import _thread
import json
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from textwrap import wrap
from traceback import format_exception
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from suffice.errors import struck
from suffice.options import Option

if TYPE_CHECKING:
    from suffice.loops.record.session import Progress
    from suffice.results.table import Table, Tone

_CODES: Mapping[str, str] = MappingProxyType(
    {"title": "1", "head": "1", "quiet": "2", "good": "32", "bad": "31", "warning": "33"}
)


def on_terminal(stream: IO[str]) -> bool:
    return stream.isatty()


def coloured(stream: IO[str]) -> bool:
    """Whether a stream shows colors: a terminal that knows them, unless ``NO_COLOR`` is set."""
    return (
        on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def harmless(text: str) -> str:
    """Spell out letters that steer a terminal, hide text or reorder it."""
    from suffice.results.markup import visible

    return visible(text)


def put(text: str = "", *, end: str = "\n") -> None:
    """Print :func:`harmless` text on stdout; every command prints through this function."""
    print(harmless(text), end=end)


def painted(text: str, tone: Tone | str) -> str:
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"


def say(text: str, *, lead: str = "", tone: str = "bad") -> None:
    """Print a line on stderr, with ``lead`` in a tone before it."""
    text = harmless(" ".join(text.splitlines()))
    if lead:
        lead = harmless(lead)
        text = f"{painted(lead, tone) if coloured(sys.stderr) else lead} {text}"
    with _LINE:
        _clear()
        _tell(text, end="\n")


def _tell(text: str, *, end: str) -> None:
    """Print text without keys on stderr; a full or closed stderr ends no work."""
    try:
        print(struck(text), file=sys.stderr, end=end, flush=True)
    except BrokenPipeError:
        with suppress(OSError):  # else what is left of it fails again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except OSError:
        pass


def prepare_standard_streams() -> None:
    """Let both streams print any alphabet, and make tracebacks harmless and free of keys."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for LANG=C and other small alphabets
    sys.excepthook = lambda *error: _tell(harmless("".join(format_exception(*error))), end="")


def print_json(document: Any) -> None:
    """Print the one JSON document of a command, see :func:`suffice.results.as_json.as_json`.

    Letters that steer a terminal stand in JSON's own escapes.
    """
    from suffice.results.as_json import as_json
    from suffice.results.markup import json_escaped

    text = json.dumps(as_json(document), allow_nan=False, ensure_ascii=False, indent=1)
    print(json_escaped(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """Options of how to print tables."""

    format: Annotated[
        Literal["text", "json", "csv", "markdown", "latex"],
        Option(help="output format; csv holds unrounded values"),
    ] = "text"
    json: Annotated[bool, Option(help="same as --format json")] = False

    @property
    def name(self) -> str:
        """The chosen form."""
        return "json" if self.json else self.format


def print_result(
    form: Form, tables: Sequence[Table], document: Callable[[], Any], notes: Sequence[str] = ()
) -> None:
    """Print a result in a form; ``notes`` go to stderr where they are not in the tables."""
    if form.name in ("json", "csv"):
        for note in notes:
            say(note)
    if form.name == "json":
        print_json(document())
    else:
        print_tables(tables, form.name)


def print_tables(tables: Sequence[Table], form: str = "text") -> None:
    print(in_form(tables, form), flush=True)


def in_form(tables: Sequence[Table], form: str) -> str:
    """Return tables as text, CSV, Markdown or LaTeX, without a final line feed."""
    if form == "text":
        width = _width()
        paint = painted if coloured(sys.stdout) else None
        blocks = [table.text(width, paint) for table in tables]
    else:
        blocks = [harmless(getattr(table, form)()) for table in tables]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def _width() -> int:
    from suffice.results.table import WIDTH

    return shutil.get_terminal_size((WIDTH, 24)).columns if on_terminal(sys.stdout) else WIDTH


def print_lines(text: str, *, lead: str = "", indent: int = 2) -> None:
    """Print a sentence in lines that fit, with ``lead`` before the first."""
    lines = wrap(
        text,
        max(_width(), 2 * indent),
        initial_indent=lead,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    put("\n".join(lines))


def one_line_warnings() -> None:
    """Print warnings in one line each, without the source code."""
    warnings.showwarning = lambda message, *_, **__: say(
        str(message), lead="suffice: warning:", tone="warning"
    )
    warnings.simplefilter("default")


INTERRUPTED = 130  # the exit code that shells expect of a command ended by Ctrl-C


@contextmanager
def ended_by_signals() -> Iterator[list[int]]:
    """End the work at SIGTERM and SIGHUP as at Ctrl-C; the list holds the signals that came."""
    came: list[int] = []

    def interrupt(number: int, _: object) -> None:
        came.append(number)
        raise KeyboardInterrupt

    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


# --- progress --------------------------------------------------------------------------------------
_ENOUGH_TO_ESTIMATE = 3  # the first one also loads the model, and others are under way beside it
_SILENT_S = 2.0  # work that takes no longer is not announced
_EVERY_S = 10.0  # between lines where none can be rewritten
_LINE = threading.RLock()  # held by whoever writes on stderr
_rewritten = False  # whether its last line is one that is rewritten


def _clear() -> None:
    global _rewritten  # noqa: PLW0603 - there is one terminal
    if _rewritten:
        _tell("\r\x1b[K", end="")
    _rewritten = False


def _rewrite(text: str) -> None:
    global _rewritten  # noqa: PLW0603
    with _LINE:
        if not on_terminal(sys.stderr):
            say(text)
            return
        _clear()
        _tell(harmless(text), end="")
        _rewritten = True


class ProgressLine:
    """A line of progress: rewritten on a terminal, else printed every ten seconds."""

    def __init__(self, label: str, started: float | None = None) -> None:
        self._label = label
        self._started = time.monotonic() if started is None else started
        self._shown = self._started - _EVERY_S

    def show(self, finished: int, planned: int, *, failed: int = 0) -> None:
        """Print how many of ``planned`` are finished or failed."""
        now, done = time.monotonic(), finished + failed
        if done < planned and not on_terminal(sys.stderr) and now - self._shown < _EVERY_S:
            return
        self._shown = now
        text = f"{self._label} {finished}/{planned}"
        if failed:
            text += f", {failed} failed"
        if done >= min(_ENOUGH_TO_ESTIMATE, planned):
            left = (now - self._started) / done * (planned - done)
            text += f", {_duration(now - self._started)} elapsed, about {_duration(left)} left"
        if done < planned:
            _rewrite(text)
        else:
            say(text)


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Print the label on stderr once the work takes over two seconds."""
    ended = threading.Event()

    def announce() -> None:
        if not ended.wait(_SILENT_S):
            _rewrite(f"{label} ...")

    # Thread.start() would wait for ever for a thread that dies for want of memory
    _thread.start_new_thread(announce, ())
    try:
        yield
    finally:
        ended.set()
        with _LINE:
            _clear()


def question_progress(label: str) -> Callable[[Progress], None]:
    line = ProgressLine(label)
    return lambda now: line.show(now.finished, now.planned, failed=now.failed)


def fit_progress() -> Callable[[Any], None]:
    lines: dict[str, ProgressLine] = {}

    def progress(now: Any) -> None:
        lines.setdefault(now.label, ProgressLine(now.label)).show(now.done, now.total)
        if now.said:
            say(now.said)

    return progress


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
