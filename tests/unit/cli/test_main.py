"""How a command ends: without streams, on a full one, by a signal, for want of memory; and what there is."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pytest

from suffice.cli.commands import fit_policies as fit
from suffice.cli.main import main
from suffice.policies.registry import method_names


def ending(by: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of a command in which this happens."""
    monkeypatch.setattr(fit, "print_result", lambda *_: by())
    return main(["policies"])


def raising(error: BaseException) -> Callable[[], Any]:
    def ended() -> None:
        raise error

    return ended


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(28, "No space left on device", "a.json"), "a.json"),
        (OSError(28, "No space left on device"), "standard"),
        (OSError(30, "Read-only file system", "b"), "system"),
        (OSError(2, "No usable temporary directory found in ['/tmp']"), "directory"),
        (RuntimeError("can't start new thread"), "programs"),
        (MemoryError(), "programs"),
    ],
)
def test_what_the_system_refuses_is_said_with_what_to_do(
    error: BaseException,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ending(raising(error), monkeypatch) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("suffice policies: ")
    assert says in line


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs the signals of a POSIX system")
@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_ends_it_as_ctrl_c_does(
    name: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)
    assert ending(lambda: os.kill(os.getpid(), number), monkeypatch) == code
    assert capsys.readouterr().err == "suffice policies: interrupted\n"
    assert signal.getsignal(number) == before


def test_a_stderr_that_is_full_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.stderr, "write", refuse)
    assert main(["replay", "nothing.parquet"]) == 2


class Full(io.StringIO):
    """A file on a full disk."""

    def flush(self) -> None:
        raise OSError(28, "No space left on device")


def test_a_stdout_that_is_full_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout(Full()):
        assert main(["policies"]) == 1
    assert "standard output: No space left on device" in capsys.readouterr().err


def test_every_policy_is_listed_with_where_it_can_be_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["policies", "--json"]) == 0
    listed = {row["policy"]: row for row in json.loads(capsys.readouterr().out)["policies"]}
    references = {"fixed-K", "oracle-em", "oracle-f1", "closed-book", "certified"}
    assert set(listed) == references | set(fit.NAMES) > set(method_names())
    assert listed["tasr"]["presets"] == "published, corrected"
    assert listed["tasr"]["fitted_on"] == "tune"
    named_in = {"ab-rag": "fit, replay, ask", "rule": "fit", "certified": "choose"}
    assert {name: listed[name]["used"] for name in named_in} == named_in
    assert main(["policies"]) == 0
    assert "NAME-corrected" in capsys.readouterr().out
