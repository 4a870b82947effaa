"""``fit ab-rag`` and ``replay --policy ab-rag``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.studies.ab_rag import study_traces

from suffice.cli.main import main

LACKING = "rerank_variance"


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), study_traces().records()))


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert main([*arguments, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_fit_replay_and_file_agree(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "policy.json")
    fitted = said(
        capsys, "fit", "ab-rag", record, "--out", out, "--support", "evidence_consistency"
    )
    assert fitted["policy"]["preset"] == "corrected"  # type: ignore[index]
    assert fitted["policy"]["threshold"] < 1  # type: ignore[index]
    found = said(capsys, "replay", record, "--policy", out, "--policy", "ab-rag-corrected")
    names = [each["name"] for each in found["policies"]]  # type: ignore[attr-defined]
    assert names[:2] == ["ab-rag-corrected", "ab-rag-corrected#2"]
    assert all("auroc" in each for each in found["policies"][:2])  # type: ignore[index]


def test_the_f1_of_a_threshold_is_stated_and_refused_where_none_is_chosen(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fit = ("fit", "ab-rag", record, "--out", str(tmp_path / "p.json"))
    for kind in ("squad", "hotpotqa"):
        fitted = said(capsys, *fit, "--f1", kind)
        assert fitted["policy"]["fitted_on"]["f1_kind"] == kind  # type: ignore[index]
    given = said(capsys, *fit, "--threshold", "0.5")
    assert "f1_kind" not in given["policy"]["fitted_on"]  # type: ignore[index]
    for more, message in (
        (("--threshold", "0.5"), "a threshold is chosen by, and one is given"),
        (("--preset", "published"), "leave f1 out"),
    ):
        assert main([*fit, "--f1", "squad", *more]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("preset", ["published", "corrected"])
def test_a_signal_that_most_rounds_lack_is_warned_of(
    preset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [
        replace(
            made,
            rounds=tuple(
                replace(each, signals={k: v for k, v in each.signals.items() if k != LACKING})
                for each in made.rounds
            ),
        )
        if number % 8 > 1
        else made
        for number, made in enumerate(study_traces().records())
    ]
    path = str(written_traces(tmp_path, records))
    fit = ["fit", "ab-rag", path, "--preset", preset, "--out", str(tmp_path / "p.json")]
    assert main(fit) == 0
    told = capsys.readouterr().err
    assert f"ab-rag reads {LACKING!r}, which is undefined in 7" in told
    assert "compute it with suffice signals --reranker" in told
    assert ("its confidence is undefined there" in told) == (preset == "published")
    assert ("stands in its place there" in told) == (preset == "corrected")


def test_the_chosen_threshold_is_short(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted = said(capsys, "fit", "ab-rag", record, "--out", str(tmp_path / "p.json"))
    assert len(str(fitted["policy"]["threshold"])) <= 4  # type: ignore[index]


def test_the_published_preset_is_written_without_fitting(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "policy.json")
    assert main(["fit", "ab-rag", record, "--out", out, "--preset", "published"]) == 0
    printed = capsys.readouterr().out
    assert "0.7 self_consistency + 0.05 evidence_consistency + 0.25 rerank_variance" in printed
    unbroken = " ".join(printed.split())
    assert "certainty (S1) is self_consistency: the record holds no token probabilities" in unbroken
    assert "any threshold above" in unbroken
    found = said(capsys, "replay", record, "--policy", out, "--policy", "ab-rag")
    first, second = found["policies"][:2]  # type: ignore[index]
    assert first["name"] == "ab-rag"
    assert first["hash"] == second["hash"]


def test_a_threshold_out_of_reach_is_told(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", "ab-rag", record, "--out", str(tmp_path / "p.json")]
    assert main([*arguments, "--preset", "published", "--threshold", "0.9"]) == 0
    assert "its confidence is at most 0.8125" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["fit", "tasr", "--certainty", "self_consistency"],
            "takes calibrator, f1; leave certainty out",
        ),
        (["fit", "ab-rag", "--calibrator", "platt"], "leave calibrator out"),
        (["fit", "ab-rag", "--certainty", "token_probability"], "needs column tokens"),
        (["fit", "ab-rag", "--split", "nowhere"], "nowhere"),
        (
            ["fit", "ab-rag", "--preset", "published", "--support", "answer_in_evidence"],
            "leave support out",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    record: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    command, method, *options = arguments
    out = ["--out", str(tmp_path / "p.json")]
    assert main([command, method, record, *options, *out]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.strip().splitlines()) == 1
    assert message in printed.err
