"""``suffice choose``: what it writes, every option, and what it refuses in one line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.choice_population import reaching
from tests.commands import run, run_json

from suffice.cli.main import main
from suffice.evaluation.choose import candidates
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.writer import write_traces

QUICK = ("--bootstrap", "5", "--signals", "answer_token_margin", "--max-signals", "1")
Say = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control alone stands for the methods: what is fitted longest is tested with its method."""
    monkeypatch.setattr(candidates, "nameable_methods", lambda: ("stable-base-rate",))


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(tmp_path_factory.mktemp("record"), reaching(240))


def written(folder: Path, records: Sequence[QuestionRecord], **run: Any) -> str:
    path = folder / f"traces{len(list(folder.glob('*.parquet')))}.parquet"
    write_traces(records, path, run=run)
    return str(path)


def document(record: str, out: Path, *options: str) -> Any:
    return run_json("choose", record, "--out", out, *QUICK, *options)


def refused(record: str, out: Path, *options: str) -> str:
    """The one line on stderr; nothing is printed, and no policy written."""
    done = run("choose", record, "--out", out, *QUICK, *options)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert not (out / "policy.json").exists()
    (line,) = [one for one in done.stderr.strip().splitlines() if not one.startswith("a sample")]
    return line


# --- what it writes ------------------------------------------------------------------------------
def test_policy_page_and_document_are_written_and_printed(
    record: str, tmp_path: Path, capsys: Say
) -> None:
    assert main(["choose", record, "--out", str(tmp_path), *QUICK, "--max-loss", "0.1"]) == 0
    printed = capsys.readouterr().out
    first_screen, *_ = printed.partition("Page: ")
    assert len(printed.splitlines()) <= 24
    assert max(map(len, first_screen.splitlines())) <= 80
    assert str(tmp_path / "policy.json") in printed
    said = json.loads((tmp_path / "choice.json").read_text())
    assert said["promise"]["max_loss"] == 0.1
    policy = json.loads((tmp_path / "policy.json").read_text())
    assert policy["kind"] in (said["chosen"]["kind"], "certified")
    assert "Which policy?" in (tmp_path / "index.html").read_text()
    assert main(["replay", record, "--policy", str(tmp_path / "policy.json")]) == 0


def test_a_guess_has_a_file_of_its_own_that_says_what_it_is(tmp_path: Path, capsys: Say) -> None:
    record, out = written(tmp_path, reaching(40, reached=(0.3, 0.9, 0.9))), tmp_path / "out"
    said = document(record, out, "--max-loss", "0.01")
    assert said["chosen"]["name"] == "fixed-3"
    assert said["guess"]["confidence"] == 0.8
    guess = json.loads((out / "guess.json").read_text())
    assert "not proven" in guess["remark"]
    assert "guess.json" in (out / "index.html").read_text()
    assert main(["replay", record, "--policy", str(out / "guess.json")]) == 0
    capsys.readouterr()
    document(record, out, "--max-cost", "2", "--cost", "rounds")  # nothing is guessed
    assert not (out / "guess.json").exists()


def test_a_loop_that_raised_voids_no_saving(tmp_path: Path) -> None:
    """One question was cut by an error and has no label: the others' costs are known all the same."""
    made = reaching(120, reached=(0.3, 0.9, 0.9))
    raised = make_record("raised", ["other"])
    record = written(tmp_path, [*made, replace(raised, stopped_by="error")])
    said = document(record, tmp_path / "out", "--max-loss", "0.05", "--cost", "rounds")
    assert said["questions"]["all"] == 120
    assert said["measured"]["mean_rounds"] < 3.0


