"""Tables as programs log them: counted from 0, nested, in milliseconds, with repeats and gaps."""

from __future__ import annotations

import csv
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import run

import suffice
from suffice.datasets.columns import ROLES, SIGNAL
from suffice.datasets.files import parse_column_map
from suffice.errors import DataError
from suffice.evaluation.choose import candidates

parse_roles = partial(parse_column_map, allowed=ROLES, free=SIGNAL)
MAP = (
    "question_id=qid,round=step,question=ask,answer=reply.text,gold_answers=gold,group=chat,"
    "prompt_tokens=usage.in,completion_tokens=usage.out,latency_s=took_ms,passage_ids=hits[].doc,"
    "passage_texts=hits[].text,passage_scores=hits[].score,signals.confidence=reply.conf"
)


def row(question: str, step: int, answer: str = "Tromsø", **other: Any) -> dict[str, Any]:
    return {
        "qid": question,
        "step": step,
        "ask": f"Where was {question} born? 🙂",
        "reply": {"text": answer, "conf": 0.5},
        "usage": {"in": 900 + step, "out": 7},
        "took_ms": 1500,
        "hits": [{"doc": f"d{step}", "text": "“Tromsø” is a city", "score": 2.5, "meta": {"n": 1}}],
        "gold": ["Tromsø"],
        "chat": "c1",
        "err": None,
        **other,
    }


def log(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(one, ensure_ascii=False) + "\n" for one in rows), "utf-8")
    return path


def taken(path: Path, columns: str = MAP, **options: Any) -> dict[str, suffice.QuestionRecord]:
    out = path.parent / "out"
    suffice.traces.import_(path, out, format="columns", columns=parse_roles(columns), **options)
    return {record.question.id: record for record in suffice.read(out).records()}


def whole(question: str) -> list[dict[str, Any]]:
    return [row(question, step) for step in range(3)]


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet", ".csv"])
def test_fields_within_columns_are_read_wherever_they_stand(tmp_path: Path, suffix: str) -> None:
    rows = whole("q")
    rows[1] |= {"hits": [], "usage": None}
    path = tmp_path / f"log{suffix}"
    if suffix == ".jsonl":
        log(path, *rows)
    elif suffix == ".json":
        path.write_text(json.dumps(rows))
    elif suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with path.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(rows[0])
            for one in rows:
                writer.writerow(v if isinstance(v, str) else json.dumps(v) for v in one.values())
    (record,) = taken(path, rounds_from=0).values()
    first, second, _ = record.rounds
    (passage,) = first.passages or ()
    assert (passage.id, passage.text, passage.score) == ("d0", "“Tromsø” is a city", 2.5)
    assert second.passages == ()
    assert (first.answer, first.signals["confidence"]) == ("Tromsø", 0.5)
    assert (first.usage.prompt_tokens, second.usage.prompt_tokens) == (900, None)
    assert first.usage.latency_s == 1.5
    assert (record.question.group, record.closed_book) == ("c1", None)


@pytest.mark.parametrize(
    ("role", "column", "seconds"),
    [
        ("latency_s", "took_ms", 1.5),
        ("latency_s", "tookMs", 1.5),
        ("latency_s", "took", 1500.0),
        ("latency_ms", "took", 1.5),
        ("latency_us", "took", 0.0015),
        ("latency_s", "t.took_ns", 1.5e-6),
        ("latency_ms", "took_s", 1.5),  # what was said holds
    ],
)
def test_seconds_are_read_by_their_unit(
    tmp_path: Path, role: str, column: str, seconds: float
) -> None:
    head, _, part = column.partition(".")
    held: object = {part: 1500} if part else 1500
    path = log(tmp_path / "log.jsonl", {"question": "?", "answer": "x", head: held})
    (record,) = taken(path, f"{role}={column}").values()
    assert record.rounds[0].usage.latency_s == pytest.approx(seconds)


def test_rounds_from_0_are_asked_about(tmp_path: Path) -> None:
    """They are rounds, or closed-book answers: who imports them says it."""
    rows = [row(name, step, hits=[]) for name in "ab" for step in range(3)]
    path = log(tmp_path / "log.jsonl", *rows)
    with pytest.raises(DataError, match="--rounds-from 0") as caught:
        taken(path)
    assert caught.value.column == "step"
    assert not (tmp_path / "out").exists()
    assert [len(record.rounds) for record in taken(path, rounds_from=0).values()] == [3, 3]
    shutil.rmtree(tmp_path / "out")
    records = taken(path, rounds_from=1).values()
    assert [(len(one.rounds), one.closed_book is None) for one in records] == [(2, False)] * 2


@pytest.mark.parametrize("hits", [[], [{"doc": "d", "text": "t", "score": 1.0}]])
def test_a_round_0_of_few_questions_is_closed_book_unless_it_retrieved(
    tmp_path: Path, hits: list[Any]
) -> None:
    later = [row(name, step) for name in "bc" for step in (1, 2)]
    path = log(tmp_path / "log.jsonl", row("a", 0, hits=hits), row("a", 1), *later)
    if hits:
        with pytest.raises(DataError, match="--rounds-from"):
            taken(path)
    else:
        assert taken(path)["a"].closed_book is not None


