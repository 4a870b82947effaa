"""Policies compared by a score of the user's own: a column, a signal, or a function."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import refused, run, run_json, run_process

import suffice
from suffice.errors import DataError, UsageError
from suffice.trace.rounds.reader import read_traces

QUESTIONS, ROUNDS = 60, 3
MODULE = """
    from pathlib import Path

    Path(__file__).with_name("imported").touch()

    def half(answer, golds):
        return 0.5 if answer in golds else 0.0

    def high(answer, golds): return 2
    def none(answer, golds): return None
    def nan(answer, golds): return float("nan")
    def text(answer, golds): return "x"
    def fails(answer, golds): raise KeyError(answer)
    def takes(answer): return 1.0
    constant = 0.5

    class Rubric:
        @staticmethod
        def score(answer, golds): return float(golds == ["Oslo"] and answer == "Oslo")
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module in the working directory, as whoever types the command has it."""
    (tmp_path / "ownscore.py").write_text(textwrap.dedent(MODULE))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    sys.modules.pop("ownscore", None)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A third is right at once, the others in round 2; ``rated`` is .25 a round, and a signal too."""
    made = []
    for number in range(QUESTIONS):
        for at in range(1, ROUNDS + 1):
            right = at > 1 or number % 3 == 0
            made.append(
                {
                    "question_id": f"q{number:02}",
                    "round": at,
                    "question": f"Where is {number}?",
                    "answer": "Oslo" if right else "Rome",
                    "gold_answers": ["Oslo"],
                    "split": "tune" if number % 2 else "eval",
                    "rated": 0.25 * at,
                    "note": "x",
                    "prompt_tokens": 100,
                    "signals": [("liked", 0.5 if at == 2 else 0.0), ("loud", 7.0)],
                }
            )
    types = {"round": pa.int16(), "signals": pa.map_(pa.string(), pa.float64())}
    columns = {name: pa.array([r[name] for r in made], types.get(name)) for name in made[0]}
    table = pa.table(columns).replace_schema_metadata({"suffice.schema": "2"})
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=30)
    return tmp_path / "t.parquet"


HALF = "ownscore:half"


@pytest.mark.parametrize(
    ("metric", "scores"),
    [
        (HALF, (1 / 6, 0.5)),
        ("ownscore:Rubric.score", (1 / 3, 1.0)),
        ("rated", (0.25, 0.5)),
        ("liked", (0.0, 0.5)),
    ],
)
def test_policies_are_compared_by_it(
    record: Path, metric: str, scores: tuple[float, float]
) -> None:
    words = ("--policy", "fixed-1", "--policy", "fixed-2", "--split", "all", "--metric", metric)
    said = run_json("replay", record, *words, "--baseline", "fixed-2")
    assert said["metric"] == metric
    assert [one[metric] for one in said["policies"]] == pytest.approx([*scores])
    compared = suffice.replay(record, ["fixed-1", "fixed-2"], split="all", metric=metric)
    assert [p.f1 for p in compared.policies][:2] == pytest.approx([*scores])


def test_it_goes_with_every_command_that_compares(record: Path, tmp_path: Path) -> None:
    by = ("--metric", HALF)
    chosen = tmp_path / "chosen"
    assert run("choose", record, *by, "--max-loss", "0.2", "--out", chosen).returncode == 0
    assert "half points" in run_process("choose", record, *by, "--out", tmp_path / "x").stdout
    for words in (
        ("search", record, "--signals", "liked,answer_stable"),
        ("report", record, "--policy", "fixed-2", "--out", tmp_path / "r.html"),
        ("fit", "rule", "answer_repeats", record, "--out", tmp_path / "p.json"),
        ("compare-loops", record, record),
        ("monitor", record, "--policy", chosen / "policy.json"),
    ):
        done = run(*words, *by)
        assert "unknown" not in done.stderr
        assert done.returncode == 0, (words, done.stderr)
    assert suffice.search(record, "liked", metric=HALF).rules
    assert suffice.fit("rule", record, rule="answer_repeats").kind == "rule"


