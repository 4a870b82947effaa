"""The ``suffice`` command."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import signal
import sys
from collections.abc import Collection, Sequence

from suffice._version import VERSION
from suffice.cli.output import (
    INTERRUPTED,
    ended_by_signals,
    one_line_warnings,
    open_standard_streams,
    say,
)
from suffice.cli.parser import Parser
from suffice.errors import SufficeError, UsageError

COMMANDS = {
    "demo": "the whole story on a small model in this process",
    "ask": "answer a question over your own files",
    "serve": "adaptive answers over HTTP, for OpenAI's clients",
    "record": "record full-budget rounds of a data set",
    "probe": "ask a model for an answer in every recorded round",
    "traces": "what is in a record; check, split, join, narrow, import, export it",
    "policies": "list every policy: what it does and needs",
    "signals": "compute signals and store them in the trace",
    "diagnose": "what signals say about right and wrong answers",
    "choose": "from a record to one policy, with a promise",
    "fit": "calibrate, train or certify a policy on the tune split",
    "replay": "score policies on recorded rounds",
    "search": "enumerate stopping rules exhaustively",
    "measure": "",  # every command does it when it needs to
    "sweep": "sweep the open number of a rule",
    "report": "compare policies in one HTML file",
    "view": "look at a record in the browser",
    "monitor": "whether a promise of coverage still holds in use",
}
"""Every command with its line of help (empty: not listed): a module of ``suffice.cli.commands``."""


def build_parser(commands: Collection[str] = frozenset(COMMANDS)) -> argparse.ArgumentParser:
    """The parser, with the options of these commands; of the others it knows the names."""
    parser = Parser(
        prog="suffice",
        description="Decides when an iterative retrieval loop has seen enough: record a loop once, "
        "replay every stopping policy on the record, run the chosen one live.",
        epilog="Start with 'suffice demo'. Where a command takes TRACES, 'example' is the record that comes "
        "with suffice: 'suffice choose example --out chosen'. Exit codes: 0 done, 1 the work failed, 2 wrong "
        "usage or invalid input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"suffice {VERSION}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        added = choices.add_parser(name, help=line) if line else choices.add_parser(name)
        if name in commands:
            importlib.import_module(f"suffice.cli.commands.{name}").add_options(added)
    return parser


_MEASURING = frozenset(
    {"choose", "diagnose", "fit", "measure", "replay", "report", "search", "sweep", "view"}
)
_READING = _MEASURING | {
    *("demo", "monitor", "probe", "record", "serve", "signals", "traces"),
}


class _NoPandas:
    """Finds no pandas."""

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


def main(argv: Sequence[str] | None = None, *, parser: Parser | None = None) -> int:
    """Run a command, or the one that the ``parser`` reads; the exit code."""
    words = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in words if not word.startswith("-")), "")
    lead = f"suffice {chosen}:" if parser is None else f"{parser.prog}:"
    if chosen in _MEASURING:
        # of many small products: threads of each would wait for one another, for up to 100 times as long
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    open_standard_streams()
    with ended_by_signals() as signals:
        try:
            if parser is None and chosen == "bench":
                raise UsageError(
                    "the published experiments are run from a checkout of the repository: type python -m "
                    "studies.NAME, as in python -m studies.hidden_constraints --json"
                )
            arguments = (parser or build_parser({chosen})).parse_args(
                [*map(_without_password, words)]
            )
            one_line_warnings()
            if argv is None and chosen in _READING and "pandas" not in sys.modules:
                _without_pandas()
            code: int = arguments.run(arguments)
            sys.stdout.flush()
        except SufficeError as error:
            say(" ".join(str(error).split()), lead=lead)
            code = error.exit_code
        except BrokenPipeError:
            # the reader of our output has gone; nothing is left to say to it
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 1
        except OSError as error:
            say(_refused(error), lead=lead)
            code = 1
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and _NO_THREAD not in str(error):
                raise
            say(_TOO_LITTLE_MEMORY, lead=lead)
            code = 1
        except KeyboardInterrupt:
            say("interrupted", lead=lead)
            code = INTERRUPTED
    if argv is None:  # Python's own end takes a while, in which an interrupt would be a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return signals.code(code)


def _without_password(word: str) -> str:
    """A word of the command line, which pages and errors may show; an address keeps its password apart."""
    option, mark, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if not value.startswith(("postgres:", "postgresql:")):
        return word
    from suffice.trace.postgres import as_place

    return f"{option}{mark}{as_place(value)}"


_NO_THREAD = "can't start new thread"  # Python's own words
_TOO_LITTLE_MEMORY = (
    "there is too little memory; end other programs or raise the limit, or take fewer questions, then run "
    "the same command again"
)


def _refused(error: OSError) -> str:
    """What the system refused, of which file, and what to do."""
    told = f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror or error)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        what = "" if error.filename else "a file, or standard output: "
        return f"cannot write {what}{told}; make room or choose another place, and run the same command again"
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"{told}; choose another place, or change who may read and write this one"
    if error.errno == errno.ENOENT and not error.filename:
        return f"{told}; make room there, or name another folder in the variable TMPDIR"
    return told


if __name__ == "__main__":
    sys.exit(main())
