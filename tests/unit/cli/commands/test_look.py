"""``suffice look``: known figures of small logs, what it does with bad input, and the lines it prints."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.commands import refused, run, run_json
from tests.properties import examples

import suffice
from suffice.evaluation.look import look_at
from suffice.testing.traces import make_record

SEARCH = "search"


def asked(arguments: str, usage: Mapping[str, int] | None) -> list[dict[str, Any]]:
    """A call of the tool, and its result."""
    use = {"id": "a", "type": "function", "function": {"name": SEARCH, "arguments": arguments}}
    call: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [use]}
    if usage is not None:
        call["usage"] = usage
    return [call, {"role": "tool", "tool_call_id": "a", "content": "a text"}]


def chat(
    name: str,
    queries: Iterable[str],
    answer: str | None = "Oslo",
    usage: Mapping[str, int] | None = None,
) -> dict[str, Any]:
    """A conversation with a round for each query, as one line of a log."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"question {name}"}]
    for query in queries:
        messages += asked(query if query.startswith("{") else json.dumps({"query": query}), usage)
    if answer is not None:
        said = {"role": "assistant", "content": answer}
        messages.append({**said, "usage": usage} if usage else said)
    return {"id": name, "messages": messages}


def write(file: Path, runs: Iterable[Mapping[str, Any]]) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{json.dumps(one)}\n" for one in runs), encoding="utf-8")
    return file


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Ten runs of 1, 1, 1, 1, 2, 2, 2, 3, 4 and 12 rounds; 100 and 10 tokens a call."""
    usage = {"prompt_tokens": 100, "completion_tokens": 10}
    runs = [
        chat(f"r{n}", [f"{n} {at}" for at in range(length)], usage=usage)
        for n, length in enumerate([1, 1, 1, 1, 2, 2, 2, 3, 4])
    ]
    same = ['{"query": "x", "k": 1}', '{"k":1,   "query":"x"}'] * 5
    runs.append(chat("r9", ["a", "b", *same], answer=None, usage=usage))
    write(tmp_path / "logs" / "a.jsonl", runs[:6])
    write(tmp_path / "logs" / "b.jsonl", runs[6:])
    return tmp_path / "logs"


def test_figures_are_those_of_a_reckoning_by_hand(logs: Path) -> None:
    found = run_json("look", logs)
    assert (found["runs"], found["rounds"], found["tools"]) == (10, 29, {SEARCH: 29})
    (kind,) = found["formats"]
    assert (kind["format"], kind["files"], kind["runs"]) == ("chat", 2, 10)
    by_cost = {one["cost"]: one for one in found["costs"]}
    # a run of k rounds calls once more to answer, but for the last run
    prompt = by_cost["prompt_tokens"]
    assert (prompt["median"], prompt["mean"], prompt["total"]) == (300.0, 380.0, 3800.0)
    assert prompt["longest_mean"] == 1200.0
    assert prompt["longest_share"] == pytest.approx(1200 / 3800)
    assert (by_cost["rounds"]["median"], by_cost["rounds"]["longest_mean"]) == (2.0, 12.0)
    assert (found["cost"], by_cost["tokens"]["total"]) == ("tokens", 4180.0)
    assert found["ended"] == {"answer": 9, "unknown": 1}
    # from round 4 on the same call, whatever the order of its arguments
    assert found["repeats"] == {"runs": 1, "calls": 9, "share": pytest.approx(9 * 110 / 4180)}
    wide, tight = found["caps"]
    assert (wide["rounds"], wide["touched"], wide["at_limit"]) == (10, 1, 0)
    assert wide["saved"] == pytest.approx(220 / 4180)
    assert (tight["rounds"], tight["touched"]) == (2, 3)
    assert tight["saved"] == pytest.approx((220 + 330 + 1100) / 4180)


def test_the_screen_says_what_the_document_says(logs: Path) -> None:
    shown = run("look", logs).stdout
    said = " ".join(shown.split())
    assert "10 runs (OpenAI chat messages; 2 files), 29 rounds, 1 tool: search." in said
    assert "9 with an answer, 1 without an answer" in said
    assert "1 run asked the same again; 23.7% of all tokens" in said
    assert "A cap of 10 would have touched 1 run and saved 5.3% of the tokens." in said
    assert "A cap of 2 would have touched 3 runs and saved 39.5% of the tokens." in said
    assert suffice.look(logs).to_json() == run_json("look", logs)
    assert suffice.look(logs).text() == shown.rstrip("\n")
    assert len(shown.splitlines()) <= 24
    own = [line for line in shown.splitlines() if not line.startswith("  ")]
    assert max(map(len, own)) <= 80
    assert suffice.look(logs).table.data()["total"][0] == 29.0


def test_runs_cut_at_a_limit_that_nobody_told(tmp_path: Path) -> None:
    cut = [chat(f"c{n}", ["a", "b", "c", "d"], answer=None) for n in range(3)]
    file = write(tmp_path / "a.jsonl", [*cut, chat("x", ["a"]), chat("y", ["a"])])
    found = run_json("look", file)
    assert (found["ended"], found["limit"]) == ({"answer": 2, "budget": 3}, 4)
    assert [cap["at_limit"] for cap in found["caps"]] == [3, 3]
    assert found["cost"] == "rounds"
    assert "3 at a limit of 4" in run("look", file).stdout


def test_texts_are_printed_only_if_asked_for(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnop123456"
    file = write(tmp_path / "a.jsonl", [chat("a", [f"who \u202e knows {secret}"] * 3)])
    assert "knows" not in run("look", file).stdout + json.dumps(run_json("look", file))
    shown = run("look", file, "--texts").stdout
    assert "2 x search" in shown
    assert "\u202e" not in shown
    assert secret not in shown
    assert run_json("look", file, "--texts")["texts"][0]["repeats"] == 2


def test_equal_ids_of_two_files_are_different_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / "logs" / f"{name}.jsonl", [chat("r1", ["x", "y"])])
    found = run_json("look", tmp_path / "logs")
    assert found["runs"] == 2
    assert any("id of another" in note for note in found["notes"])
    assert "b.jsonl" not in found["next"][0]["line"]  # which import would refuse beside the other


def test_two_records_of_the_same_questions_in_a_folder_are_different_runs(tmp_path: Path) -> None:
    for name in ("a", "b"):
        suffice.write([make_record("q1", ["Oslo", "Rome"])], tmp_path / f"{name}.parquet")
    found = run_json("look", tmp_path)
    assert (found["runs"], found["rounds"]) == (2, 4)


def test_a_store_of_live_loops_is_labeled_in_place(tmp_path: Path) -> None:
    watch = suffice.Watch("fixed-2", record=tmp_path / "live.db")
    for number in range(3):
        with watch.question(f"question {number}") as loop:
            for query in ("x", "y", "x"):
                loop.observe(answer="Oslo", query=query)
    found = run_json("look", tmp_path / "live.db")
    assert (found["runs"], found["rounds"], found["repeats"]["runs"]) == (3, 9, 3)
    assert "--out" not in found["next"][0]["line"]


def test_a_folder_of_anything_is_walked(tmp_path: Path, logs: Path) -> None:
    root = tmp_path / "root"
    write(root / "deep" / "a.jsonl", [chat("a", ["x"])])
    (root / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(200))
    (root / ".hidden.jsonl").write_text("{")
    (root / "deep" / "up").symlink_to(root)
    os.mkfifo(root / "pipe.jsonl")
    suffice.write([make_record("q1", ["Oslo", "Rome"])], root / "kept" / "r.parquet")
    found = run_json("look", root, logs / "a.jsonl")
    counted = {one["format"]: (one["files"], one["runs"]) for one in found["formats"]}
    assert counted == {"chat": (2, 7), "record": (1, 1)}
    assert any(note.startswith("1 other file ") for note in found["notes"])
    refused(run("look", tmp_path / "empty"), "empty")
    (tmp_path / "empty").mkdir()
    refused(run("look", tmp_path / "empty"), "no log")
    (tmp_path / "empty" / "a.png").write_bytes(b"\x89PNG")
    refused(run("look", tmp_path / "empty"), "no log")
    refused(run("look", tmp_path / "empty" / "a.png"), "a.png")
    refused(run("look", logs, "--format", "chats"), "chat")
    with pytest.raises(suffice.UsageError):
        suffice.look()


def test_broken_lines_are_counted(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [chat("a", ["x"]), chat("b", ["x", "y"])])
    file.write_text(file.read_text() + "{broken\n")
    found = run_json("look", file)
    assert found["runs"] == 2
    assert any("broken line" in note for note in found["notes"])


def test_runs_of_one_round_leave_nothing_to_stop(tmp_path: Path) -> None:
    found = run_json("look", write(tmp_path / "a.jsonl", [chat("a", ["x"])]))
    assert found["caps"] == []
    assert "nothing to stop" in found["missing"]


@pytest.mark.parametrize("name", ["a'b \n\x1b[31m.jsonl", "-x.jsonl", "a b*.jsonl"])
def test_a_file_of_any_name_is_imported_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / name, [chat("a", ["x", "y"])])
    monkeypatch.chdir(tmp_path / "logs")
    shown = suffice.look(name, Path(), "./" + name).next[0]["line"]
    assert shown.isprintable()
    line = shown.replace("suffice ", f"{sys.executable} -m suffice ", 1)
    subprocess.run(["/bin/bash", "-c", line], check=True, timeout=60, capture_output=True)
    assert len(read_ids("logs.parquet")) == 1


def test_the_lines_run_as_printed(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(logs.parent)
    logs.rename("my logs")
    import_, label, watch = (step["line"] for step in run_json("look", "my logs")["next"])
    typed(import_)
    assert read_ids("logs.parquet") == {f"r{n}" for n in range(10)}
    rows = "".join(f"r{n},{n % 2}\n" for n in range(10))
    Path("labels.csv").write_text(f"question_id,score\n{rows}", encoding="utf-8")
    typed(label)
    assert isinstance(eval(watch, {"suffice": suffice}), suffice.Watch)
    (step,) = run_json("look", "labeled.parquet")["next"]
    assert step["line"] == "suffice choose labeled.parquet"
    assert run_json("look", "logs.parquet")["costs"] == run_json("look", "my logs")["costs"]


def typed(line: str) -> None:
    """Run a line as a shell does."""
    words = []
    for word in shlex.split(line)[1:]:
        words += sorted(map(str, Path().glob(word))) if "*" in word else [word]
    done = run(*words)
    assert done.returncode == 0, done.stderr


def read_ids(place: str) -> set[str]:
    return set(suffice.read(place).question_ids)


class Held:
    """Records at hand, as a log."""

    path, format, called, stated = "held", "record", "record", ""

    def __init__(self, records: Iterable[suffice.QuestionRecord]) -> None:
        self.records = list(records)
        self.problems: list[str] = []

    def runs(self) -> Iterable[suffice.QuestionRecord]:
        return iter(self.records)


@st.composite
def _records(draw: st.DrawFn) -> list[suffice.QuestionRecord]:
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=30))
    amounts = st.one_of(st.none(), st.integers(0, 1000))
    ends: st.SearchStrategy[Any] = st.sampled_from([None, "end", "budget", "error", "policy"])
    return [
        suffice.QuestionRecord(
            question=suffice.Question(id=f"q{n}", text=""),
            rounds=tuple(
                suffice.Round(
                    answer=draw(st.sampled_from([None, "", "a", "b"])),
                    action=f'go {{"to": {draw(st.integers(0, 5))}}}',
                    usage=suffice.Usage(prompt_tokens=draw(amounts)),
                )
                for _ in range(length)
            ),
            stopped_by=draw(ends),
        )
        for n, length in enumerate(lengths)
    ]


@settings(max_examples=examples(60), deadline=None)
@given(_records())
def test_shares_are_shares_and_tighter_caps_save_more(
    records: list[suffice.QuestionRecord],
) -> None:
    found = look_at([Held(records)])
    assert sum(found.ended.values()) == found.runs == len(records)
    longest = max(len(record.rounds) for record in records)
    for before, cap in zip([None, *found.caps], found.caps, strict=False):
        assert 1 <= cap["rounds"] < longest  # at the longest a cap saves nothing
        assert 0 <= cap["at_limit"] <= cap["touched"] <= found.runs
        assert 0.0 <= cap["saved"] <= 1.0
        if before is not None:
            assert cap["rounds"] < before["rounds"]
            assert cap["saved"] >= before["saved"]
            assert cap["touched"] >= before["touched"]
    assert found.repeats is not None
    assert 0.0 <= found.repeats["share"] <= 1.0
    for one in found.costs:
        assert 0.0 <= one["longest_share"] <= 1.0 + 1e-12
    assert len(found.text().splitlines()) <= 24
