"""A slip in a name is answered with the name that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

import suffice
from suffice.cli.main import main
from suffice.errors import SufficeError
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
        (["replay", "TRACES", "--stop_when", "answer_stable"], "--stop-when"),
        (["replay", "TRACES", "--policy", "tsar"], "tasr"),
        (["replay", "TRACES", "--policy", "TASR_corrected"], "tasr-corrected"),
        (["replay", "TRACES", "--split", "Eval"], "eval"),
        (["replay", "TRACES", "--metric", "ems"], "em"),
        (["search", "TRACES", "--signals", "overlp"], "overlap"),
        (["search", "TRACES", "--signals", "overlap", "--form", "andd"], "and"),
        (["fit", "tsar", "TRACES", "--out", "p.json"], "tasr"),
        (["fit", "tasr", "TRACES", "--ot", "p.json"], "--out"),
        (["fit", "tasr", "TRACES", "--out", "p.json", "--splt", "tune"], "--split"),
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
        (rule("NOT abstained"), "not"),
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
    try:
        code: object = main([traces if word == "TRACES" else word for word in words])
    except SystemExit as error:
        code = error.code
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, "")
    assert f"did you mean {meant!r}" in " ".join(printed.err.split())


def test_an_open_number_is_sent_to_sweep(traces: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", traces, "--stop-when", "overlap > ?"]) == 2
    assert "suffice sweep TRACES --rule RULE" in " ".join(capsys.readouterr().err.split())


def test_python_says_what_was_meant(traces: str) -> None:
    with pytest.raises(AttributeError, match="did you mean 'compare'"):
        suffice.comprae  # noqa: B018
    with pytest.raises(SufficeError, match="did you mean 'tasr'"):
        suffice.fit_method("tsar", traces, "corrected", "tune")
    with pytest.raises(SufficeError, match="did you mean 'answer_stable'"):
        suffice.search(traces, suffice.SearchSettings(signals="answer_stabel"))  # type: ignore[arg-type]
    with pytest.raises(SufficeError, match="did you mean 'mine'"):
        suffice.RulePolicy(rule="mien > 0.2", own_signals=("mine",))


def test_a_missing_action_is_answered_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["traces"])
    assert (
        "ACTION, one of info, validate, accept, prune, split, merge, filter, label, redact, import, export"
        in capsys.readouterr().err
    )
