"""Every command that prints tables or a fit keeps within 80 columns where there is no terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.cli.main import main

TRACES = str(Path(__file__).parents[4] / "examples" / "traces")
RULE = "answer_stable and not abstained and overlap > 0.3 or calibrated(answer_token_margin) > 0.25"
SIGNALS = "answer_stable,overlap,margin_mean"
COMMANDS = (
    ["replay", TRACES, "--policy", "tasr", "--stop-when", RULE, "--cost", "usd",
     "--prices", "input=0.15,output=0.6", "--macro", TRACES],
    ["search", TRACES, "--signals", SIGNALS, "--form", "dnf", "--top", "4", "--report-naive"],
    ["sweep", TRACES, "--rule", "answer_stable and calibrated(answer_token_margin) > ?"],
    ["diagnose", TRACES, "--signals", SIGNALS, "--policy", "tasr", "--stop-when", RULE],
    ["fit", "certified", TRACES, "--max-loss", "0.02", "--confidence", "0.95"],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_line_is_longer_than_80(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = ["--out", str(tmp_path / "p.json")] if command[0] == "fit" else []
    assert main([*command, "--bootstrap", "10", *more]) == 0
    # but for the path written
    lines = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path) not in line]
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) > 20
