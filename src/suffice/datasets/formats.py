"""Formats of recordings made elsewhere: how each is recognized, and what reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from dataclasses import replace as replaced
from itertools import chain, count
from pathlib import Path
from typing import Any

from suffice.datasets.columns import TASR, Layout, number, read_columns, read_table, texts
from suffice.datasets.conversations import (
    LISTS,
    Reader,
    atif,
    chat,
    claude_code,
    codex,
    conversations,
    promptfoo,
    swe_agent,
)
from suffice.datasets.files import FileTable, Row, json_documents, json_lines, text_id
from suffice.datasets.inspect_ai import read_inspect
from suffice.datasets.otlp import read_otlp
from suffice.datasets.runs import child, children, passage_of
from suffice.datasets.samples import sample
from suffice.errors import DataError
from suffice.trace.rounds.records import QuestionRecord

_ELSE = "for a table with one row per round type --format columns"


def _seen(names: Mapping[str, Any]) -> str:
    return ", ".join(map(repr, [*names][:12])) or "nothing"


# --- FlashRAG ---------------------------------------------------------------------------------------
def _iterations(row: Row) -> Iterator[Row]:
    """Return the rounds of a question in ``intermediate_data.json``; iteration 0 is round 1.

    Each query is what the pipeline sends: the question, later with the last answer.
    """
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
    passages: dict[str, dict[str, Any]] = {}
    for document in output.objects(name):
        contents = document.get("contents")
        if isinstance(contents, str):
            first, line_feed, text = contents.partition("\n")
            title = document.get("title") or (first.strip().strip('"') if line_feed else "")
            document |= {"title": title, "text": text if line_feed else contents}
        passage = passage_of(document)
        passages.setdefault(passage.id, asdict(passage))
    return passages


# --- LoopGain ---------------------------------------------------------------------------------------
def _trials(path: Path) -> Iterator[Row]:
    """Return the rounds of loopgain-bench trials under the largest fixed budget (B20), which nothing stopped.

    Only the last round has an answer. Signal ``error`` is the loop's own. The score is 1 - error if the
    file's errors lie in [0, 1]; else it is 1 once the cell's target is reached, and 0 before.
    """
    rows = list(json_lines(path))
    header = next((row.values for row in rows if row.values.get("_header")), {})
    trials = [(row, *_budget(row)) for row in rows if not row.values.get("_header")]
    if not trials:
        raise DataError("holds no trial", file=str(path))
    shares = all(error <= 1.0 for *_, errors in trials for error in errors)
    stated = header.get("cell")
    target = stated.get("target_error") if isinstance(stated, dict) else None
    reached = float(target) if isinstance(target, int | float) else 0.0
    for row, output, errors in trials:
        for at, error in enumerate(errors, start=1):
            values = {
                "question_id": row.required("trial_id"),
                "question": row.text("prompt", default=""),
                "question_type": row.text("loop_type", default="") or None,
                "round": at,
                "answer": None if output is None or at < len(errors) else str(output),
                "llm_calls": 1,
                "signals": {"error": error},
                "score": 1.0 - error if shares else float(error <= reached),
            }
            yield Row(row.file, row.number, values)


def _budget(row: Row) -> tuple[Any, list[float]]:
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


_RUN = (
    "a round is a search or another use of a tool with the calls that led to it; the agent's last message "
    "is the answer of the last round"
)


_ROLLOUT = ("session_meta", "response_item", "event_msg", "turn_context")


def _of_spans(row: Mapping[str, Any]) -> bool:
    spans = (row, *children(row, "spans")[:1], *children(child(row, "data"), "spans")[:1])
    own = any("attributes" in one and {"span_id", "context"} & {*one} for one in spans)
    return own or any(name in row for name in ("resourceSpans", "resource_spans"))


def _said(message: Mapping[str, Any]) -> bool:
    return "role" in message or {"from", "value"} <= {*message} or "type" in message


Looks = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of recordings: its name in a sentence, its file type, its reader, and its notes.

    ``looks`` says of a first object of a file whether it is in this format. ``rows``: it is a table of
    rounds, which the options of tables are for.
    """

    called: str
    meaning: str
    looks: Looks
    read: Callable[[Path, Layout], Iterable[QuestionRecord]]
    note: str = ""
    rows: bool = False


def _rows_of(
    called: str, meaning: str, looks: Looks, read: Callable[[Path], Iterable[Row]]
) -> Format:
    def table(path: Path, layout: Layout) -> Iterable[QuestionRecord]:
        return read_table(FileTable.of(path, read(path)), layout)

    return Format(called, meaning, looks, table, rows=True)


def _spans_of(called: str, meaning: str, looks: Looks, note: str = "") -> Format:
    return Format(called, meaning, looks, lambda path, _: read_otlp(path), _RUN + note)


def _talks_of(called: str, meaning: str, looks: Looks, read: Reader, note: str = "") -> Format:
    return Format(called, meaning, looks, lambda path, _: conversations(path, read), _RUN + note)


