"""``suffice`` as a user types it: within this process, or as a process of its own."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from suffice.cli.main import main

SUFFICE = (sys.executable, "-m", "suffice.cli.main")


def run(*arguments: str | Path) -> CompletedProcess[str]:
    """The exit code and what was printed, without the seconds that a new process takes to start."""
    words = list(map(str, arguments))
    with (
        redirect_stdout(io.StringIO()) as output,
        redirect_stderr(io.StringIO()) as errors,
        warnings.catch_warnings(),
    ):
        try:
            code: Any = main(words)
        except SystemExit as end:
            code = end.code or 0
    return CompletedProcess(words, code, output.getvalue(), errors.getvalue())


def run_process(*arguments: str | Path) -> CompletedProcess[str]:
    """The same from a process of its own."""
    return subprocess.run(
        [*SUFFICE, *map(str, arguments)], capture_output=True, text=True, check=False
    )


def read_json(done: CompletedProcess[str]) -> Any:
    """The one strict JSON document that a command which succeeded printed."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def run_json(*arguments: str | Path) -> Any:
    """The document of ``suffice ... --json``."""
    return read_json(run(*arguments, "--json"))


def refused(done: CompletedProcess[str], *parts: str) -> None:
    """Exit code 2, nothing on stdout, one line that names the parts."""
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    for part in parts:
        assert part in done.stderr


def forget_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every command loaded again: its options are made of the methods and loops there are."""
    made = ("suffice.cli.commands.", "suffice.cli.retrieval")
    for name in [name for name in sys.modules if name.startswith(made)]:
        monkeypatch.delitem(sys.modules, name)
