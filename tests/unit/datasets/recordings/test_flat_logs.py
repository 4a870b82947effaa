"""Logs with a row a round, as strangers have them: imported as they type it, or told what to type."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import run

import suffice
from suffice.errors import DataError, SufficeWarning, UsageError

TOKENS = (450, 600, 650)
HEADS = ["question_id", "round", "question", "answer", "gold_answers"]


def rows(questions: int = 30, **more: Callable[[int, int], Any]) -> list[dict[str, Any]]:
    """Questions of three rounds, of which the last two are right."""
    return [
        {
            "question_id": f"q{number}",
            "round": at + 1,
            "question": f"Where is {number}?",
            "answer": f"Town {number}" if at else "nowhere",
            "gold_answers": f"Town {number}",
            "prompt_tokens": TOKENS[at],
        }
        | {name: value(number, at) for name, value in more.items()}
        for number in range(questions)
        for at in range(3)
    ]


def table(file: Path, made: list[dict[str, Any]], delimiter: str = ",", **how: Any) -> Path:
    with file.open("w", newline="", **how) as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        writer.writerow(made[0])
        writer.writerows(row.values() for row in made)
    return file


def imported(file: Path, *words: str) -> tuple[suffice.TraceSet, str]:
    out = file.parent / "record"
    done = run("traces", "import", "--format", "columns", file, *words, "--out", out)
    assert done.returncode == 0, done.stderr
    return suffice.read(out), done.stderr


def spent(record: suffice.TraceSet, cost: str) -> float | None:
    (policy,) = suffice.replay(record, "fixed-3", baseline="fixed-3", metric="em").policies
    value: float | None = policy.costs[cost]
    return value


# --- which columns --------------------------------------------------------------------------------
def test_columns_of_the_schema_s_names_are_read_beside_a_map(tmp_path: Path) -> None:
    made = [{"id": row.pop("question_id"), **row} for row in rows(answer_calls=lambda *_: 0)]
    record, said = imported(table(tmp_path / "log.csv", made), "--columns", "question_id=id")
    assert spent(record, "prompt_tokens") == sum(TOKENS)
    assert "not read" not in said


def test_what_is_not_read_is_listed(tmp_path: Path) -> None:
    made = rows(engine=lambda *_: "x", host=lambda *_: 1)
    file = table(tmp_path / "log.csv", made)
    for number, columns in enumerate(("", "query=question", "signals.n=round")):
        _, said = imported(file, *(("--columns", columns) if columns else ()))
        assert "not read: engine, host" in said
        (tmp_path / "record").rename(tmp_path / f"record{number}")


def test_a_column_that_means_something_else_is_left_out_by_name(tmp_path: Path) -> None:
    file = table(tmp_path / "log.csv", rows(time=lambda number, at: number))
    with pytest.raises(DataError, match="--columns time=-") as caught:
        suffice.traces.import_(file, tmp_path / "no", format="columns")
    assert (caught.value.row, caught.value.column) == (0, "time")
    record, said = imported(file, "--columns", "time=-")
    assert (record.n_questions, record.has("time"), "not read: time" in said) == (30, False, True)


def test_a_mapped_column_stands_before_one_of_the_schema_s_name(tmp_path: Path) -> None:
    file = table(
        tmp_path / "log.csv", rows(latency_ms=lambda *_: 1, took=lambda *_: 2, docs=lambda *_: "d")
    )
    record, _ = imported(file, "--columns", "latency_s=took,passage_ids=docs")
    (first, *_) = next(record.records()).rounds
    assert (first.usage.latency_s, [passage.id for passage in first.passages or ()]) == (2.0, ["d"])


# --- costs ----------------------------------------------------------------------------------------
def test_a_loop_that_answers_in_every_round_pays_for_each(tmp_path: Path) -> None:
    file = table(tmp_path / "log.csv", rows())
    record, said = imported(file)
    assert spent(record, "prompt_tokens") == TOKENS[-1]
    (remedy,) = re.findall(r"--answers-in-every-round", said)
    (tmp_path / "record").rename(tmp_path / "assumed")
    record, said = imported(file, remedy)
    assert spent(record, "prompt_tokens") == sum(TOKENS)
    assert remedy not in said
    assert record.origin.run["imported"]["answers_in_every_round"] is True


@pytest.mark.parametrize(("name", "value"), [("usd", -1.0), ("usd", "x"), ("answer_usd", 9.0)])
def test_dollars_that_cannot_be_are_refused(tmp_path: Path, name: str, value: Any) -> None:
    made = rows(usd=lambda *_: 1.0, answer_usd=lambda *_: 0.5)
    made[4][name] = value
    with pytest.raises(DataError) as caught:
        suffice.traces.import_(
            table(tmp_path / "log.csv", made), tmp_path / "out", format="columns"
        )
    assert caught.value.column == name


# --- files ----------------------------------------------------------------------------------------
FILES: dict[str, dict[str, Any]] = {
    "utf-16": {"encoding": "utf-16"},
    "utf-16-be": {"encoding": "utf-16-be"},
    "bom": {"encoding": "utf-8-sig"},
    "semicolons": {"delimiter": ";"},
    "tabs": {"delimiter": "\t"},
}


@pytest.mark.parametrize("how", FILES)
def test_a_table_of_another_program_is_read(tmp_path: Path, how: str) -> None:
    file = table(tmp_path / "log.csv", rows(note=lambda *_: 'Ålesund, "a"\nb'), **FILES[how])
    if how == "utf-16-be":
        file.write_bytes(b"\xfe\xff" + file.read_bytes())
    record, _ = imported(file)
    assert (record.n_questions, spent(record, "prompt_tokens")) == (30, TOKENS[-1])


@pytest.mark.parametrize("end", ["\r", "\r\n", "\n"])
@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".ndjson"])
def test_lines_end_as_they_like(tmp_path: Path, end: str, suffix: str) -> None:
    file = tmp_path / f"log{suffix}"
    lines = [json.dumps(row) for row in rows(3)]
    if suffix == ".csv":
        lines = [",".join(HEADS), *(",".join(str(row[name]) for name in HEADS) for row in rows(3))]
    file.write_bytes(end.join(lines).encode())
    assert imported(file)[0].n_questions == 3


@pytest.mark.parametrize(("encoding", "named"), [("latin-1", "LATIN1"), ("utf-16-le", "UTF-16")])
def test_another_encoding_is_refused_with_the_cure(
    tmp_path: Path, encoding: str, named: str
) -> None:
    file = table(tmp_path / "log.csv", rows(city=lambda *_: "Ålesund"), encoding=encoding)
    with pytest.raises(DataError, match=f"iconv -f {named}"):
        suffice.traces.import_(file, tmp_path / "out", format="columns")


# --- cells ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_several_answers_in_a_cell(tmp_path: Path, suffix: str) -> None:
    made = rows(gold_answers=lambda number, _: f"City {number} | Town {number}")
    file = tmp_path / f"log{suffix}"
    if suffix == ".csv":
        table(file, made)
    else:
        file.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    record, _ = imported(file, "--separator", "|")
    assert record.gold[0].answers == ("City 0", "Town 0")
    labels = table(tmp_path / "labels.csv", [{"question_id": "q1", "gold_answers": "Oslo;Rome"}])
    words = ("--separator", ";", "--replace", "--out", tmp_path / "labeled")
    assert run("traces", "label", tmp_path / "record", labels, *words).returncode == 0
    golds = {record.question.id: record.gold.answers for record in _records(tmp_path / "labeled")}
    assert golds["q1"] == ("Oslo", "Rome")


def test_labels_that_hold_a_separator_are_told_of_as_in_import(tmp_path: Path) -> None:
    imported(table(tmp_path / "log.csv", rows(gold_answers=lambda *_: "")))
    labels = table(tmp_path / "labels.csv", [{"question_id": "q1", "gold_answers": "Oslo|Rome"}])
    words = ("traces", "label", tmp_path / "record", labels, "--replace", "--out")
    assert "--separator '|'" in run(*words, tmp_path / "a").stderr
    assert "--separator" not in run(*words, tmp_path / "b", "--separator", "|").stderr


@pytest.mark.parametrize("ending", [".jsonl", ".json"])
def test_truth_values_are_answers(tmp_path: Path, ending: str) -> None:
    made = rows(answer=lambda _, at: at > 0, gold_answers=lambda *_: [True])
    file = tmp_path / f"log{ending}"
    lines = "".join(f"{json.dumps(row)}\n" for row in made)
    file.write_text(lines if ending == ".jsonl" else json.dumps(made))
    record, _ = imported(file)
    first = next(record.records())
    assert [round_.answer for round_ in first.rounds] == ["false", "true", "true"]
    assert first.gold.answers == ("true",)


@pytest.mark.parametrize("line", ["sep=;\n", '"sep=;"\r\n', "SEP=;\r", "sep=;;;\n"])
def test_the_line_that_names_the_separator_is_no_header(tmp_path: Path, line: str) -> None:
    file = tmp_path / "log.csv"
    cells = "question_id;question;round;answer\nq1;A, b, c, d, e?;1;Oslo\n"
    file.write_text(line + cells, newline="")
    record, _ = imported(file)
    assert record.questions[0].text == "A, b, c, d, e?"
    labels = tmp_path / "labels.csv"
    labels.write_text(f"{line}question_id;gold_answers\nq1;Rome, Oslo, Bergen\n", newline="")
    words = ("traces", "label", tmp_path / "record", labels, "--out", tmp_path / "labeled")
    assert run(*words).returncode == 0
    assert _records(tmp_path / "labeled")[0].gold.answers == ("Rome, Oslo, Bergen",)


@pytest.mark.parametrize("text", ["1:5", "1:5:1", "1", "1,2,3", "a,b"])
def test_a_range_of_scores_is_low_and_high(tmp_path: Path, text: str) -> None:
    file = table(tmp_path / "log.csv", rows(score=lambda *_: 4))
    words = ("--format", "columns", file, "--out", tmp_path / "out", "--score-range", text)
    done = run("traces", "import", *words)
    assert (done.returncode, "STEP" in done.stderr) == (2, False)
    assert "LOW,HIGH" in done.stderr or "number" in done.stderr


def _records(place: Path) -> list[suffice.QuestionRecord]:
    return [*suffice.read(place).records()]


@pytest.mark.parametrize(
    ("value", "words", "score"),
    [
        (lambda *_: 4, ("--score-range", "1,5"), 0.75),
        (lambda *_: "TRUE", (), 1.0),
        (lambda *_: "false", (), 0.0),
        (lambda *_: 80, ("--score-range", "0,100"), 0.8),
    ],
)
def test_scores_of_another_range(
    tmp_path: Path, value: Callable[..., Any], words: tuple[str, ...], score: float
) -> None:
    record, _ = imported(table(tmp_path / "log.csv", rows(score=value)), *words)
    assert next(record.records()).scores[1] == pytest.approx(score)


def test_booleans_are_scores(tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    made = rows(score=lambda _, at: at > 0, sure=lambda _, at: at > 1)
    file.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    record, _ = imported(file, "--columns", "signals.sure=sure")
    first = next(record.records())
    assert [*first.scores.values()] == [0.0, 1.0, 1.0]
    assert [round_.signals["sure"] for round_ in first.rounds] == [0.0, 0.0, 1.0]


@pytest.mark.parametrize(
    ("value", "words"), [(4, ()), (6, ("--score-range", "1,5")), (4, ("--score-range", "5,1"))]
)
def test_a_score_outside_is_refused_with_the_option(
    tmp_path: Path, value: int, words: tuple[str, ...]
) -> None:
    file = table(tmp_path / "log.csv", rows(score=lambda *_: value))
    done = run("traces", "import", "--format", "columns", file, *words, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert "1,5" in done.stderr or "from 1 to 5" in done.stderr


@pytest.mark.parametrize(
    ("passage", "named"),
    [
        ({"ref": "d1", "words": "It was."}, ("ref", "words")),
        ({"title": "It", "doc_id": "d1", "content": "It was."}, ("doc_id", "content")),
    ],
)
def test_passages_with_other_names_are_refused_with_the_cure(
    tmp_path: Path, passage: dict[str, str], named: tuple[str, str]
) -> None:
    file = tmp_path / "log.jsonl"
    made = rows(passages=lambda *_: [passage], passage_scores=lambda *_: [0.5])
    file.write_text("".join(f"{json.dumps(row)}\n" for row in made))
    with pytest.raises(DataError, match="passage_ids=NAME,passage_texts=NAME") as caught:
        suffice.traces.import_(file, tmp_path / "out", format="columns")
    assert caught.value.column == "passages"
    fields = [f"passages[].{name}" for name in named]
    assert all(field in caught.value.message for field in fields)
    columns = "passage_ids={},passage_texts={}".format(*fields)
    record, _ = imported(file, "--columns", columns)
    (found,) = next(record.records()).rounds[0].passages or ()
    assert (found.id, found.text, found.score) == ("d1", "It was.", 0.5)


# --- where a record is wanted ---------------------------------------------------------------------
COMMANDS = ("choose", "replay", "diagnose", "search --signals round", "traces info")
LOGS = ("log.csv", "a log.jsonl", "log.tsv", "log.json", "folder")


@pytest.mark.parametrize("name", LOGS)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_log_where_a_record_is_wanted_names_the_import(
    tmp_path: Path, command: str, name: str
) -> None:
    file = tmp_path / name
    if name == "folder":
        file.mkdir()
        table(file / "log.csv", rows())
    elif name.endswith("sv"):
        table(file, rows(), "\t" if name.endswith("tsv") else ",")
    else:
        made = rows()
        lines = json.dumps(made) if name == "log.json" else "\n".join(map(json.dumps, made))
        file.write_text(lines)
    done = run(*command.split(), file)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    typed = re.search(r"type: (suffice .*?), then", done.stderr)
    assert typed is not None
    new = str(tmp_path / "new")
    words = [new if word == "NEW" else word for word in shlex.split(typed[1])]
    assert run(*words[1:]).returncode == 0
    assert suffice.read(new).n_questions == 30


def test_a_table_of_parquet_that_is_no_record_names_the_import(tmp_path: Path) -> None:
    file = tmp_path / "log.parquet"
    made = [{"questionid": row.pop("question_id"), **row} for row in rows()]
    pq.write_table(pa.Table.from_pylist(made), file)
    with pytest.warns(SufficeWarning), pytest.raises(DataError) as caught:
        suffice.read(file)
    typed = re.search(r"type: (suffice .*? --out NEW)", caught.value.message)
    assert typed is not None
    new = str(tmp_path / "new")
    assert run(*(new if w == "NEW" else w for w in shlex.split(typed[1])[1:])).returncode == 0
    assert suffice.read(new).n_questions == 30


def test_options_of_tables_are_refused_for_runs(tmp_path: Path) -> None:
    for options in ({"separator": "|"}, {"answers_in_every_round": True}, {"score_range": (1, 5)}):
        with pytest.raises(UsageError, match="--format columns"):
            suffice.traces.import_(tmp_path / "x", tmp_path / "y", format="otlp", **options)
