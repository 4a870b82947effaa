"""How a command ends: without streams, on a full one, by a signal, for want of memory; and what there is."""

from __future__ import annotations

import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suffice.cli.commands import fit_policies as fit
from suffice.cli.main import COMMANDS, build_app, main
from suffice.cli.output import in_form, print_json, print_lines
from suffice.cli.shared_options import written_policy
from suffice.policies.policy_file import load_policy
from suffice.policies.registry import method_names
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.results.table import Column, Table
from suffice.stats.intervals import Interval
from suffice.testing.traces import make_record, to_trace_set


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
    usual = signal.default_int_handler if name == "SIGINT" else signal.SIG_DFL
    before = signal.signal(number, usual)  # whoever runs the tests may ignore it, as nohup does
    try:
        assert ending(lambda: os.kill(os.getpid(), number), monkeypatch) == code
        assert capsys.readouterr().err == "suffice policies: interrupted\n"
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs the signals of a POSIX system")
def test_under_nohup_a_hangup_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending(lambda: os.kill(os.getpid(), signal.SIGHUP), monkeypatch) == 0
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_stderr_that_is_full_ends_no_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys.stderr, "write", refuse)
    assert main(["replay", "nothing.parquet"]) == 2


class Full(io.StringIO):
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
    references = {"fixed-K", "oracle-em", "oracle-f1", "oracle-score", "closed-book", "certified"}
    assert set(listed) == references | set(fit.NAMES) > set(method_names())
    assert listed["tasr"]["presets"] == "published, corrected"
    assert listed["tasr"]["fitted_on"] == "tune"
    named_in = {"ab-rag": "fit, replay, ask", "rule": "fit", "certified": "choose"}
    assert {name: listed[name]["used"] for name in named_in} == named_in
    assert main(["policies"]) == 0
    assert "NAME-corrected" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("report", "nowhere", "--out", "folder"),
        ("record", "--dataset", "generated", "--out", "t", "--cache", "folder"),
        ("demo", "--out", "file"),
        ("ask", "Who?", "--corpus", "nowhere", "--index", "file"),
    ],
)
def test_it_fails_before_the_work(
    words: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    # the traces do not exist either: the place is looked at before them
    assert main(words) == 2
    said = capsys.readouterr().err
    option = words[-2]
    assert f"{option}: {words[-1]}" in said
    assert "write" in said or "name another place" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "suffice", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("suffice ")


def test_no_command_has_an_out_without_the_check() -> None:
    for name in COMMANDS:
        app = build_app(name)[name]
        inner = [app[word] for word in app if not word.startswith("-")]
        for one in inner or [app]:
            for option in one.default_command.options:  # type: ignore[union-attr]
                if option.flag == "--out":
                    assert "out_path" in option.option.parse.__qualname__, one.name


@pytest.mark.parametrize(("stated", "budget"), [({}, 3), ({"rounds": 7}, 7)])
def test_a_policys_file_states_the_full_budget_and_never_its_own_stop(
    stated: dict[str, int], budget: int, tmp_path: Path
) -> None:
    traces = to_trace_set([make_record("a", ["x", "y", "z"])])
    traces = replace(traces, origin=replace(traces.origin, run=stated))
    for policy in (FixedPolicy(1), Rule(rule="round >= 2")):
        written = written_policy(str(tmp_path / "policy.json"), policy, traces)
        assert load_policy(written["out"]).max_rounds == budget


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the numbers, as a record with infinite signals gives them."""
    print_json({"answer": "Århus", "f1": None})
    assert "Århus" in capsys.readouterr().out
    print_json({"d": math.inf, "r": [-math.inf, math.nan], "rows": ({"x": 1.5},)})
    read = json.loads(capsys.readouterr().out)
    assert read == {"d": "inf", "r": ["-inf", None], "rows": [{"x": 1.5}]}


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr("suffice.cli.output.on_terminal", lambda _: True)


GAIN = Table(
    name="gain",
    title="A title",
    columns=(
        Column(name="policy", head="p" * 70),
        Column(name="gain", kind="points", interval=True, head="g" * 40),
    ),
    rows=(("a", Interval(estimate=0.1, low=0.05, high=0.2)),),
)


@pytest.mark.usefixtures("terminal")
def test_a_terminal_gets_its_width_and_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    text = in_form([GAIN], "text")
    assert text.startswith("\x1b[1mA title\x1b[0m\n")
    assert "\x1b[32m+10.0 [5.0, 20.0]\x1b[0m" in text
    assert max(map(len, re.sub("\x1b.*?m", "", text).split("\n"))) == 112
    assert "\x1b" not in in_form([GAIN], "csv") + in_form([GAIN], "markdown")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in in_form([GAIN], "text")
    monkeypatch.setenv("NO_COLOR", "")
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in in_form([GAIN], "text")


def test_a_sentence_stands_in_lines_that_fit_and_no_word_is_broken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "one two-three " * 9 + "x" * 90
    print_lines(text, lead="  note   ", indent=9)
    *lines, last = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("  note   one two-three")
    assert all(line.startswith(" " * 9 + "one") or "two-three" in line for line in lines[1:])
    assert last == " " * 9 + "x" * 90
