"""The ``suffice`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from suffice._version import VERSION
from suffice.cli.commands import (
    ask,
    bench,
    demo,
    diagnose,
    fit,
    monitor,
    record,
    replay,
    report,
    search,
    signals,
    sweep,
    traces,
)
from suffice.cli.output import INTERRUPTED, one_line_warnings, say
from suffice.errors import SufficeError

_COMMANDS = (
    demo,
    ask,
    record,
    traces,
    signals,
    diagnose,
    fit,
    replay,
    search,
    sweep,
    report,
    monitor,
    bench,
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see '{self.prog} --help'\n")


def build_parser() -> argparse.ArgumentParser:
    """The parser of every command."""
    parser = _Parser(
        prog="suffice",
        description="Decides when an iterative retrieval loop has seen enough: record a loop once, "
        "replay every stopping policy on the record, run the chosen one live.",
        epilog="Start with 'suffice demo'. Exit codes: 0 done, 1 the work failed, 2 wrong usage or "
        "invalid input, 130 interrupted.",
    )
    parser.add_argument("--version", action="version", version=f"suffice {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in _COMMANDS:
        module.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = build_parser().parse_args(argv)
    one_line_warnings()
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except SufficeError as error:
        say(f"suffice {arguments.command}: {' '.join(str(error).split())}")
        return error.exit_code
    except BrokenPipeError:
        # the reader of our output has gone; nothing is left to say to it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        say(f"suffice {arguments.command}: {error}")
        return 1
    except KeyboardInterrupt:
        say(f"suffice {arguments.command}: interrupted")
        return INTERRUPTED
    return code


if __name__ == "__main__":
    sys.exit(main())
