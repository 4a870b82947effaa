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
from suffice.errors import UsageError
from suffice.trace.export import export_traces
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


def test_what_is_exported_is_read_back(tmp_path: Path) -> None:
    write_traces(RECORDS, tmp_path / "in.parquet")
    out = tmp_path / "out.jsonl"
    written = export_traces(tmp_path / "in.parquet", out, format="jsonl")
    assert (written.questions, written.rounds, written.notes) == (2, 3, ())
    lines = out.read_text().splitlines()
    rows = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert rows[-1] == {"question_id": "1", "round": 1, "question": "", "answer": "x"}
    import_traces(out, tmp_path / "back.parquet", format="columns")
    table, back = (read_traces(tmp_path / name) for name in ("in.parquet", "back.parquet"))
    for before, after in ((table.table, back.table), (table.closed_book, back.closed_book)):
        for name in before.column_names:
            was, now = (
                repr([value or None for value in t[name].to_pylist()]) for t in (before, after)
            )
            assert was == now, name
    with pytest.raises(UsageError, match="exists already"):
        export_traces(tmp_path / "in.parquet", out, format="jsonl")
