"""Recordings made elsewhere become records, and what they lack is said."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import suffice
from suffice.datasets.columns import ROLES, SIGNAL
from suffice.datasets.files import parse_column_map
from suffice.datasets.recordings import import_traces
from suffice.errors import DataError, UsageError
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord

parse_roles = partial(parse_column_map, allowed=ROLES, free=SIGNAL)
MAP = (
    "question_id=qid,round=turn,question=q,answer=a,gold_answers=gold,passage_ids=docs,"
    "signals.confidence=conf,prompt_tokens=tokens,score=s"
)
NAMES = ("qid", "turn", "q", "a", "gold", "docs", "conf", "tokens", "s")
ROWS: list[dict[str, Any]] = [
    dict(zip(NAMES, cells, strict=True))
    for cells in (
        ("007", 2, "Who, ever?", "Ada", ["Ada"], ["d2"], 0.9, 310, 0.25),
        ("007", 1, "Who, ever?", None, ["Ada"], ["d1"], 0.2, 310, 0.25),
        ("008", 1, "When?", "1904", None, ["d1", "d3"], None, 310, 0.25),
    )
]
CSV = """qid,turn,q,a,gold,docs,conf,tokens,s
007,2,"Who, ever?",Ada,"[""Ada""]","[""d2""]",0.9,310,0.25
007,1,"Who, ever?",,"[""Ada""]","[""d1""]",0.2,310,0.25
008,1,When?,1904,,"[""d1"", ""d3""]",,310,0.25
"""


def jsonl(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def imported(
    path: Path, columns: str | None = None, *, kind: str = "columns"
) -> list[QuestionRecord]:
    out = path.parent / "out.parquet"
    import_traces(path, out, format=kind, columns=None if columns is None else parse_roles(columns))
    return list(read_traces(out).records())


@pytest.mark.parametrize("name", ["log.csv", "log.jsonl", "log.parquet"])
def test_a_table_of_rounds_is_the_same_record_in_every_format(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name.endswith("parquet"):
        pq.write_table(pa.Table.from_pylist(ROWS), path)
    elif name.endswith("csv"):
        path.write_text(CSV)
    else:
        jsonl(path, *ROWS)
    first, second = imported(path, MAP)
    assert [round_.answer for round_ in first.rounds] == [None, "Ada"]
    assert first.question.id == "007"
    assert first.gold.answers == ("Ada",)
    assert second.gold.answers == ()
    assert [p.id for p in (second.rounds[0].passages or ())] == ["d1", "d3"]
    assert [round_.signals.get("confidence") for round_ in first.rounds] == [0.2, 0.9]
    assert second.rounds[0].signals == {}
    assert first.rounds[0].usage.prompt_tokens == 310
    assert first.scores == {1: 0.25, 2: 0.25}


def test_rows_without_numbers_and_ids_are_taken_in_order(tmp_path: Path) -> None:
    asked = [("A?", "x"), ("B?", "y"), ("A?", "z")]
    rows = [{"question": text, "answer": answer} for text, answer in asked]
    path, out = jsonl(tmp_path / "log.jsonl", *rows), tmp_path / "out"
    written = suffice.traces.import_(path, out, format="columns")
    assert (written.questions, written.rounds) == (2, 3)
    traces = read_traces(out)
    held = {q.question.text: [r.answer for r in q.rounds] for q in traces.records()}
    assert held == {"A?": ["x", "z"], "B?": ["y"]}
    source = traces.origin.run["imported"]
    assert (source["format"], source["files"][0]["file"]) == ("columns", "log.jsonl")
    notes = " ".join(written.notes)
    for lacking in ("gold answers", "passages", "log-probabilities", "token counts", "stopped_by"):
        assert lacking in notes
    with pytest.raises(UsageError, match="--out"):
        import_traces(path, out, format="columns")


BAD: list[tuple[str, list[dict[str, Any]], str]] = [
    ("answer=a", [{"q": "?", "a": "x"}], "question_id"),
    ("question=q,answer=answr", [{"q": "?", "answer": "x"}], "'answer'"),
    (
        "question=q",
        [{"q": "?", "reply": "x"}],
        "no column is named for answer or score; it has: q, reply",
    ),
    (MAP, [ROWS[0], ROWS[1], ROWS[1]], "column turn"),
    (MAP, [ROWS[1], {**ROWS[1], "turn": 3}], "it has 1, 3"),
    (MAP, [{**ROWS[1], "turn": "one"}], "column turn"),
    (MAP, [{**ROWS[1], "turn": 1.5}], "found 1.5"),
    (MAP, [{**ROWS[1], "a": {"text": "x"}}], "column a"),
    (MAP, [{**ROWS[1], "s": 7}], "column s"),
    (MAP, [{**ROWS[1], "tokens": -1}], "column tokens"),
    (MAP, [ROWS[0], {**ROWS[1], "q": "Other?"}], "'007'"),
    (
        "question=q,answer=a,passages=docs",
        [{"q": "?", "a": "x", "docs": ["d"]}],
        "passage_ids=NAME",
    ),
    ("question_id=qid,answer=a", [{"qid": "", "a": "x"}], "qid"),
]


@pytest.mark.parametrize(("columns", "rows", "message"), BAD)
def test_what_is_wrong_in_a_table_is_said(
    tmp_path: Path, columns: str, rows: list[dict[str, Any]], message: str
) -> None:
    path = jsonl(tmp_path / "log.jsonl", *rows)
    with pytest.raises(DataError) as error:
        imported(path, columns)
    assert message in str(error.value)
    assert "log.jsonl" in str(error.value)
    assert not (tmp_path / "out.parquet").exists()


# --- formats ------------------------------------------------------------------------------------------
def test_flashrag_iterations_are_rounds(tmp_path: Path) -> None:
    """What ITERRETGENPipeline saves, two iterations of two documents."""
    documents = [
        {"id": str(n), "contents": f'"Title {n}"\nText {n}.', "score": 1.0 - n / 10}
        for n in range(3)
    ]
    output: dict[str, Any] = {"pred": "Ada", "metric_score": {"em": 1.0}}
    for number, (found, answer) in enumerate(((documents[:2], " Bo"), (documents[1:], "Ada"))):
        parts = {"retrieval_result": found, "prompt": "Answer: ", "pred": answer}
        output |= {f"{part}_iter_{number}": held for part, held in parts.items()}
    item = {"id": "test_0", "question": "Who?", "golden_answers": ["Ada"], "output": output}
    path = tmp_path / "intermediate_data.json"
    path.write_text(json.dumps([item], indent=4))
    (record,) = imported(path, kind="flashrag")
    first, second = record.rounds
    assert (first.answer, second.answer, record.gold.answers) == ("Bo", "Ada", ("Ada",))
    assert [(p.id, p.title, p.text) for p in second.passages or ()] == [("2", "Title 2", "Text 2.")]
    assert [p.id for p in second.refound or ()] == ["1"]
    assert second.query == "Who?  Bo"
    item = {"question": "Who?", "output": {"pred": "Ada", "retrieval_result": []}}
    path.write_text(json.dumps([item]))
    with pytest.raises(DataError, match="'retrieval_result'"):
        import_traces(path, tmp_path / "o", format="flashrag")


def test_tasr_files_are_read_by_their_columns(tmp_path: Path) -> None:
    rows = [
        {"qid": "q", "round": t, "question": "Who?", "current_answer": answer, "current_em": 0.0,
         "current_f1": f1, "llm_confidence": 4, "answer_token_margin": margin, "overlap_signal": 0.1,
         "gap": 2.5}
        for t, answer, f1, margin in [(1, "Bo", 0.0, float("nan")), (2, "Ada", 1.0, 0.75)]
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "signal_log.parquet")
    (record,) = imported(tmp_path / "signal_log.parquet", kind="tasr")
    assert record.scores == {1: 0.0, 2: 1.0}
    assert record.rounds[1].verbalized_confidence == 4.0
    assert record.rounds[1].signals == {
        "answer_token_margin": 0.75,
        "overlap": 0.1,
        "retrieval_gap": 2.5,
    }


def test_loopgain_is_read_as_the_published_trace(tmp_path: Path, data_folder: Path) -> None:
    """Every column but the split, which the raw form does not have."""
    copy = shutil.copy(data_folder / "data/loopgain/w4_even.jsonl", tmp_path)
    imported(Path(copy), kind="loopgain")
    ours = pq.read_table(tmp_path / "out.parquet")
    published = pq.read_table(data_folder / "traces/loopgain_w4.parquet")
    for name in set(published.column_names) - {"split"}:
        assert ours[name].to_pylist() == published[name].to_pylist(), name
    for name in set(ours.column_names) - set(published.column_names):
        assert not any(ours[name].to_pylist()), name


def test_a_loopgain_error_that_counts_is_scored_by_its_target(tmp_path: Path) -> None:
    budgets = {
        "B5": {"error_history": [4.0], "final_output": "x"},
        "B20": {"error_history": [4.0, 0.0], "final_output": "y"},
    }
    trial = {"trial_id": "t", "prompt": "Do.", "loop_type": "planner", "conditions": budgets}
    path = jsonl(tmp_path / "raw.jsonl", {"_header": True, "cell": {"target_error": 0.0}}, trial)
    (record,) = imported(path, kind="loopgain")
    assert record.scores == {1: 0.0, 2: 1.0}
    assert [round_.answer for round_ in record.rounds] == [None, "y"]
