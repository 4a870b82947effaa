"""Runs a study of this folder as ``python -m studies.NAME``, with the options of ``suffice bench``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from studies.study import Study
from suffice.cli.commands.bench import declare
from suffice.cli.main import main
from suffice.cli.parser import Parser


def run_study(study: Study[Any], name: str, argv: Sequence[str] | None = None) -> int:
    """Run a study; the exit code."""
    parser = Parser(prog=f"python -m studies.{name}")
    declare(study, parser, experiment=name)
    return main(argv, parser=parser)
