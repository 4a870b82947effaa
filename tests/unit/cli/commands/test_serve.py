"""``suffice serve --check``: what would be served, or what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffice import Rule, Watch
from suffice.cli.main import main
from suffice.policies.policy_file import save_policy

pytest.importorskip("bm25s")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("Skien is a town.\n\nOslo is a city.", encoding="utf-8")


def check(*words: str) -> int:
    return main(["serve", "--llm", "scripted", "--check", *words])


def test_what_would_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    Path("serve.toml").write_text(
        "port = 9001\n[policies]\nquick = 'fixed-2'\n[retrieval]\ncorpus = 'notes'\n", "utf-8"
    )
    assert check("--config", "serve.toml", "--host", "localhost", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["address"] == "http://localhost:9001/v1"
    assert told["policies"]["quick"]["max_rounds"] == 2
    assert check("--corpus", "notes", "--policy", "answer_stable", "--policy", "b=fixed-1") == 0
    said = capsys.readouterr().out
    assert "answer_stable" in said
    assert "suffice/b: policy always 1 round" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--corpus PATH"),
        (("--policy", "fixed-2"), "--policy"),
        (("--corpus", "notes", "--policy", "fixedd-2"), "did you mean"),
        (("--corpus", "notes", "--policy", "a=fixed-2", "--policy", "a=fixed-3"), "a=fixed-3"),
        (("--corpus", "notes", "--policy", "x=tasr"), "fitted"),
        (("--corpus", "notes", "--config", "none.toml"), "none.toml"),
    ],
)
def test_what_is_wrong(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(*words) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    record = ("--record", "notes/a.txt/r")
    assert check("--corpus", "notes", *record) == 1
    assert main(["serve", "--policy", "answer_stable", "--port", "0", *record]) == 1
    for line in capsys.readouterr().err.strip().splitlines():
        assert "notes/a.txt/r" in line
        assert "Not a directory" in line


@pytest.fixture
def live(tmp_path: Path) -> tuple[str, str]:
    """A record that a rule stopped in round 1, wrongly, with 70% explored; and the rule's file."""
    rule = Rule(rule="round >= 1")
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
    lines = tmp_path / "alarms.jsonl"
    told = ["--alarms", str(lines), "--first", "10", "--max-loss", "0.1"]
    for _ in range(2):  # the second has nothing to add
        assert main(["monitor", record, "--policy", rule, *told, "--json", "--fail-on-alarm"]) == 1
    shown = capsys.readouterr()
    first, second = (json.loads(text) for text in shown.out.replace("}\n{", "}\x00{").split("\x00"))
    assert first == second
    assert (first["questions"], first["labelled"], first["waiting_for_labels"]) == (40, 26, 0)
    assert first["loss"]["estimate"] == 1.0
    (alarm,) = map(json.loads, lines.read_text().splitlines())
    assert (alarm["alarm"], alarm["evidence"]["promised"]) == ("loss", 0.1)
    assert shown.err.count("loss alarm: stopping loses more than promised") == 1
    assert main(["monitor", record, "--policy", rule, "--reference", record]) == 0
    assert "100.0 [" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("rule", ["answer_repeats", "fixed-2"])
def test_a_rule_is_watched_by_its_text(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Watch(rule, record=tmp_path / "live", mode="live", max_rounds=3) as watch:
        for number in range(4):
            with watch.question(f"{number}?") as loop:
                while not loop.done:
                    loop.observe(answer="yes")
    assert main(["monitor", str(tmp_path / "live"), "--policy", rule, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["questions"], told["early"], told["others"]) == (4, 4, 0)
    assert main(["monitor", str(tmp_path / "live"), "--policy", "answer_repeat"]) == 2
    assert "answer_repeats" in capsys.readouterr().err


def test_following_ends_with_an_interrupt(
    live: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    record, rule = live
    monkeypatch.setattr("suffice.cli.commands.monitor.time.sleep", interrupted)
    assert main(["monitor", record, "--policy", rule, "--follow", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["questions"] == 40
