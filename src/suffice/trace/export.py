"""A record for other tools: a store as Parquet, any record as JSON lines, CSV or spans in OTLP JSON."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow.compute as pc

from suffice.errors import StorageError, UsageError
from suffice.trace.durable import replace_file, written_aside
from suffice.trace.recording import export_records, stores_at
from suffice.trace.rounds.copying import Written
from suffice.trace.rounds.labels import LABELS_FILE, line_of
from suffice.trace.rounds.reader import read_traces, stored_rows
from suffice.trace.rounds.schema import COLUMNS, record_to_rows
from suffice.trace.rounds.spans import spans_of
from suffice.trace.store import Store

ExportFormat = Literal["parquet", "jsonl", "csv", "otlp"]
EXPORT_FORMATS: tuple[ExportFormat, ...] = get_args(ExportFormat)


def export_traces(
    path: str | Path,
    out: str | Path,
    *,
    format: ExportFormat,  # noqa: A002
    skip_invalid: bool = False,
) -> Written:
    """Write a store as Parquet, or a record's columns of the schema as text.

    Parquet goes to a folder, where a later export adds what ended since and the labels that came. Of text
    ``suffice traces import`` reads it back, with ``--format columns`` or ``otlp``. Columns without a value
    are left out. Lists, passages, tokens and signals are JSON also in CSV, where a null is a blank cell.
    Infinite numbers are texts, NaN is null.

    Parameters
    ----------
    path
        A Parquet file, a directory of them, or a store.
    out
        The file, where nothing may stand yet; of Parquet the folder.
    format
        ``parquet``: of a store only; ``jsonl``: an object a line, without its nulls; ``csv``: a header and a
        line a row; ``otlp``: a document of OTLP JSON a line, with the spans of a question.

    Raises
    ------
    UsageError
        For another format, or a place that is taken.
    DataError
        When the record is not valid.
    """
    if format not in EXPORT_FORMATS:
        raise UsageError(f"no format {format!r}; allowed: {', '.join(EXPORT_FORMATS)}")
    if format == "parquet":
        return _export_store(path, Path(out))
    traces = read_traces(path, skip_invalid=skip_invalid)
    records = list(traces.records())
    of_questions = format == "otlp"
    rows = [] if of_questions else [_plain(r) for record in records for r in record_to_rows(record)]
    model = traces.origin.run.get("model")
    with written_aside(Path(out)) as aside:
        if format == "csv":
            _write_csv(aside, rows)
        else:
            documents: Iterator[Mapping[str, Any]] = iter(rows)
            if of_questions:
                named = model if isinstance(model, str) else None
                documents = (spans_of(record, model=named) for record in records)
            with aside.open("w", encoding="utf-8") as stream:
                for document in documents:
                    stream.write(json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n")
    notes = []
    if skipped := len(traces.origin.skipped):
        notes.append(f"{skipped:,} problems: what they concern was left out")
    blank = sum(row.get("answer") == "" for row in rows)
    if format == "csv" and blank:
        notes.append(
            f"{blank:,} empty answers are blank cells, as answers that were not asked for; --format jsonl "
            "tells them apart"
        )
    return Written.of(traces, out, notes=tuple(notes))


def _export_store(path: str | Path, folder: Path) -> Written:
    """Add what ended since the last export, a file a run, and all labels."""
    stores = stores_at(Path(path))
    if not stores:
        raise UsageError(
            f"{path} holds no store; of other records type --format "
            f"{' or '.join(EXPORT_FORMATS[1:])}"
        )
    store, labels = Store(stores[0]), ""
    with suppress(StorageError), store.transaction() as connection:  # where it may be written
        store.end_the_dead(connection)
    # labels first: those of questions that end meanwhile come with the next export
    if folder.resolve() != stores[0].parent.resolve():
        labels = "".join(f"{line_of(label)}\n" for label in store.labels()[0])
    rounds, splits = 0, list[str | None]()
    for file in stores:
        for table in export_records(file, folder, partial(stored_rows, dead=False)):
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
    """A row as strict JSON, without its nulls and empty lists."""
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


def _write_csv(file: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with_values = {name for row in rows for name in row}
    names = [column.name for column in COLUMNS if column.name in with_values or column.required]
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        for row in rows:
            writer.writerow([_text(row.get(name)) for name in names])


def _text(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value
