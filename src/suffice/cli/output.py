"""Printing: one JSON document, tables or text on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
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
from textwrap import wrap
from traceback import format_exception
from types import MappingProxyType, TracebackType
from typing import IO, TYPE_CHECKING, Any

from suffice.errors import struck

if TYPE_CHECKING:
    from suffice.loops.record.session import Progress
    from suffice.policies.method import FitStep
    from suffice.results.table import Table, Tone

_CODES: Mapping[str, str] = MappingProxyType(
    {"title": "1", "head": "1", "quiet": "2", "good": "32", "bad": "31", "warning": "33"}
)


def on_terminal(stream: IO[str]) -> bool:
    """Whether a person sees what goes to a stream."""
    return stream.isatty()


def coloured(stream: IO[str]) -> bool:
    """Whether colours go to a stream: a terminal that knows them, unless ``NO_COLOR`` is set."""
    return (
        on_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def harmless(text: str) -> str:
    """Text that steers no terminal: what does, or hides or reorders letters, is spelled out."""
    from suffice.results.markup import visible

    return visible(text)


def put(text: str = "", *, end: str = "\n") -> None:
    """Print text on stdout, :func:`harmless`; whatever a command prints goes through here."""
    print(harmless(text), end=end)


def painted(text: str, tone: Tone | str) -> str:
    """Text in the colours of a tone."""
    return f"\x1b[{_CODES[tone]}m{text}\x1b[0m"


def say(text: str, *, lead: str = "", tone: str = "bad") -> None:
    """A line for people, on stderr; what leads it stands in a tone."""
    text = harmless(" ".join(text.splitlines()))
    if lead:
        lead = harmless(lead)
        text = f"{painted(lead, tone) if coloured(sys.stderr) else lead} {text}"
    with _LAST:
        _LAST.clear()
        _tell(text, end="\n")


def _tell(text: str, *, end: str) -> None:
    """Put text on stderr, without keys; one that is full or has no reader left ends no work."""
    try:
        print(struck(text), file=sys.stderr, end=end, flush=True)
    except BrokenPipeError:
        with suppress(OSError):  # else what is left of it fails again when Python ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    except OSError:
        pass


def open_standard_streams() -> None:
    """Give what was started without stdin, stdout or stderr an empty one.

    Else the next file opened would have its number, and whatever prints there would write into it.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115
        stream = getattr(sys, name)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # for LANG=C and other small alphabets
    sys.excepthook = _tell_defect


def _tell_defect(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """A traceback whose message may hold foreign text."""
    _tell(harmless("".join(format_exception(kind, error, trace))), end="")


def print_json(document: Any) -> None:
    """The one JSON document of a command: strict, see :func:`suffice.results.as_json.as_json`.

    Letters that steer a terminal stand in JSON's own escapes.
    """
    from suffice.results.as_json import as_json
    from suffice.results.markup import json_escaped

    text = json.dumps(as_json(document), allow_nan=False, ensure_ascii=False, indent=1)
    print(json_escaped(text))


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
        print_tables(tables, arguments.format)


def print_tables(tables: Sequence[Table], form: str = "text", *, end: str = "\n") -> None:
    """Tables in a form; their texts are :func:`harmless` already, their colours ours."""
    print(in_form(tables, form), end=end, flush=True)


def in_form(tables: Sequence[Table], form: str) -> str:
    """Tables as text for this terminal, CSV, Markdown or LaTeX; without a final line feed."""
    if form == "text":
        width = _width()
        paint = painted if coloured(sys.stdout) else None
        blocks = [table.text(width, paint) for table in tables]
    else:
        blocks = [harmless(getattr(table, form)()) for table in tables]
    return "\n\n".join(block.rstrip("\n") for block in blocks if block)


def _width() -> int:
    """Letters a line: those of the terminal, else what tables take."""
    from suffice.results.table import WIDTH

    return shutil.get_terminal_size((WIDTH, 24)).columns if on_terminal(sys.stdout) else WIDTH


def print_lines(text: str, *, lead: str = "", indent: int = 2) -> None:
    """A sentence in lines that fit, what leads it before the first; words are not broken."""
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
    """Show warnings as lines of ours, without the source that raised them."""

    def show(message: Warning | str, *_: object, **__: object) -> None:
        say(str(message), lead="suffice: warning:", tone="warning")

    warnings.showwarning = show
    warnings.simplefilter("default")


INTERRUPTED = 130  # the exit code that shells expect of a command ended by Ctrl-C


class Signals:
    """The signals that asked a command to end."""

    def __init__(self) -> None:
        self._number: int | None = None

    def interrupt(self, number: int, _: object) -> None:
        """End as Ctrl-C does: what is finished is kept, what is half written goes."""
        self._number = number
        raise KeyboardInterrupt

    def code(self, code: int) -> int:
        """The exit code, which names the signal where one ended the command."""
        return 128 + self._number if self._number and code == INTERRUPTED else code


@contextmanager
def ended_by_signals() -> Iterator[Signals]:
    """SIGTERM and SIGHUP end the work within as Ctrl-C does, where nobody else handles them."""
    signals = Signals()
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, signals.interrupt)
    try:
        yield signals
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


