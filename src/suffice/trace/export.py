"""Export of a record: a store as Parquet, any record as JSON lines, one question as spans."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pyarrow.compute as pc

from suffice.contracts import Decision
from suffice.errors import StorageError, UsageError, counted
from suffice.trace.durable import replace_file, written_aside
from suffice.trace.recording import export_records, stores_at
from suffice.trace.rounds.derive import Written
from suffice.trace.rounds.labels import LABELS_FILE, line_of
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, Round, as_document
from suffice.trace.rounds.schema import record_to_rows
from suffice.trace.store import Store

ExportFormat = Literal["parquet", "jsonl"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)


def export_traces(
    path: str | Path,
    out: str | Path,
    *,
    format: ExportFormat,  # noqa: A002
    skip_invalid: bool = False,
) -> Written:
    """Write a store as Parquet, or a record's columns of the schema as JSON lines.

    Parquet goes to a folder; a later export adds new questions and labels to it.
    ``jsonl`` takes any record and gives one object per row, without nulls, in a new file; infinite numbers
    are texts. ``suffice traces import --format columns`` reads it back. An invalid record is a DataError.
    """
    if format not in EXPORT_FORMATS:
        raise UsageError(f"no format {format!r}; allowed: {', '.join(EXPORT_FORMATS)}")
    if format == "parquet":
        return _export_store(path, Path(out))
    traces = read_traces(path, skip_invalid=skip_invalid)
    with written_aside(Path(out)) as aside, aside.open("w", encoding="utf-8") as stream:
        for record in traces.records():
            for row in record_to_rows(record):
                line = json.dumps(_plain(row), ensure_ascii=False, allow_nan=False)
                stream.write(f"{line}\n")
    skipped = len(traces.origin.skipped)
    notes = (f"left out because of {counted(skipped, 'problem')}",) if skipped else ()
    return Written.of(traces, out, notes=notes)


def _export_store(path: str | Path, folder: Path) -> Written:
    stores = stores_at(Path(path))
    if not stores:
        what = "no database of live loops" if Path(path).exists() else "no such file or folder"
        raise UsageError(f"{path}: {what}; to export another record, type --format jsonl")
    store, labels = Store(stores[0]), ""
    with suppress(StorageError), store.transaction() as connection:  # where it may be written
        store.end_the_dead(connection)
    # labels first: those of questions that end meanwhile come with the next export
    if folder.resolve() != stores[0].parent.resolve():
        labels = "".join(f"{line_of(label)}\n" for label in store.labels()[0])
    rounds, splits = 0, list[str | None]()
    for file in stores:
        for table in export_records(file, folder):
            numbers = table.column("round")
            rounds += pc.sum(pc.greater(numbers, 0)).as_py()
            splits += table.filter(pc.equal(numbers, 1)).column("split").to_pylist()
    if labels:
        replace_file(folder / LABELS_FILE, labels.encode())
    return Written(
        out=str(folder),
        questions=len(splits),
        rounds=rounds,
        splits={name: splits.count(name) for name in sorted({*splits} - {None}, key=str) if name},
    )


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    values = {**row, "signals": dict(row.get("signals") or ())}
    return {name: _value(value) for name, value in values.items() if value not in (None, [], {})}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _value(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value.isoformat() if isinstance(value, datetime) else value


# --- spans of OpenTelemetry -----------------------------------------------------------------------
DOCUMENTS = "gen_ai.retrieval.documents"
OPERATION = "gen_ai.operation.name"
KIND = "openinference.span.kind"
_MOST_LETTERS = 8_000  # of a text
_MOST_DOCUMENTS = 100
_SHORT = 200  # letters of a passage among others
_MOST_NUMBERED = 25  # a span has 128 attributes unless its user allows more


class Step(NamedTuple):
    """A future span: start and end are nanoseconds since 1970; ``events`` are results of evaluations."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]] = ()


