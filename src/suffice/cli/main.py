"""The ``suffice`` command."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Collection, Sequence

from suffice._version import VERSION
from suffice.cli.output import INTERRUPTED, one_line_warnings, say
from suffice.cli.parser import Parser
from suffice.errors import SufficeError

COMMANDS = {
    "demo": "the whole story on a small model in this process",
    "ask": "answer a question over your own files",
    "record": "record full-budget rounds of a data set",
    "probe": "ask for the answers that a recorded loop was not asked for",
    "traces": "what is in a record; check, split, join, narrow, import, export it",
    "policies": "list every policy: what it does and needs",
    "signals": "compute signals and store them in the trace",
    "diagnose": "what signals say about right and wrong answers",
    "fit": "calibrate, train or certify a policy on the tune split",
    "replay": "score policies on recorded rounds",
    "search": "enumerate stopping rules exhaustively",
    "measure": "measure a large record once, for the commands that read it",
    "sweep": "sweep the open number of a rule",
    "report": "compare policies in one HTML file",
    "monitor": "whether a promise of coverage still holds in use",
    "bench": "the published experiments",
}
"""Every command with its line of help: a module of ``suffice.cli.commands``, imported when chosen."""


def build_parser(commands: Collection[str] = frozenset(COMMANDS)) -> argparse.ArgumentParser:
    """The parser, with the options of these commands; of the others it knows the names."""
    parser = Parser(
        prog="suffice",
        description="Decides when an iterative retrieval loop has seen enough: record a loop once, "
        "replay every stopping policy on the record, run the chosen one live.",
        epilog="Start with 'suffice demo'. Exit codes: 0 done, 1 the work failed, 2 wrong usage or "
        "invalid input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"suffice {VERSION}")
    choices = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, line in COMMANDS.items():
        if name in commands:
            module = importlib.import_module(f"suffice.cli.commands.{name}")
            module.add_options(choices.add_parser(name, help=line))
        else:
            choices.add_parser(name, help=line)
    return parser


_MEASURING = frozenset({"diagnose", "fit", "measure", "replay", "report", "search", "sweep"})


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    words = sys.argv[1:] if argv is None else argv
    chosen = next((word for word in words if not word.startswith("-")), "")
    if chosen in _MEASURING:
        # of many small products: threads of each would wait for one another, for up to 100 times as long
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    arguments = build_parser({chosen}).parse_args(words)
    one_line_warnings()
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except SufficeError as error:
        say(" ".join(str(error).split()), lead=f"suffice {arguments.command}:")
        return error.exit_code
    except BrokenPipeError:
        # the reader of our output has gone; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        say(str(error), lead=f"suffice {arguments.command}:")
        return 1
    except KeyboardInterrupt:
        say("interrupted", lead=f"suffice {arguments.command}:")
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