FORMATS: Mapping[str, Format] = {
    "columns": Format(
        "a table",
        "JSON lines, JSON, CSV or Parquet with one row per question and round, by --columns",
        lambda row: "question_id" in row or {"question", "answer"} <= {*row},
        read_columns,
        rows=True,
    ),
    "flashrag": _rows_of(
        "FlashRAG",
        "intermediate_data.json of an iterative pipeline",
        lambda row: "pred_iter_0" in child(row, "output"),
        lambda path: chain.from_iterable(map(_iterations, json_documents(path))),
    ),
    "loopgain": replaced(
        _rows_of(
            "LoopGain",
            "JSON lines of loopgain-bench",
            lambda row: "_header" in row or "trial_id" in row,
            _trials,
        ),
        note="score: 1 - error where a file's errors lie in 0 to 1, else whether the target was reached; "
        "where the loop computed its error from a label, no live loop has the signal",
    ),
    "tasr": Format(
        "TASR",
        "Parquet files of TASR's experiments",
        lambda row: {"qid", "current_answer"} <= {*row},
        lambda path, layout: read_columns(path, replaced(layout, columns=TASR)),
        "score is current_f1; the margin, overlap and gap are the recorded ones",
        rows=True,
    ),
    "atif": _talks_of(
        "ATIF",
        "trajectories of agents in the Agent Trajectory Interchange Format, up to 1.8",
        lambda row: str(row.get("schema_version")).startswith("ATIF"),
        atif,
    ),
    "otlp": _spans_of(
        "spans",
        "OTLP JSON of an agent's spans, by OpenTelemetry's GenAI conventions or OpenInference's",
        _of_spans,
        "; spans tell no log-probabilities, and texts only where their recording was switched on "
        "(OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true)",
    ),
    "langfuse": _spans_of(
        "traces or observations of Langfuse",
        "traces or observations of Langfuse in JSON, whole or one a line",
        lambda row: (
            "observations" in row or ("type" in row and bool({"traceId", "trace_id"} & {*row}))
        ),
    ),
    "langsmith": _spans_of(
        "runs of LangSmith",
        "runs of LangSmith in JSON, whole or one a line",
        lambda row: "run_type" in row,
    ),
    "inspect": Format(
        "inspect_ai",
        "logs of inspect_ai, .eval or .json",
        lambda row: "header.json" in row or "samples" in row or {"eval", "plan"} <= {*row},
        lambda path, _: read_inspect(path),
        f"{_RUN}; scores given while a sample ran are those of their round",
    ),
    "claude-code": _talks_of(
        "Claude Code session",
        "sessions of Claude Code, JSON lines; without subagents",
        lambda row: "sessionId" in row and not {"role", "messages"} & {*row},
        claude_code,
    ),
    "codex": _talks_of(
        "Codex rollout",
        "rollouts of the Codex CLI, JSON lines",
        lambda row: "record_type" in row or (row.get("type") in _ROLLOUT and "payload" in row),
        codex,
    ),
    "swe-agent": _talks_of(
        "SWE-agent trajectory",
        "trajectories of SWE-agent and mini-swe-agent, .traj or .traj.json",
        lambda row: (
            bool({"exit_status", "model_stats"} & {*child(row, "info")})
            or str(row.get("trajectory_format")).startswith("mini-swe-agent")
            or {"action", "observation"} <= {*next(iter(children(row, "trajectory")), {})}
        ),
        swe_agent,
        "; the submission is the answer, and sums of tokens over a whole run are not read",
    ),
    "promptfoo": _rows_of(
        "promptfoo results",
        "results of promptfoo, JSON or JSON lines; repeats of a test are rounds",
        lambda row: (
            "evalId" in row or {"prompts", "results"} <= {*row} or {"testIdx", "vars"} <= {*row}
        ),
        lambda path: promptfoo(json_documents(path)),
    ),
    "chat": _talks_of(
        "OpenAI chat messages",
        "chat messages of OpenAI, Anthropic or ShareGPT, JSON or JSON lines, with uses of tools",
        lambda row: (
            "role" in row
            or row.get("type") in ("message", "function_call")
            or any(_said(one) for name in LISTS for one in children(row, name)[:2])
        ),
        chat,
    ),
}


def recognized(path: str | Path) -> str:
    """Return the name in :data:`FORMATS` of a file's format, from its first objects.

    Reads at most 256 KiB. Raises ``DataError`` if no format fits, or several do.
    """
    rows = sample(Path(path))
    fit = [name for name, kind in FORMATS.items() if any(map(kind.looks, rows))]
    fit = [name for name in fit if name not in ("columns", "chat")] or fit
    if len(fit) == 1:
        return fit[0]
    found = (
        f"could be {' or '.join(fit)}"
        if fit
        else f"is in no known format: it has {_seen(rows[0] if rows else {})}"
    )
    raise DataError(f"{found}; say which: --format {'|'.join(fit or FORMATS)}", file=str(path))


def inside(folder: Path, unread: Callable[[OSError], object] | None = None) -> Iterator[Path]:
    """Yield the files in a folder and its folders, without hidden ones and links to folders."""
    for root, folders, files in os.walk(folder, onerror=unread):
        folders[:] = sorted(one for one in folders if not one.startswith("."))
        paths = (Path(root, name) for name in sorted(files) if not name.startswith("."))
        yield from (path for path in paths if path.is_file())  # no pipe, no device