_ENOUGH_TO_ESTIMATE = 3  # the first one also loads the model, and others are under way beside it


_SILENT_S = 2.0  # work that takes no longer is not announced


class _LastLine:
    """The last line of stderr, which may be one that is rewritten; held by the thread that writes."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._open = False

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def clear(self) -> None:
        """Take what is to be rewritten off the terminal."""
        if self._open:
            _tell("\r\x1b[K", end="")
        self._open = False

    def rewrite(self, text: str) -> None:
        """Put this in its place."""
        self.clear()
        _tell(harmless(text), end="")
        self._open = True


_LAST = _LastLine()


class ProgressLine:
    """Progress with time left: rewritten in place on a terminal, else a line every ten seconds."""

    def __init__(self, label: str, *, every_s: float = 10.0) -> None:
        self._label = label
        self._every_s = every_s
        self._started = time.monotonic()
        self._shown = self._started - every_s
        self._in_place = on_terminal(sys.stderr)

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
        with _LAST:
            _Waiting.heard()
            if self._in_place and done < planned:
                _LAST.rewrite(text)
            else:
                say(text)


class _Waiting:
    """Says what is under way once it has taken two seconds, then how long, until it is ended."""

    current: _Waiting | None = None

    def __init__(self, label: str, every_s: float) -> None:
        self._label = label
        self._every_s = every_s
        self._began = time.monotonic()
        self._quiet_until = self._began
        self.ended = threading.Event()

    @classmethod
    def heard(cls) -> None:
        """Something else tells how far the work is."""
        if cls.current is not None:
            cls.current.pause()

    def pause(self) -> None:
        """Say nothing for a while."""
        self._quiet_until = time.monotonic() + self._every_s

    def tell(self) -> None:
        """Speak until the end."""
        pause = _SILENT_S
        while not self.ended.wait(pause):
            pause = 1.0 if on_terminal(sys.stderr) else self._every_s
            with _LAST:
                now = time.monotonic()
                if now < self._quiet_until or _Waiting.current is not self:
                    continue
                text = f"{self._label}, {_duration(now - self._began)} so far"
                if on_terminal(sys.stderr):
                    _LAST.rewrite(text)
                else:
                    say(text)


def question_progress(label: str) -> Callable[[Progress], None]:
    """A line of progress for questions that come to their end."""
    line = ProgressLine(label)
    return lambda now: line.show(now.finished, now.planned, failed=now.failed)


@contextmanager
def waiting(label: str, *, every_s: float = 10.0) -> Iterator[None]:
    """Work that says nothing itself: what it is stands on stderr once it takes over two seconds.

    On a terminal the line is rewritten every second and taken away at the end, else it is said again
    after ``every_s`` seconds.
    """
    outer, told = _Waiting.current, _Waiting(label, every_s)
    _Waiting.current = told
    from suffice.concurrency import NoThread, started

    with suppress(NoThread):  # the work does without
        started(told.tell, "waiting")
    try:
        yield
    finally:
        told.ended.set()
        with _LAST:
            _Waiting.current = outer
            _LAST.clear()


def fit_progress() -> Callable[[FitStep], None]:
    """A line of progress for every stage of a training."""
    lines: dict[str, ProgressLine] = {}

    def progress(now: FitStep) -> None:
        lines.setdefault(now.label, ProgressLine(now.label)).show(now.done, now.total)
        if now.said:
            say(now.said)

    return progress


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
