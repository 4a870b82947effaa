"""A record as text holds what the record holds, and is read back."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import suffice
from suffice.datasets.recordings import import_traces
from suffice.errors import DataError, UsageError
from suffice.trace.export import EXPORT_FORMATS, ExportFormat, export_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import TopToken
from suffice.trace.rounds.writer import write_traces

ROUND = suffice.Round(
    answer='Ada, "the" first',
    query="Who?",
    passages=(suffice.Passage(id="p", title="T", text="Ada did.\nShe did.", score=0.1),),
    tokens=(suffice.Token("Ada", -0.3, (TopToken("Bo", -math.inf),)),),
    samples=("Ada", "[Bo"),
    sample_clusters=(0, 1),
    candidate_scores=(0.3, math.nan),
    usage=suffice.Usage(llm_calls=2, latency_s=0.7),
    probed=True,
    time=datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC),
    signals={"own": 0.25, "undefined": math.nan},
)
RECORDS = [
    suffice.QuestionRecord(
        question=suffice.Question(id="007", text="Who?", type="bridge", split="eval", group="g"),
        gold=suffice.Gold(answers=("Ada", "a, b"), passage_ids=("p",)),
        rounds=(replace(ROUND, answer=None, passages=()), ROUND),
        closed_book=suffice.Round(answer="=1+1"),
        scores={2: 0.3},
        propensity=0.05,
        stopped_by="policy",
        policy_hash="ab",
    ),
    suffice.QuestionRecord(
        question=suffice.Question(id="1", text=""), rounds=(suffice.Round(answer="x"),)
    ),
]


@pytest.mark.parametrize("format", EXPORT_FORMATS[1:])
def test_what_is_exported_is_read_back(tmp_path: Path, format: ExportFormat) -> None:  # noqa: A002
    write_traces(RECORDS, tmp_path / "in.parquet")
    out = tmp_path / f"out.{format}"
    written = export_traces(tmp_path / "in.parquet", out, format=format)
    assert (written.questions, written.rounds, written.notes) == (2, 3, ())
    if format == "jsonl":
        lines = out.read_text().splitlines()
        rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
        assert rows[-1] == {"question_id": "1", "round": 1, "question": "", "answer": "x"}
    read_as = "otlp" if format == "otlp" else "columns"
    import_traces(out, tmp_path / "back.parquet", format=read_as)
    table, back = (read_traces(tmp_path / name) for name in ("in.parquet", "back.parquet"))
    for before, after in ((table.table, back.table), (table.closed_book, back.closed_book)):
        for name in before.column_names:
            was, now = (
                repr([value or None for value in t[name].to_pylist()]) for t in (before, after)
            )
            assert was == now, name
    with pytest.raises(UsageError, match="exists already"):
        export_traces(tmp_path / "in.parquet", out, format=format)


def test_an_empty_answer_in_csv_is_said(tmp_path: Path) -> None:
    record = replace(RECORDS[1], rounds=(suffice.Round(answer=""),))
    write_traces([record], tmp_path / "in.parquet")
    written = export_traces(tmp_path / "in.parquet", tmp_path / "out.csv", format="csv")
    assert "1 empty answers are blank cells" in written.notes[0]


def test_spans_say_it_by_the_names_of_the_conventions_too(tmp_path: Path) -> None:
    """What another tool reads of an export: here our own reader, without our own attributes."""
    rounds = (
        suffice.Round(answer="Bo", passages=ROUND.passages, query="Who?"),
        replace(ROUND, query="Who else?", passages=(), refound=(suffice.Passage(id="p"),)),
    )
    record = replace(RECORDS[0], rounds=rounds, closed_book=None, stopped_by="error")
    write_traces([record], tmp_path / "in.parquet", run={"model": "m"})
    export_traces(tmp_path / "in.parquet", tmp_path / "out.otlp", format="otlp")
    text = (tmp_path / "out.otlp").read_text()
    foreign = tmp_path / "foreign.json"
    foreign.write_text(text.replace("suffice.round", "other").replace("suffice.question", "own"))
    import_traces(foreign, tmp_path / "back.parquet", format="otlp")
    (back,) = read_traces(tmp_path / "back.parquet").records()
    assert (back.question.text, back.stopped_by) == ("Who?", "error")
    assert [round_.answer for round_ in back.rounds] == [None, 'Ada, "the" first']
    assert [round_.query for round_ in back.rounds] == ["Who?", "Who else?"]
    assert back.rounds[0].passages == ROUND.passages
    assert back.rounds[1].refound == (suffice.Passage(id="p"),)
    assert '"chat m"' in text
    broken = tmp_path / "broken.json"
    broken.write_text(text.replace('\\"propensity\\": ', '\\"propensty\\": '))
    with pytest.raises(
        DataError, match=r"span .*suffice.question and suffice.round are not what an"
    ):
        import_traces(broken, tmp_path / "no.parquet", format="otlp")