@pytest.mark.parametrize(
    "call",
    [
        lambda record: suffice.replay(record, "fixed-1", metric="rating"),
        lambda record: suffice.choose(record, metric="rating"),
        lambda record: suffice.search(record, "liked", metric="rating"),
        lambda record: suffice.replay(record, "fixed-1", metric="note"),
        lambda record: suffice.replay(record, "fixed-1", metric="prompt_tokens"),
        lambda record: suffice.replay(record, "fixed-1", metric=""),
        lambda record: suffice.replay(record, "fixed-1", metric="ownscore:"),
    ],
)
def test_an_unknown_name_is_refused_with_the_list(
    record: Path, call: Callable[[Path], Any]
) -> None:
    with pytest.raises(UsageError) as caught:
        call(record)
    for name in ("f1", "em", "acc", "score", "agreement", "rated", "liked", "MODULE:FUNCTION"):
        assert name in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("ownscore:high", "from 0 to 1"),
        ("ownscore:nan", "from 0 to 1"),
        ("ownscore:none", "TypeError"),
        ("ownscore:text", "ValueError"),
        ("ownscore:fails", "KeyError"),
        ("ownscore:takes", "TypeError"),
        ("ownscore:constant", "TypeError"),
        ("ownscore:missing", "AttributeError"),
        ("nowhere:score", "ModuleNotFoundError"),
        ("broken:score", "SyntaxError"),
        ("loud", "from 0 to 1"),
    ],
)
def test_what_goes_wrong_in_it_is_one_line(
    record: Path, tmp_path: Path, metric: str, why: str
) -> None:
    (tmp_path / "broken.py").write_text("def score(:\n")
    refused(run("replay", record, "--policy", "fixed-1", "--metric", metric), metric, why)


def test_a_large_record_is_scored_alike_by_one_or_more_workers(
    record: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("suffice.measures.shards._FEW", 0)
    monkeypatch.setattr("suffice.measures.shards.shards_of.__defaults__", (10,))
    small = suffice.replay(record, ["fixed-1", "fixed-2"], metric=HALF, split="all")
    large = read_traces(record, lazily_above=0)
    for metric, found in ((HALF, small), ("rated", None), ("em", None), (HALF, small)):
        compared = suffice.replay(large, ["fixed-1", "fixed-2"], metric=metric, split="all")
        wanted = found or suffice.replay(record, ["fixed-1", "fixed-2"], metric=metric, split="all")
        assert [p.f1 for p in compared.policies] == [p.f1 for p in wanted.policies]


def test_other_metrics_of_the_same_record_stay_their_own(record: Path) -> None:
    read = suffice.read(record)
    before = suffice.replay(read, "fixed-1", split="all", metric="f1").policies[0].f1
    suffice.replay(read, "fixed-1", split="all", metric=HALF)
    assert suffice.replay(read, "fixed-1", split="all", metric="f1").policies[0].f1 == before


# --- what a stranger's file says is not run --------------------------------------------------------
def test_a_policy_s_promise_by_code_is_tested_only_if_its_user_types_it(
    record: Path, tmp_path: Path
) -> None:
    chosen = tmp_path / "chosen"
    words = ("--metric", HALF, "--max-loss", "0.2", "--out", chosen)
    assert run("choose", record, *words).returncode == 0
    toml = tmp_path / "suffice.toml"
    toml.write_text('[[promise]]\nrecord = "t.parquet"\npolicy = "chosen"\nmax_loss = 0.2\n')
    (tmp_path / "imported").unlink()
    sys.modules.pop("ownscore", None)
    refused(run("check", toml), HALF, "--metric")
    policy = chosen / "policy.json"
    refused(run("monitor", record, "--policy", policy), HALF, "--metric")
    assert run("replay", record, "--policy", policy).returncode == 0
    suffice.Controller(suffice.load_policy(policy))
    assert not (tmp_path / "imported").exists()
    done = run("check", toml, "--metric", HALF)
    assert done.returncode in (0, 1), done.stderr
    assert (tmp_path / "imported").exists()


def test_a_promise_by_a_column_is_tested_by_it(record: Path, tmp_path: Path) -> None:
    chosen = tmp_path / "chosen"
    words = ("--metric", "rated", "--max-loss", "0.6", "--split", "all", "--out", chosen)
    assert run("choose", record, *words[:4], "--out", chosen).returncode == 0
    toml = tmp_path / "suffice.toml"
    toml.write_text('[[promise]]\nrecord = "t.parquet"\npolicy = "chosen"\nmax_loss = 0.6\n')
    (promise,) = json.loads(run("check", toml, "--json").stdout)["promises"]
    assert (promise["metric"], promise["loss"]["estimate"]) == ("rated", pytest.approx(0.5))
    # a stream holds answers and scores alone
    refused(run("monitor", record, "--policy", chosen / "policy.json"), "rated", "--metric")
    watched = ("monitor", record, "--policy", chosen / "policy.json", "--metric", "score")
    assert run(*watched).returncode == 0


def test_no_file_has_code_imported(record: Path, tmp_path: Path) -> None:
    toml = tmp_path / "suffice.toml"
    toml.write_text(f'[[promise]]\nrecord = "t.parquet"\npolicy = "p.json"\nmetric = "{HALF}"\n')
    refused(run("check", toml), "metric")
    assert not (tmp_path / "imported").exists()
    with pytest.raises((DataError, UsageError)):
        suffice.replay(record, "fixed-1", metric="nowhere:score")
