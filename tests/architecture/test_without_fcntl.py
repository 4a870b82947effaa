"""Everything works where there are no POSIX file locks, as on Windows."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import RulePolicy
from suffice.testing.traces import make_record
from suffice.trace.rounds.writer import write_traces

WITHOUT = """
    import sys
    sys.modules["fcntl"] = None  # importing it fails from here on
    import suffice
    from suffice.trace.durable import replace_file
    from suffice.trace.rounds.writer import question_writer, write_traces

    traces, policy, out = sys.argv[1:]
"""


def run(code: str, *arguments: Path) -> str:
    program = textwrap.dedent(WITHOUT) + textwrap.dedent(code)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A trace set, a policy file, and a place that is free."""
    records = [
        make_record(f"q{n}", ["Rome", "Oslo", "Oslo"], gold=["Oslo"], split="eval")
        for n in range(3)
    ]
    write_traces(records, tmp_path / "traces")
    save_policy(RulePolicy(rule="answer_stable"), tmp_path / "policy.json")
    return tmp_path / "traces", tmp_path / "policy.json", tmp_path / "out"


def test_traces_are_read_written_and_replayed(places: tuple[Path, Path, Path]) -> None:
    code = """
        found = suffice.read_traces(traces)
        write_traces(found.records(), out)
        assert suffice.read_traces(out).n_questions == 3
        from suffice.cli.main import main
        raise SystemExit(main(["replay", traces, "--policy", policy, "--bootstrap", "20"]))
    """
    assert "paired resamples" in run(code, *places)


def test_a_policy_decides(places: tuple[Path, Path, Path]) -> None:
    code = """
        controller = suffice.Controller(suffice.load_policy(policy).policy, max_rounds=5)
        loop = controller.start("Where?")
        for answer in ("Rome", "Oslo", "Oslo"):
            print(loop.observe(suffice.Round(answer=answer)).stop)
    """
    assert run(code, *places) == "False\nFalse\nTrue\n"


def test_a_recording_goes_on(places: tuple[Path, Path, Path]) -> None:
    code = """
        first, *rest = suffice.read_traces(traces).records()
        for records in ([first], rest):
            with question_writer(out, run={}) as writer:
                writer.add([writer.stored(record) for record in records])
        assert suffice.read_traces(out).n_questions == 3
    """
    run(code, *places)
