"""A place that cannot be written is refused by the parser, before any work, in every command."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from suffice.cli.main import COMMANDS, build_parser, main
from suffice.cli.options import write_policy
from suffice.cli.parser import Parser
from suffice.policies.file import load_policy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.testing.traces import make_record, to_trace_set


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "tasr", "nowhere", "--out", "x.txt"),
        ("report", "nowhere", "--out", "folder"),
        ("record", "--dataset", "generated", "--out", "traces.txt"),
        ("record", "--dataset", "generated", "--out", "t", "--cache", "folder"),
        ("signals", "nowhere", "--out", "traces.csv"),
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
    with pytest.raises(SystemExit) as ended:
        main(words)  # the traces do not exist either: the place is looked at before them
    assert ended.value.code == 2
    said = capsys.readouterr().err
    option = words[-2]
    assert f"argument {option}: {words[-1]}" in said
    assert "write" in said or "name another place" in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "suffice", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("suffice ")


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser.prepared(("tasr",)) if isinstance(parser, Parser) else parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _parsers(inner)


def test_no_command_has_an_out_without_the_check() -> None:
    for parser in _parsers(build_parser(COMMANDS)):
        for action in parser._actions:
            if "--out" in action.option_strings:
                assert "out_path" in getattr(action.type, "__qualname__", ""), parser.prog


@pytest.mark.parametrize(("stated", "budget"), [({}, 3), ({"rounds": 7}, 7)])
def test_a_policys_file_states_the_full_budget_and_never_its_own_stop(
    stated: dict[str, int], budget: int, tmp_path: Path
) -> None:
    traces = to_trace_set([make_record("a", ["x", "y", "z"])])
    traces = replace(traces, origin=replace(traces.origin, run=stated))
    for policy in (FixedPolicy(1), RulePolicy(rule="round >= 2")):
        written = write_policy(str(tmp_path / "policy.json"), policy, traces)
        assert load_policy(written["out"]).max_rounds == budget
