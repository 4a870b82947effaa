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


def _table(path: Path, rows: Iterator[Row]) -> FileTable:
    """Rows with the schema's names for columns."""
    held = list(rows)
    names = tuple(dict.fromkeys(name for row in held for name in row.values))
    return FileTable(str(path), names, lambda _: iter(held))


def _seen(names: Any) -> str:
    return ", ".join(map(repr, [*names][:12])) or "nothing"


# --- FlashRAG ---------------------------------------------------------------------------------------
def flashrag_table(path: Path) -> FileTable:
    """``intermediate_data.json`` of an iterative pipeline; iteration 0 is round 1."""
    return _table(path, (part for row in json_rows(path) for part in _iterations(row)))


def _iterations(row: Row) -> Iterator[Row]:
    """The query of a round is what the pipeline sends: the question, then with the last answer behind."""
    output = row.values.get("output")
    if not isinstance(output, dict):
        raise row.error(
            "is no question of FlashRAG's intermediate_data.json: no object 'output'; it has "
            f"{_seen(row.values)}; a table with a row per round is read by --format columns",
            "output",
        )
    total = next(n for n in count() if f"pred_iter_{n}" not in output)
    if not total or total < sum(name.startswith("pred_iter_") for name in output):
        raise row.error(
            f"has no 'pred_iter_{total}', so no answer of each iteration; it has {_seen(output)}. FlashRAG's "
            "iterative pipeline (ITERRETGENPipeline) keeps them; with another, save an answer of every "
            "round and read that with --format columns",
            "output",
        )
    question = row.required("question")
    query, found = question, set[str]()
    for iteration in range(total):
        answer = output[f"pred_iter_{iteration}"]
        if not isinstance(answer, str):
            raise row.error(
                f"must be a text, found {answer!r:.60}", f"output.pred_iter_{iteration}"
            )
        passages = _documents(row, output, f"retrieval_result_iter_{iteration}")
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


def _documents(row: Row, output: Mapping[str, Any], name: str) -> dict[str, dict[str, Any]]:
    """Documents found, each once; the first line of ``contents`` is the title."""
    column = f"output.{name}"
    documents = output.get(name) or []
    if not isinstance(documents, list) or not all(isinstance(item, dict) for item in documents):
        raise row.error(f"must be a list of documents, found {documents!r:.60}", column)
    passages: dict[str, dict[str, Any]] = {}
    for document in documents:
        contents = document.get("contents") or document.get("text") or ""
        title, score = document.get("title") or "", document.get("score")
        if not (isinstance(contents, str) and isinstance(title, str)):
            raise row.error(f"a document's texts must be texts, found {document!r:.80}", column)
        if "contents" in document and "\n" in contents:
            first, contents = contents.split("\n", 1)
            title = title or first.strip().strip('"')
        own = document.get("id")
        own = text_id(f"{title}\n{contents}") if own is None else str(own)
        passage = {"id": own, "title": title, "text": contents, "score": score}
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
    trials = [(row, _budget(row)) for row in rows if not row.values.get("_header")]
    if not trials:
        raise DataError("holds no trial", file=str(path))
    errors = [_errors(row, budget) for row, budget in trials]
    shares = all(error <= 1.0 for history in errors for error in history)
    target = cell.get("target_error") if isinstance(cell := header.get("cell"), dict) else None
    reached = float(target) if isinstance(target, int | float) else 0.0

    def rounds() -> Iterator[Row]:
        for (row, budget), history in zip(trials, errors, strict=True):
            output = budget.get("final_output")
            for at, error in enumerate(history, start=1):
                values = {
                    "question_id": row.required("trial_id"),
                    "question": row.text("prompt", default=""),
                    "question_type": row.text("loop_type", default="") or None,
                    "round": at,
                    "answer": None if output is None or at < len(history) else str(output),
                    "llm_calls": 1,
                    "signals": {"error": error},
                    "score": 1.0 - error if shares else float(error <= reached),
                }
                yield Row(row.file, row.number, values)

    return _table(path, rounds())


def _budget(row: Row) -> Mapping[str, Any]:
    """The condition with the largest budget."""
    conditions = row.values.get("conditions")
    named = conditions if isinstance(conditions, dict) else {}
    budgets = [name for name in named if re.fullmatch(r"B\d{1,4}", name)]
    budget = named[max(budgets, key=lambda name: int(name[1:]))] if budgets else None
    if not isinstance(budget, dict):
        raise row.error(
            f"is no trial of LoopGain's benchmark: no condition of a fixed budget (B5, B10, B20); it has "
            f"{_seen(named or row.values)}; a table with a row per round is read by --format columns",
            "conditions",
        )
    return budget


def _errors(row: Row, budget: Mapping[str, Any]) -> list[float]:
    history = budget.get("error_history")
    if not isinstance(history, list) or not history:
        raise row.error(f"must be a list of numbers, found {history!r:.60}", "error_history")
    errors = [number(row, error, "error_history") for error in history]
    if not all(error >= 0 for error in errors):
        raise row.error("an error must be a number of at least 0", "error_history")
    return errors
