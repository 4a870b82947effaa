"""The ``suffice`` command."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from suffice._version import VERSION
from suffice.cli.output import (
    INTERRUPTED,
    ended_by_signals,
    one_line_warnings,
    prepare_standard_streams,
    put,
    say,
)
from suffice.errors import SufficeError, UsageError

if TYPE_CHECKING:  # --version is told without it
    from cyclopts import App

COMMANDS = {
    "look": ("look", "say what logs show without labels, and what a cap would have saved"),
    "demo": ("report", "choose on an example, then record and replay with a small model"),
    "ask": ("ask", "answer a question over your own files"),
    "serve": ("serve", "serve adaptive answers over HTTP, for OpenAI's clients"),
    "record": ("record", "run a data set to the full budget and record each round"),
    "probe": ("record", "ask a model for an answer in every recorded round"),
    "traces": ("trace_group", "inspect, check, split, merge, filter, import and export records"),
    "policies": ("fit_policies", "list every policy: what it does and needs"),
    "signals": ("signals", "compute signals and store them in the record"),
    "diagnose": ("replay", "measure how well each signal tells right from wrong answers"),
    "choose": ("replay", "choose one policy for a record, with a proven bound"),
    "fit": ("fit_policies", "calibrate or train a policy on the tune split"),
    "replay": ("replay", "score policies on recorded rounds"),
    "check": ("check", "test that records still prove the promises in use"),
    "init": ("check", "write a file of promises, a test and the lines that watch your loop"),
    "compare-loops": ("replay", "compare two loops on the same questions"),
    "search": ("replay", "search stopping rules exhaustively"),
    "report": ("report", "compare policies in one HTML file"),
    "view": ("serve", "look at a record in the browser"),
    "monitor": ("monitor", "watch a policy in production and raise alarms"),
}
"""Every command with its module of ``suffice.cli.commands`` and its line of help (empty: not listed)."""
_MEASURING = frozenset({"check", "choose", "diagnose", "fit", "replay", "report", "search", "view"})


def _function(name: str) -> str:
    return name.replace("-", "_")


def build_app(chosen: str = "") -> App:
    """Return the application; only the chosen command is imported."""
    from suffice.cli.parser import make_app

    app = make_app(
        "suffice",
        "Decides when an iterative retrieval loop has seen enough. Record a loop once, replay every "
        "stopping policy on the record, run the chosen one live.\n\nStart with 'suffice choose example'. "
        "'example' is a record that comes with the package; it can be given wherever a command takes "
        "TRACES. Exit codes: 0 done, 1 the work failed, 2 wrong usage or invalid input, 130 interrupted.",
    )
    for place, (name, (module, line)) in enumerate(COMMANDS.items()):
        home = f"suffice.cli.commands.{module}"
        if name == chosen:
            app.command(getattr(importlib.import_module(home), _function(name)), name=name)
            app[name].sort_key = place
        else:
            app.command(
                f"{home}:{_function(name)}", name=name, help=line, show=bool(line), sort_key=place
            )
    app.register_install_completion_command(name="--install-completion")
    return app


class _NoPandas:
    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("not wanted", name=name)


def _without_pandas() -> None:
    """Have Arrow look for pandas now, and find none: it would load it at its first array.

    That takes as long as reading most records, and no command hands a data frame on. Asked once it keeps to
    the answer, so this is for a process that runs a command and ends.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        import pyarrow as pa

        pa.array([0])
    finally:
        sys.meta_path.remove(_NoPandas)


def main(argv: Sequence[str] | None = None, *, app: App | None = None) -> int:
    words = sys.argv[1:] if argv is None else list(argv)
    chosen = next((word for word in words if not word.startswith("-")), "")
    lead = f"suffice {chosen}".rstrip() if app is None else app.name[0]
    if chosen in _MEASURING:
        # of many small products: threads of each would wait for one another, for up to 100 times as long
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    prepare_standard_streams()
    with ended_by_signals() as came:
        code = _ended(lambda: _run(words, chosen, app, alone=argv is None), f"{lead}:")
    if argv is None:  # Python's own end takes a while, in which an interrupt would be a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return 128 + came[-1] if came and code == INTERRUPTED else code


def _run(words: Sequence[str], chosen: str, app: App | None, *, alone: bool) -> int:
    if words[:1] == ["--version"]:
        put(f"suffice {VERSION}")
        return 0
    from suffice.cli import parser

    if not words and app is None:
        listed = (name for name, (_, line) in COMMANDS.items() if line)
        raise UsageError(f"name a command: {', '.join(listed)}; see 'suffice --help'")
    one_line_warnings()
    if alone and chosen not in ("ask", "policies") and "pandas" not in sys.modules:
        _without_pandas()
    code = parser.run(app or build_app(chosen), [*map(_without_password, words)])
    sys.stdout.flush()
    return code


def _ended(run: Callable[[], int], lead: str) -> int:
    try:
        return run()
    except SufficeError as error:
        say(" ".join(str(error).split()), lead=lead)
        return error.exit_code
    except BrokenPipeError:
        # the reader of our output has gone; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = error.filename or "a file, or standard output"
        say(
            f"{place}: {error.strerror or error}; free space there or choose another place, then run the "
            "same command again",
            lead=lead,
        )
        return 1
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and _NO_THREAD not in str(error):
            raise
        say(_TOO_LITTLE_MEMORY, lead=lead)
        return 1
    except KeyboardInterrupt:
        say("interrupted", lead=lead)
        return INTERRUPTED


def _without_password(word: str) -> str:
    """Return a word of the command line without the password of a database's address."""
    option, mark, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not value.startswith(("postgres:", "postgresql:")):
        return word
    from suffice.trace.engines import as_place

    return f"{option}{mark}{as_place(value)}"


_NO_THREAD = "can't start new thread"  # Python's own words
_TOO_LITTLE_MEMORY = (
    "out of memory; end other programs, raise the limit or take fewer questions, then run the same "
    "command again"
)


if __name__ == "__main__":
    sys.exit(main())
