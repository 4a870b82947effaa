"""A slip in a name is answered with the name that was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import suffice
from suffice.cli.main import main
from suffice.errors import DataError, SufficeError, UsageError
from suffice.evaluation.settings import ChoiceSettings
from suffice.options import as_share
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.traces import random_records
from suffice.trace.rounds.writer import write_traces


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("record") / "traces.parquet"
    write_traces(random_records(12), path)
    return str(path)


def rule(text: str) -> list[str]:
    return ["replay", "TRACES", "--stop-when", text]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["reply", "TRACES"], "replay"),
        (["replay", "TRACES", "--polcy", "fixed-1"], "--policy"),
        (["replay", "TRACES", "--policy", "tsar"], "tasr"),
        (["replay", "TRACES", "--policy", "TASR_corrected"], "tasr-corrected"),
        (["replay", "TRACES", "--split", "Eval"], "eval"),
        (["replay", "TRACES", "--metric", "ems"], "em"),
        (["search", "TRACES", "--signals", "overlp"], "overlap"),
        (["search", "TRACES", "--signals", "overlap", "--form", "andd"], "and"),
        (["fit", "tsar", "TRACES", "--out", "p.json"], "tasr"),
        (["fit", "tasr", "TRACES", "--ot", "p.json"], "--out"),
        (["fit", "tasr", "TRACES", "--out", "p.json", "--split", "tuned"], "tune"),
        (["report", "TRACES", "--out", "r.html", "--parts", "cost"], "costs"),
        (["ask", "Who?", "--corpus", ".", "--llm", "scripted", "--policy", "tsar"], "tasr"),
        (rule("overlap = 1"), "=="),
        (rule("overlap => 0.2"), ">="),
        (rule("overlap \N{GREATER-THAN OR EQUAL TO} 0.2"), ">="),
        (rule("answer_stable && overlap > 0.2"), "and"),
        (rule("answer_stable || abstained"), "or"),
        (rule("!abstained"), "not"),
        (rule("answer_stable AND abstained"), "and"),
        (rule("calibrate(overlap) > 0.2"), "calibrated"),
        (rule("Answer_Stable"), "answer_stable"),
    ],
)
def test_the_command_line_says_what_was_meant(
    traces: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: list[str],
    meant: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main([traces if word == "TRACES" else word for word in words])
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    said = " ".join(printed.err.replace('"', "'").split()).lower()
    assert any(f"did you mean {text}" in said for text in (repr(meant), f"{meant}?", f"{meant} "))


def test_python_says_what_was_meant(traces: str) -> None:
    with pytest.raises(AttributeError, match="'choose'"):
        suffice.chose  # noqa: B018
    with pytest.raises(SufficeError, match="'tasr'"):
        suffice.fit("tsar", traces)
    with pytest.raises(SufficeError, match="'answer_stable'"):
        suffice.search(traces, "answer_stabel")
    with pytest.raises(SufficeError, match="'mine'"):
        suffice.Rule(rule="mien > 0.2", own_signals=("mine",))


# --- near misses whose meaning is clear are taken ---------------------------------------------------
@pytest.mark.parametrize(
    ("given", "meant"), [("2%", 0.02), ("0.02", 0.02), (" 95 %", 0.95), ("100%", 1.0), (1, 1.0)]
)
def test_a_share_is_a_number_or_in_percent(given: float | str, meant: float) -> None:
    assert as_share(given) == meant


def test_shares_in_percent_are_what_is_promised_and_drawn(traces: str, tmp_path: Path) -> None:
    settings = ChoiceSettings(max_loss="2%", confidence="90%")  # type: ignore[arg-type]
    assert (settings.max_loss, settings.confidence) == (0.02, 0.9)
    with pytest.raises(UsageError, match="max_loss"):
        ChoiceSettings(max_loss=2)
    words = ["traces", "split", traces, "--splits", "a=25%,b=0.75", "--replace", "--out"]
    assert main([*words, str(tmp_path / "drawn")]) == 0
    assert suffice.read(tmp_path / "drawn").splits == {"a": 3, "b": 9}


@pytest.mark.parametrize(
    ("named", "stops"), [("fixed-2", 2), ("answer_stable", 3), ("round >= 1", 1)]
)
def test_a_policy_is_taken_by_its_name_or_its_rule(named: str, stops: int) -> None:
    watch = suffice.Watch(named, mode="live", max_rounds=4)
    controller, loaded = suffice.Controller(named), suffice.Controller.load(named)
    with watch.question("Where?", gold_answers=None) as loop:  # type: ignore[arg-type]
        for answer in ("Oslo", "Skien", "Skien", "Skien"):
            decision = loop.observe(answer=answer)
            done = suffice.Round(answer=answer)
            assert controller.observe(done).stop == loaded.observe(done).stop == decision.stop
            if decision.stop:
                break
    assert len(loop.rounds) == stops
    assert suffice.Watch("fixed-2").policy == FixedPolicy(2)


@pytest.mark.parametrize(
    ("named", "told"),
    [("tasr", "suffice fit tasr"), ("fixd-3", "fixed-3"), ("nowhere.json", "nowhere.json")],
)
def test_what_is_no_policy_by_itself_is_told_what_to_type(named: str, told: str) -> None:
    for take in (suffice.Watch, suffice.Controller, suffice.Controller.load):
        with pytest.raises((UsageError, DataError), match=told):
            take(named)


@pytest.mark.parametrize(
    ("gold", "answers"),
    [(None, ()), ("Oslo", ("Oslo",)), (["Oslo", "Christiania"], ("Oslo", "Christiania"))],
)
def test_gold_is_given_as_it_is_at_hand(
    gold: Any, answers: tuple[str, ...], tmp_path: Path
) -> None:
    question = suffice.Question(id="q", text="Where?")
    record = suffice.QuestionRecord(
        question=question, gold=gold, rounds=(suffice.Round(answer="Oslo"),)
    )
    assert record.gold == suffice.Gold(answers=answers)
    suffice.write([record], tmp_path / "t.parquet")
    (read,) = suffice.read(tmp_path / "t.parquet").records()
    assert read.gold.answers == answers
    assert suffice.Gold(answers=None) == suffice.Gold()  # type: ignore[arg-type]
    with pytest.raises(DataError) as refusal:
        suffice.QuestionRecord(question="Where?", rounds=())  # type: ignore[arg-type]
    assert refusal.value.column == "question"