def test_calls_of_models_that_differ_are_no_warning(tmp_path: Path) -> None:
    """A cheap model asked first and a dear one after it: their calls do not add up."""
    answers = (("x", "x", "x"), ("y", "z", "x"))
    made = [make_record(f"q{n:03}", answers[n % 5 == 0], gold=["x"]) for n in range(300)]
    plain = written(tmp_path, made)
    table = pq.read_table(plain)
    models = pa.array([f"m{number}" for number in table.column("round").to_pylist()])
    tiers = tmp_path / "tiers.parquet"
    pq.write_table(table.append_column("model", models), tiers)
    for place, warned in ((plain, True), (tiers, False)):
        said = run_json("choose", place, "--out", tmp_path / "out", "--max-loss", "0.1")
        assert said["costs"]["calls"]["change"] > 0.05
        assert ("model calls" in said["headline"].partition("Stop")[0]) == warned


# --- options --------------------------------------------------------------------------------------
def test_promises_and_their_options(record: str, tmp_path: Path) -> None:
    said = document(
        record, tmp_path, "--max-loss", "0.3", "--max-wrong-stops", "0.3", "--cost", "rounds",
        "--confidence", "0.9", "--min-rounds", "2", "--metric", "em", "--seed", "7",
    )  # fmt: skip
    assert [bound["of"] for bound in said["promise"]["bounds"]] == ["signed", "wrong-stop"]
    assert (said["promise"]["confidence"], said["promise"]["cost"]) == (0.9, "rounds")
    names = [candidate["name"] for candidate in said["candidates"]]
    assert "fixed-1" not in names
    assert "fixed-2" in names
    assert said["replay"]["seed"] == 7


def test_options_of_the_record_and_of_what_is_charged(
    record: str, tmp_path: Path, capsys: Say
) -> None:
    phrases = tmp_path / "phrases.txt"
    phrases.write_text("no idea\n")
    options = (
        "--sample", "200", "--workers", "1", "--skip-invalid",
        "--abstention", str(phrases), "--policy", "overlap-alone", "--f1", "squad", "--charge",
        "published", "--prices", "input=1,output=2",
        "--tune-split", "eval", "--split", "tune", "--cost", "rounds", "--policy", "fixed-2",
    )  # fmt: skip
    assert main(["choose", record, "--out", str(tmp_path / "out"), *QUICK, *options, "--json"]) == 0
    printed = capsys.readouterr()
    said = json.loads(printed.out)
    assert said["questions"]["all"] == 200
    assert "overlap-alone" in [one["name"] for one in said["candidates"]]


def test_files_of_different_loops_are_named_with_what_to_type(tmp_path: Path, capsys: Say) -> None:
    folder = tmp_path / "both"
    folder.mkdir()
    halves = [reaching(40, seed=seed) for seed in (0, 1)]
    halves[1] = [
        replace(one, question=replace(one.question, id=f"other-{one.question.id}"))
        for one in halves[1]
    ]
    for records, pipeline in zip(halves, ("iterative", "react"), strict=True):
        written(folder, records, pipeline=pipeline, retriever="bm25")
    line = refused(str(folder), tmp_path / "out")
    assert "traces0.parquet" in line
    joined = str(tmp_path / "joined.parquet")
    files = [str(folder / f"traces{number}.parquet") for number in (0, 1)]
    assert main(["traces", "merge", *files, "--out", joined]) == 0
    capsys.readouterr()
    said = document(joined, tmp_path / "out")
    assert any("pipeline iterative, react" in note for note in said["notes"])


def test_a_path_of_ones_own_and_losses_in_one_table(record: str, tmp_path: Path) -> None:
    said = document(record, tmp_path, "--path", "answer_token_margin > x", "--levels", "9,4,1")
    assert [row["max_loss"] for row in said["table"]] == [0.01, 0.02, 0.03, 0.05, 0.1]
    for row in said["table"]:
        assert row["proven"] == (row["title"] is not None) == (row["mean_rounds"] is not None)
    costs = said["costs"]
    assert {"rounds", "calls", "tokens", "seconds", "usd"} <= set(costs)
    assert all(set(cost) == {"before", "after", "change"} for cost in costs.values())