def known(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that have a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def steps_of(round_: Round, began: int, ended: int, *, model: str | None) -> Iterator[Step]:
    """Split a round into two steps, the search and the calls, which share its time."""
    middle = (began + ended) // 2
    query = None if round_.query is None else _cut(round_.query)
    held: dict[str, Any] = {"gen_ai.retrieval.query.text": query, "input.value": query}
    held |= {OPERATION: "retrieval", KIND: "RETRIEVER"}
    if round_.passages is not None:
        found = (*round_.passages, *(round_.refound or ()))[:_MOST_DOCUMENTS]
        documents = [_document(passage) for passage in found]
        for number, document in enumerate(documents[:_MOST_NUMBERED]):
            for name in document.keys() & {"id", "content", "score"}:
                held[f"retrieval.documents.{number}.document.{name}"] = document[name]
        held[DOCUMENTS] = json.dumps(documents, ensure_ascii=False)
        said = (f"{passage.id}: {(passage.text or '')[:_SHORT]}" for passage in found)
        held["output.value"] = "\n".join(said)
    yield Step(name="retrieval", start=began, end=middle, attributes=known(held))
    usage = round_.usage
    told = round_.answer if round_.response is None else round_.response
    if usage.llm_calls or (usage.llm_calls is None and (told or usage.prompt_tokens)):
        held = {
            OPERATION: "chat",
            KIND: "LLM",
            "gen_ai.request.model": model,
            "gen_ai.usage.input_tokens": usage.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
            "gen_ai.usage.output_tokens": usage.completion_tokens,
            **_message("output", "assistant", told),
        }
        name = "chat" if model is None else f"chat {model}"
        yield Step(name=name, start=middle, end=ended, attributes=known(held))


def decision_of(
    decision: Decision,
    answer: str | None,
    when: tuple[int, int],
    reason: str | None,
    score: float | None,
) -> Step:
    """Return the decision after a round as the evaluation of what the loop has so far."""
    values = {name: v for name, v in decision.values.items() if v is not None and math.isfinite(v)}
    numbers = ", ".join(f"{name} {value:g}" for name, value in values.items())
    label, why = "stop" if decision.stop else "go on", _cut(reason or numbers)
    named = "gen_ai.evaluation.name", "gen_ai.evaluation.score.value"
    told = {"gen_ai.evaluation.score.label": label, "gen_ai.evaluation.explanation": why}
    stop = {named[0]: "suffice.stop", named[1]: float(decision.stop), **told}
    further = {"suffice.confidence": decision.confidence, "suffice.score": score}
    events = [stop, *(dict(zip(named, pair, strict=True)) for pair in known(further).items())]
    attributes = {
        KIND: "EVALUATOR",
        **stop,
        **further,
        "input.value": json.dumps(values),
        "input.mime_type": "application/json",
        "output.value": f"{label}: {why}",
        "suffice.decision": label,
        "suffice.answer": None if answer is None else _cut(answer),
        "suffice.stopped_by": decision.stopped_by,
        **{f"suffice.signal.{name}": value for name, value in values.items()},
    }
    name, (start, end) = f"decide: {label}", when
    return Step(name=name, start=start, end=end, attributes=known(attributes), events=events)


def _document(passage: Passage) -> dict[str, Any]:
    held = as_document(passage).items()
    texts = {name: _cut(value) if isinstance(value, str) else value for name, value in held}
    return {"content" if name == "text" else name: value for name, value in texts.items()}


def _message(which: str, role: str, text: str | None) -> dict[str, str]:
    """Return a text by both conventions, GenAI's and OpenInference's."""
    if text is None:
        return {}
    text = _cut(text)
    parts = [{"role": role, "parts": [{"type": "text", "content": text}]}]
    said = json.dumps(parts, ensure_ascii=False)
    return {f"gen_ai.{which}.messages": said, f"{which}.value": text}


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else f"{text[: _MOST_LETTERS - 1]}…"


def agent_attributes(question: str, answer: str | None) -> dict[str, Any]:
    """Return the attributes of a whole question's span."""
    return {
        OPERATION: "invoke_agent",
        KIND: "AGENT",
        **_message("input", "user", question),
        **_message("output", "assistant", answer),
    }
