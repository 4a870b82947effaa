"""FlashRAG's and LoopGain's files, in which one row holds all rounds, as tables with a row per round."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

from suffice.datasets.files import FileTable, Row, json_lines, json_rows, text_id
from suffice.datasets.recordings.columns import number, texts
from suffice.errors import DataError

_ELSE = "a table with a row per round is read by --format columns"


def _seen(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, [*names][:12])) or "nothing"


# --- FlashRAG ---------------------------------------------------------------------------------------
def flashrag_table(path: Path) -> FileTable:
    """``intermediate_data.json`` of an iterative pipeline; iteration 0 is round 1."""
    return FileTable.of(path, (part for row in json_rows(path) for part in _iterations(row)))


def _iterations(row: Row) -> Iterator[Row]:
    """The query of a round is what the pipeline sends: the question, then with the last answer behind."""
    output = row.inside("output", row.values.get("output"))
    total = next(n for n in count() if f"pred_iter_{n}" not in output.values)
    if not total or total < sum(name.startswith("pred_iter_") for name in output.values):
        raise row.error(
            f"has no 'pred_iter_{total}', so no answer of each iteration; it has "
            f"{_seen(output.values or row.values)}. FlashRAG's iterative pipeline (ITERRETGENPipeline) keeps "
            f"them; with another, save an answer of every round: {_ELSE}",
            "output",
        )
    question = row.required("question")
    query, found = question, set[str]()
    for iteration in range(total):
        answer = output.text(f"pred_iter_{iteration}")
        passages = _documents(output, f"retrieval_result_iter_{iteration}")
        values = {
            "question_id": str(row.values.get("id") or text_id(question)),
            "question": question,
            "gold_answers": texts(row, row.values.get("golden_answers"), "golden_answers"),
            "round": iteration + 1,
            "answer": answer.strip(),
            "response": answer,
            "query": query,
            "passages": [p for own, p in passages.items() if own not in found],
            "refound": [p for own, p in passages.items() if own in found],
            "llm_calls": 1,
            "answer_calls": 0,
            "retrievals": 1,
        }
        yield Row(row.file, row.number, values)
        query, found = f"{question} {answer}", found | passages.keys()


def _documents(output: Row, name: str) -> dict[str, dict[str, Any]]:
    """Documents found, each once; the first line of ``contents`` is the title."""
    passages: dict[str, dict[str, Any]] = {}
    for held in output.objects(name):
        document = output.inside(name, held)
        contents = document.text("contents", default="") or document.text("text", default="")
        title = document.text("title", default="")
        if "contents" in held and "\n" in contents:
            first, contents = contents.split("\n", 1)
            title = title or first.strip().strip('"')
        own = held.get("id")
        own = text_id(f"{title}\n{contents}") if own is None else str(own)
        passage = {"id": own, "title": title, "text": contents, "score": held.get("score")}
        passages.setdefault(own, passage)
    return passages


# --- LoopGain ---------------------------------------------------------------------------------------
def loopgain_table(path: Path) -> FileTable:
    """Trials of loopgain-bench under the largest fixed budget (B20), which nothing stopped.

    Only the last round has an answer. Signal ``error`` is the loop's own; the score is 1 - error where the
    file's errors lie in 0 to 1, and else 1 where the cell's target was reached and 0 before.
    """
    rows = list(json_lines(path))
    header = next((row.values for row in rows if row.values.get("_header")), {})
    trials = [(row, *_budget(row)) for row in rows if not row.values.get("_header")]
    if not trials:
        raise DataError("holds no trial", file=str(path))
    shares = all(error <= 1.0 for *_, errors in trials for error in errors)
    target = cell.get("target_error") if isinstance(cell := header.get("cell"), dict) else None
    reached = float(target) if isinstance(target, int | float) else 0.0
    return FileTable.of(
        path,
        (
            Row(
                row.file,
                row.number,
                {
                    "question_id": row.required("trial_id"),
                    "question": row.text("prompt", default=""),
                    "question_type": row.text("loop_type", default="") or None,
                    "round": at,
                    "answer": None if output is None or at < len(errors) else str(output),
                    "llm_calls": 1,
                    "signals": {"error": error},
                    "score": 1.0 - error if shares else float(error <= reached),
                },
            )
            for row, output, errors in trials
            for at, error in enumerate(errors, start=1)
        ),
    )


def _budget(row: Row) -> tuple[Any, list[float]]:
    """What the condition with the largest budget returned, and its errors by round."""
    conditions = row.inside("conditions", row.values.get("conditions"))
    budgets = [name for name in conditions.values if re.fullmatch(r"B\d{1,4}", name)]
    if not budgets:
        raise row.error(
            "is no trial of LoopGain's benchmark: no condition of a fixed budget (B5, B10, B20); it has "
            f"{_seen(conditions.values or row.values)}; {_ELSE}",
            "conditions",
        )
    largest = max(budgets, key=lambda name: int(name[1:]))
    budget = conditions.inside(largest, conditions.values[largest])
    errors = [number(budget, error, "error_history") for error in budget.rows("error_history")]
    if not errors or not all(error >= 0 for error in errors):
        raise budget.error("must be numbers of at least 0", "error_history")
    return budget.values.get("final_output"), errors
