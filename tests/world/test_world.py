"""Logs as the world writes them: a folder a dialect, with the rows that it must give."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.commands import run

from suffice.datasets.formats import FORMATS, recognized
from suffice.errors import DataError, SufficeWarning
from suffice.traces import import_

HERE = Path(__file__).parent
DIALECTS = sorted(path.parent for path in HERE.glob("*/expect.json"))


def _input(folder: Path) -> Path:
    (path,) = folder.glob("input.*")
    return path


@pytest.mark.parametrize("folder", DIALECTS, ids=lambda folder: folder.name)
def test_each_dialect_gives_its_rows(folder: Path, tmp_path: Path) -> None:
    expected: dict[str, Any] = json.loads((folder / "expect.json").read_text())
    path, given = _input(folder), expected["format"] if expected.get("given") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        if "error" in expected:
            with pytest.raises(DataError) as caught:
                import_(path, tmp_path / "o.parquet", format=given)
            assert expected["error"] in str(caught.value)
            assert expected.get("column") in (None, caught.value.column)
            return
        if given is None:
            assert recognized(path) == expected["format"]
        import_(path, tmp_path / "o.parquet", format=given, columns=expected.get("columns"))
    rows = pq.read_table(tmp_path / "o.parquet").to_pylist()
    for row in rows:
        row["texts"] = [passage["text"] for passage in row.get("passages") or ()]
    assert len(rows) == len(expected["rows"])
    for row, wanted in zip(rows, expected["rows"], strict=True):
        assert {name: row.get(name) for name in wanted} == wanted


def test_a_folder_of_several_formats_is_read_in_one_command(tmp_path: Path) -> None:
    for name in ("chat-openai", "codex", "swe-agent"):
        path = _input(HERE / name)
        (tmp_path / "logs" / name).mkdir(parents=True)
        (tmp_path / "logs" / name / path.name).write_bytes(path.read_bytes())
    done = run("traces", "import", tmp_path / "logs", "--out", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    for name in ("chat", "codex", "swe-agent"):
        assert f": {FORMATS[name].called} (--format {name})" in done.stdout + done.stderr
    ids = pq.read_table(tmp_path / "o.parquet", columns=["question_id"]).to_pydict()["question_id"]
    assert sorted(set(ids)) == ["c1", "input", "k-1"]


@pytest.mark.parametrize("mark", ["", "\ufeff", "\n\n"])
def test_a_large_document_is_recognized_by_its_start(mark: str, tmp_path: Path) -> None:
    document = json.loads(_input(HERE / "swe-agent").read_text())
    document["history"] *= 20_000
    (tmp_path / "a.traj").write_text(mark + json.dumps(document, indent=2))
    assert recognized(tmp_path / "a.traj") == "swe-agent"


def test_what_fits_no_format_is_refused_in_words(tmp_path: Path) -> None:
    for name, text in {"a.json": "", "b.txt": "hello", "c.jsonl": "[1, 2]", "d.zip": "PK"}.items():
        (tmp_path / name).write_text(text)
        done = run("traces", "import", tmp_path / name, "--out", tmp_path / "o.parquet")
        assert done.returncode == 2
        assert "--format" in done.stderr or "cannot be read" in done.stderr


def test_equal_ids_and_several_turns_give_questions_of_their_own(tmp_path: Path) -> None:
    row = (
        _input(HERE / "chat-anthropic")
        .read_text()
        .replace('{"messages"', '{"id": "q", "messages"', 1)
    )
    (tmp_path / "a.jsonl").write_text(row + row)
    import_(tmp_path / "a.jsonl", tmp_path / "o.parquet")
    ids = pq.read_table(tmp_path / "o.parquet", columns=["question_id"]).to_pydict()["question_id"]
    assert ids == ["q", "q#2", "q#3", "q#4"]


def test_a_broken_line_of_a_session_is_said_and_the_rest_read(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(_input(HERE / "codex").read_text() + '{"timestamp": "2026')
    with pytest.warns(SufficeWarning, match="broken line"):
        written = import_(tmp_path / "a.jsonl", tmp_path / "o.parquet")
    assert written.questions == 1


def test_what_is_no_log_is_left_out_of_a_folder_and_counted(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    (logs / ".git").mkdir(parents=True)
    (logs / ".hidden.json").write_text("{")
    (logs / ".git" / "config").write_text("x")
    (logs / "notes.md").write_text("# Notes")
    for name in ("chat-openai", "chat-no-conversation", "unknown"):
        (logs / name).with_suffix(".json").write_bytes(_input(HERE / name).read_bytes())
    done = run("traces", "import", logs, "--out", tmp_path / "o.parquet")
    assert done.returncode == 0, done.stderr
    assert "left out 3 files" in done.stdout + done.stderr
    done = run("traces", "import", logs / "notes.md", logs, "--out", tmp_path / "p.parquet")
    assert done.returncode == 2


def test_what_is_left_out_of_a_file_is_said_in_one_line(tmp_path: Path) -> None:
    for name, told in {
        "chat-no-agent": "conversations without a step of an agent (3)",
        "chat-images": "messages of kind 'narrator' (1)",
        "chat-other-order": "tool results that no use asked for (1)",
    }.items():
        with pytest.warns(SufficeWarning) as caught:
            import_(_input(HERE / name), tmp_path / f"{name}.parquet")
        assert [told in str(one.message) for one in caught] == [True]


def test_many_conversations_of_one_id_are_told_apart_in_time(tmp_path: Path) -> None:
    line = '{"id": "q", "messages": [{"role": "user", "content": "?"}, {"role": "ai", "content": "!"}]}\n'
    (tmp_path / "a.jsonl").write_text(line * 5_000 + line.replace('"q"', '"q#7"'))
    assert import_(tmp_path / "a.jsonl", tmp_path / "o.parquet").questions == 5_001