@pytest.mark.parametrize(("duplicates", "answer"), [("first", "Oslo"), ("last", "Bergen")])
def test_of_repeated_rounds_the_one_asked_for_stands(
    tmp_path: Path, duplicates: Literal["first", "last"], answer: str
) -> None:
    rows = [row("a", 1, "Oslo"), row("a", 1, "Bergen"), row("a", 2)]
    path = log(tmp_path / "log.jsonl", *rows)
    with pytest.raises(DataError, match="--duplicates") as caught:
        taken(path)
    assert (caught.value.row, caught.value.column) == (1, "step")
    written = suffice.traces.import_(
        path, tmp_path / "out", format="columns", columns=parse_roles(MAP), duplicates=duplicates
    )
    assert any("repeated round" in note for note in written.notes)
    (record,) = suffice.read(tmp_path / "out").records()
    assert [one.answer for one in record.rounds] == [answer, "Tromsø"]


def test_what_is_invalid_is_left_out_and_counted(tmp_path: Path) -> None:
    """Three rounds are repeated, two questions have gaps, one cell is wrong, one row is of nobody."""
    rows = [one for name in "abcdefgh" for one in whole(name)]
    rows += [row(name, 1) for name in "abc"]
    rows = [one for one in rows if (one["qid"], one["step"]) not in {("d", 1), ("e", 0)}]
    rows += [row("f", 3, took_ms="soon"), row("", 3)]
    path, out = log(tmp_path / "log.jsonl", *rows), tmp_path / "out"
    options: dict[str, Any] = {"rounds_from": 0, "duplicates": "last", "skip_invalid": True}
    columns = parse_roles(MAP)
    written = suffice.traces.import_(path, out, format="columns", columns=columns, **options)
    assert suffice.read(out).question_ids == ("a", "b", "c", "g", "h")
    notes = " ".join(written.notes)
    for said in ("3 rows of repeated rounds", "2 questions with gaps", "2 wrong cells"):
        assert said in notes


@pytest.mark.parametrize(
    ("columns", "wanted", "near"),
    [
        ("question=ask,answer=reply.txt", "reply.txt", "reply.text"),
        ("question=ask,answer=rply.text", "rply.text", "reply"),
        ("question=ask,answer=reply.text,passage_ids=hits[].dok", "hits[].dok", "hits[].doc"),
    ],
)
def test_a_field_that_no_row_has_is_named_with_those_there_are(
    tmp_path: Path, columns: str, wanted: str, near: str
) -> None:
    path = log(tmp_path / "log.jsonl", *whole("a"))
    with pytest.raises(DataError) as caught:
        taken(path, columns)
    assert wanted in str(caught.value)
    assert near in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "cell", "column"),
    [
        ("question=ask,answer=reply.text", {"reply": "Oslo"}, "reply.text"),
        ("question=ask,answer=qid,passage_ids=hits[].doc", {"hits": {"doc": "d"}}, "hits[].doc"),
        ("question=ask,answer=qid,passage_scores=hits[].score", {}, "hits[].score"),
    ],
)
def test_a_field_of_another_shape_is_named(
    tmp_path: Path, columns: str, cell: dict[str, Any], column: str
) -> None:
    path = log(tmp_path / "log.jsonl", row("b", 1), row("a", 1, **cell))
    with pytest.raises(DataError) as caught:
        taken(path, columns)
    assert caught.value.column == column


def test_a_name_that_stands_twice_in_an_object_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(
        '{"question": "?", "answer": "a"}\n{"question": "?", "answer": "a", "answer": "b"}\n'
    )
    with pytest.raises(DataError, match="'answer'") as caught:
        taken(path, "question=question")
    assert caught.value.row == 1


def test_a_messy_log_is_two_commands_away_from_a_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 0, ids as numbers, a gap, a repeat, no answer in a round, NaN, a line that broke off."""
    monkeypatch.setattr(candidates, "nameable_methods", lambda: ("stable-base-rate",))
    rows: list[dict[str, Any]] = []
    for number in range(60):
        for step in range(3):
            answer = "Tromsø" if step >= number % 3 else "Oslo"
            rows.append(row(f"q{number}", step, answer, chat=f"c{number}", qid=number))
    rows[20]["reply"] = {"text": None, "conf": float("nan")}
    del rows[4]
    rows.insert(9, rows[8])
    path = log(tmp_path / "log.jsonl", *rows)
    with path.open("a", encoding="utf-8") as stream:
        stream.write('{"qid": 60, "ste')
    out, chosen = tmp_path / "rec", tmp_path / "chosen"
    options = ["--rounds-from", "0", "--duplicates", "last", "--skip-invalid"]
    made = run(
        "traces", "import", path, "--format", "columns", "--columns", MAP, *options, "--out", out
    )
    assert made.returncode == 0, made.stderr
    found = run("choose", out, "--out", chosen, "--max-signals", "1", "--bootstrap", "5")
    assert found.returncode == 0, found.stderr
    assert "1 labeled question without a scored answer" in " ".join(found.stdout.split())
    notes = json.loads((chosen / "choice.json").read_text("utf-8"))["notes"]
    assert any(note.startswith("1 labeled question without a scored answer") for note in notes)
    assert "1 labeled question without a scored answer" in (chosen / "index.html").read_text(
        "utf-8"
    )
    assert (chosen / "index.html").exists()
