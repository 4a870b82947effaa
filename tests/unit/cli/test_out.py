"""A place that cannot be written is refused by the parser, before any work, in every command."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from suffice.cli.main import COMMANDS, build_app, main
from suffice.cli.shared_options import written_policy
from suffice.policies.policy_file import load_policy
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.traces import make_record, to_trace_set


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
