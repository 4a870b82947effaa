"""``suffice search``, ``choose`` and ``fit``: one strict document each, and one line of error."""

from __future__ import annotations

import dataclasses
import json
import math
import shlex
from pathlib import Path

import numpy as np
import pytest
from tests.commands import refused, run, run_json

from suffice.testing.traces import make_record
from suffice.trace.rounds.records import Gold, QuestionRecord
from suffice.trace.rounds.writer import write_traces


def signal_record(number: int, generator: np.random.Generator) -> QuestionRecord:
    made = make_record(
        f"q{number:03d}",
        generator.choice(["right", "wrong", "other"], 4).tolist(),
        gold=["right"],
        margins=generator.uniform(0, 3, 4).tolist(),
        split="tune" if number % 2 else "eval",
    )
    kept = tuple(
        dataclasses.replace(
            each,
            signals={
                "own": float(generator.normal()) if generator.random() < 0.8 else math.nan,
                "flat": 1.0,
                "hole": math.nan,
            },
        )
        for each in made.rounds
    )
    return dataclasses.replace(made, rounds=kept)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def traces(folder: Path) -> str:
    generator = np.random.default_rng(0)
    path = folder / "a.parquet"
    write_traces([signal_record(number, generator) for number in range(60)], path)
    return str(path)


# --- search --------------------------------------------------------------------------------------
def test_search_is_one_document(traces: str) -> None:
    found = run_json(
        "search", traces, "--signals", "answer_stable,own", "--form", "vote", "--bootstrap",
        "20", "--seed", "3", "--threshold-grid", "quantiles", "--max-calls", "3",
        "--objective", "em", "--baseline", "fixed-2",
    )  # fmt: skip
    assert list(found)[:3] == ["evaluated", "thresholds_tried", "rules"]
    assert found["evaluated"] == len(found["rules"]) == 4
    assert {"rule", "f1", "em", "mean_rounds", "low", "high"} <= set(found["rules"][0])
    assert found["thresholds_tried"] == 82  # both ways
    assert (found["objective"], found["max_cost"], found["baseline"]) == ("em", 3.0, "fixed-2")
    assert (found["seed"], found["bootstrap"]) == (3, 20)
    assert "naive_low" not in found["rules"][0]


OUT = {
    "search": ("search", "--signals", "own,calibrated(answer_token_margin)", "--bootstrap", "5"),
    "replay": ("replay", "--stop-when", "calibrated(own) > base_rate()", "--bootstrap", "5"),
    "fit": ("fit", "rule", "own > 0.5 or calibrated(overlap) > 0.4"),
}


@pytest.mark.parametrize("command", OUT)
def test_what_was_found_is_written_as_a_policy(traces: str, tmp_path: Path, command: str) -> None:
    """The file stops every question as the rule's text does."""
    out = tmp_path / "policy.json"
    words = list(OUT[command])
    words.insert({"fit": 3}.get(command, 1), traces)
    told = run_json(*words, "--out", str(out))
    assert told["out"] == str(out)
    written = json.loads(out.read_text())
    assert written == told["policy"] | {"max_rounds": 4}
    rule = told["policy"]["rule"]
    again = run_json(
        "replay", traces, "--policy", str(out), "--stop-when", rule, "--per-question",
        "--bootstrap", "5",
    )  # fmt: skip
    from_file, from_text = again["policies"][:2]
    assert from_file["hash"] == from_text["hash"] == told["hash"]
    assert from_file["rounds"] == from_text["rounds"]


def test_the_file_returns_the_answer_that_was_compared(traces: str, tmp_path: Path) -> None:
    name, *words = OUT["search"]
    out = str(tmp_path / "p.json")
    told = run_json(name, traces, *words, "--answer", "highest:own", "--out", out)
    assert (told["answer"], told["policy"]["answer"]) == ("highest:own", "highest:own")
    again = run_json("replay", traces, "--policy", out, "--bootstrap", "5")
    assert again["policies"][0]["f1"] == pytest.approx(told["rules"][0]["f1"])


