"""Everything works where there are no POSIX file locks, as on Windows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from suffice.policies.policy_file import save_policy
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record
from suffice.trace.rounds.writer import write_traces

PROGRAM = """
import sys
sys.modules["fcntl"] = None  # importing it fails from here on
import suffice
from suffice.cli.main import main
from suffice.trace.rounds.writer import question_writer
traces, policy, out = sys.argv[1:]
first, *rest = suffice.read(traces).records()
for records in ([first], rest):  # the second recorder goes on
    with question_writer(out, run={}) as writer:
        writer.add([writer.stored(record) for record in records])
assert suffice.read(out).n_questions == 3
loop = suffice.Controller(suffice.load_policy(policy).policy, max_rounds=5).start("Where?")
stops = [loop.observe(suffice.Round(answer=answer)).stop for answer in ("Rome", "Oslo", "Oslo")]
assert stops == [False, False, True]
raise SystemExit(main(["replay", traces, "--policy", policy, "--bootstrap", "20"]))
"""


def test_traces_are_read_written_and_replayed_and_a_policy_decides(tmp_path: Path) -> None:
    traces, policy, out = (tmp_path / name for name in ("traces", "policy.json", "out"))
    answers = ["Rome", "Oslo", "Oslo"]
    write_traces(
        [make_record(f"q{n}", answers, gold=["Oslo"], split="eval") for n in range(3)], traces
    )
    save_policy(Rule(rule="answer_stable"), policy)
    words = map(str, (traces, policy, out))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "paired resamples" in done.stdout
