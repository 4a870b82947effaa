"""``suffice monitor``: one document or a table, alarms on stderr, states, exit codes."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commands import refused, run

from suffice import RulePolicy, Watch
from suffice.cli.main import main
from suffice.policies.file import save_policy
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.stats.conformal import Threshold


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    fitted = {
        "calibration_questions": 100,
        "first_round_scores": {"values": [0.0, 0.5], "counts": [60, 40]},
    }
    made = MiCPPolicy(
        alpha=0.1, rounds=2, samples=5, stops=(Threshold(0.2),), final=0.2, fitted_on=fitted
    )
    return save_policy(made, tmp_path / "policy.json")


def written(path: Path, documents: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in documents), encoding="utf-8")
    return path


GOOD = [{"covered": n % 10 > 0, "score": 0.5 * (n % 5 > 2)} for n in range(200)]
FALLEN = [{"covered": n % 2 > 0} for n in range(100)]


def test_a_kept_promise(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = written(tmp_path / "a.jsonl", GOOD)
    assert main(["monitor", str(policy), str(answers), "--json", "--fail-on-alarm"]) == 0
    shown = capsys.readouterr()
    found = json.loads(shown.out, parse_constant=pytest.fail)
    assert shown.err == ""
    assert (found["answers"], found["labelled"], found["misses"]) == (200, 200, 20)
    assert found["coverage"]["estimate"] == 0.9
    assert found["alarm"] is False
    assert [each["kind"] for each in found["monitors"]] == ["coverage", "exchangeability"]
    assert [each["taken"] for each in found["monitors"]] == [200, 200]
    assert found["skipped"] == 0


def test_a_broken_one_from_stdin(
    policy: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(json.dumps(each) + "\n" for each in (*GOOD, *FALLEN))
    for more, code in (((), 0), (("--fail-on-alarm",), 1)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["monitor", str(policy.parent), "-", *more]) == code
        shown = capsys.readouterr()
        at = int(shown.err.split(":", maxsplit=1)[0].removeprefix("answer "))
        assert 200 < at < 300
        assert f"at answer {at}" in shown.out


def test_a_state_goes_on(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = written(tmp_path / "whole.jsonl", [*GOOD, *FALLEN])
    parts = [written(tmp_path / "1.jsonl", GOOD), written(tmp_path / "2.jsonl", FALLEN)]
    state = tmp_path / "state.json"
    main(["monitor", str(policy), str(whole), "--json"])
    through = capsys.readouterr().out
    for part in parts:
        assert main(["monitor", str(policy), str(part), "--json", "--state", str(state)]) == 0
    assert capsys.readouterr().out.endswith(through)
    for text, says in (("{", "not JSON"), ("{}", "suffice_watch")):
        state.write_text(text, encoding="utf-8")
        assert main(["monitor", str(policy), str(parts[0]), "--state", str(state)]) == 2
        shown = capsys.readouterr().err
        assert "state.json" in shown
        assert says in shown
        assert state.read_text(encoding="utf-8") == text


def test_invalid_lines(policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answers = tmp_path / "a.jsonl"
    answers.write_text('{"covered": true}\n{"covered": 1}\n', encoding="utf-8")
    assert main(["monitor", str(policy), str(answers)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert main(["monitor", str(policy), str(answers), "--json", "--skip-invalid"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["skipped"] == 1
    assert "skipped 1 invalid lines" in shown.err


def test_bad_usage(policy: Path, tmp_path: Path) -> None:
    answers = written(tmp_path / "a.jsonl", GOOD)
    fixed = save_policy(FixedPolicy(2), tmp_path / "fixed.json")
    no_count = tmp_path / "old.json"
    body = json.loads(policy.read_text(encoding="utf-8"))
    no_count.write_text(json.dumps({**body, "fitted_on": {}}), encoding="utf-8")
    for arguments, says in (
        ([fixed, answers], "promises no coverage"),
        ([no_count, answers], "fitted_on.calibration_questions"),
        ([policy, tmp_path / "none.jsonl"], "none.jsonl"),
        ([policy, tmp_path], "cannot be read"),
        ([policy, answers, "--level", "0"], "level must lie strictly between 0 and 1"),
    ):
        refused(run("monitor", *map(str, arguments)), says)


# --- a record ------------------------------------------------------------------------------------
@pytest.fixture
def live(tmp_path: Path) -> tuple[str, str]:
    """A record that a rule stopped in round 1, wrongly, with 70% explored; and the rule's file."""
    rule = RulePolicy(rule="round >= 1")
    with Watch(rule, record=tmp_path / "live", mode="live", explore=0.7, max_rounds=2) as watch:
        for number in range(40):
            with watch.question(f"{number}?", question_id=f"q{number}") as loop:
                while not loop.done:
                    loop.observe(answer="yes" if loop.rounds else "no")
            watch.label(loop.question_id, gold_answers=["yes"])
    file = save_policy(rule, tmp_path / "rule.json", max_rounds=2)
    return str(tmp_path / "live"), str(file)


def test_a_record_is_watched_and_its_alarms_are_lines(
    live: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record, rule = live
    lines, state = tmp_path / "alarms.jsonl", tmp_path / "state.json"
    told = ["--alarms", str(lines), "--state", str(state), "--first", "10", "--max-loss", "0.1"]
    for _ in range(2):  # the second has nothing to add
        assert main(["monitor", record, "--policy", rule, *told, "--json", "--fail-on-alarm"]) == 1
    shown = capsys.readouterr()
    first, second = (json.loads(text) for text in shown.out.replace("}\n{", "}\x00{").split("\x00"))
    assert first == second
    assert (first["questions"], first["labelled"], first["waiting_for_labels"]) == (40, 26, 0)
    assert first["loss"]["estimate"] == 1.0
    (alarm,) = map(json.loads, lines.read_text().splitlines())
    assert (alarm["alarm"], alarm["evidence"]["promised"]) == ("loss", 0.1)
    assert shown.err.count("loss alarm: stopping loses more than was promised") == 1
    assert main(["monitor", record, "--policy", rule, "--reference", record]) == 0
    assert "100.0 [" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["x"], "POLICY and ANSWERS"),
        (["x", "y", "--policy", "{rule}"], "found 2"),
        (["nowhere", "--policy", "{rule}"], "--follow"),
        (["{record}", "--policy", "{rule}", "--metric", "best"], "no metric 'best'"),
        (["{record}", "--policy", "{rule}", "--webhook", "http://x.org/"], "https only"),
    ],
)
def test_what_cannot_be_watched(
    live: tuple[str, str], typed: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record, rule = live
    typed = [word.format(record=record, rule=rule) for word in typed]
    assert main(["monitor", *typed]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
