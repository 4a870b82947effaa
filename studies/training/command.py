"""What the commands that train a network share: options from settings, refusals, output."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.errors import SufficeError
from suffice.results.as_json import as_json
from suffice.results.markup import visible


@dataclass(frozen=True, slots=True)
class NumberOption:
    """A number of the settings and what it is, for the help."""

    field: str
    kind: type[int] | type[float]
    about: str


def training_parser(
    module: str, description: str, settings: object, numbers: Sequence[NumberOption]
) -> argparse.ArgumentParser:
    """A parser with an option for each number, whose default is that of ``settings``, and ``--json``."""
    parser = argparse.ArgumentParser(
        prog=f"python -m studies.training.{module}", description=description
    )
    for number in numbers:
        default = getattr(settings, number.field)
        parser.add_argument(
            f"--{number.field.replace('_', '-')}",
            type=number.kind,
            default=default,
            metavar="N",
            help=f"{number.about} (default: {default})",
        )
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


def run_training(
    name: str,
    arguments: argparse.Namespace,
    run: Callable[[argparse.Namespace], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
) -> int:
    """Run a command that gives one document, and print it; the exit code."""
    try:
        document = run(arguments)
    except (SufficeError, OSError) as error:
        sys.stderr.write(visible(f"{name}: {' '.join(str(error).split())}\n"))
        return error.exit_code if isinstance(error, SufficeError) else 1
    shown = (
        json.dumps(as_json(document), indent=1, allow_nan=False)
        if arguments.json
        else table(document)
    )
    sys.stdout.write(f"{shown}\n")
    return 0