@pytest.mark.parametrize("command", ["search", "replay"])
def test_without_gold_what_is_written_is_what_was_compared(
    folder: Path, tmp_path: Path, command: str
) -> None:
    """Fitted to the full budget's own answers, as the figures are."""
    generator = np.random.default_rng(3)
    records = [signal_record(number, generator) for number in range(40)]
    bare = [dataclasses.replace(record, gold=Gold()) for record in records]
    path = folder / f"bare-{command}.parquet"
    write_traces(bare, path)
    name, *words = OUT[command]
    told = run_json(name, str(path), *words, "--out", str(tmp_path / "p.json"))
    rule = told["policy"]["rule"]
    again = run_json(
        "replay", str(path), "--policy", str(tmp_path / "p.json"), "--stop-when", rule,
        "--bootstrap", "5", "--per-question",
    )  # fmt: skip
    assert again["policies"][0]["rounds"] == again["policies"][1]["rounds"]
    assert again["policies"][1]["hash"] == told["hash"]


def test_search_writes_the_rule_picked(traces: str, tmp_path: Path) -> None:
    words = ["search", traces, "--signals", "own,overlap", "--form", "dnf", "--bootstrap", "5"]
    listed = [rule for rule in run_json(*words)["rules"] if rule["like"] is None]
    picked = run_json(*words, "--pick", "2", "--out", str(tmp_path / "p.json"))
    assert picked["policy"]["rule"] == listed[1]["rule"]
    most = len(listed)
    said = f"there is no rule {most + 1}; the search lists 1 to {most}"
    refused(run(*words, "--pick", str(most + 1), "--out", str(tmp_path / "p.json")), said)
    refused(run(*words, "--pick", "2"), "--out")


def test_replay_writes_one_rule(traces: str, tmp_path: Path) -> None:
    out = str(tmp_path / "p.json")
    rules = ["--stop-when", "own > 0", "--stop-when", "own > 1"]
    refused(run("replay", traces, *rules, "--out", out), "found 2")
    refused(run("replay", traces, "--policy", "rule"), "suffice fit rule RULE TRACES")


# --- what is refused -----------------------------------------------------------------------------
MANY = (
    "answer_stable,own,overlap,overlap_idf,answer_token_margin,margin_min,margin_p10,margin_mean,"
    "margin_median,abstained"
)
REFUSED = {
    "search": {
        "--signals nothing": "unknown signal 'nothing'",
        "--signals self_consistency": "needs column samples",
        "--signals own --form xor": "'vote'",
        "--signals own --objective fun": "gain-at-cost",
        "--signals own --max-calls 3 --cost usd": "--max-cost",
        "--signals own --max-calls 3 --max-cost 3": "not both",
        "": "--signals",
        f"--form dnf --signals {MANY}": "'dnf'",
    },
    "choose --family thresholds": {
        "--grid 0.5,1.5": "answer_token_margin",
        "--grid 0.5:0.1:0.1": "LOW:HIGH:STEP with LOW <= HIGH",
        "--grid 0:1:1e-3": "1 to 200",
        "--rule 'own > 1'": "exactly one '?'",
        "--rule 'flat > ?'": "is 1 in every round",
        "--signals own": "--signals",
    },
    "choose": {
        "--max-loss 0": "0",
        "--confidence 0": "above 0 and below 1",
        "--family everything": "'thresholds'",
        "--signals flat": "is 1 in every round",
        "--signals ''": "separated",
        "--signals nothing": "unknown signal 'nothing'",
        "--levels 60": "--path",
        "--cost usd": "--price-model MODEL",
        "--rule 'own > ?' --family rule": "--rule",
        "--family fixed --signals own": "--signals",
    },
    "fit nothing": {"": "nothing"},
    "fit tasr": {
        "--max-loss 0.1": "--max-loss",
        "--ask-cost 1": "--ask-cost",
        "--preset published --calibrator platt": "calibrator",
    },
    "fit margin-alone": {"--signals own": "--signals"},
}


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [(command, *row) for command, rows in REFUSED.items() for row in rows.items()],
)
def test_it_is_refused(traces: str, tmp_path: Path, command: str, options: str, said: str) -> None:
    name, *method = command.split()
    out = tmp_path / ("p" if name == "choose" else "p.json")
    more = ["--out", str(out)] if name != "search" else []
    refused(run(name, *method, traces, *more, *shlex.split(options), "--json"), said)
    assert not out.exists()
