"""Folders of journals, in which earlier versions recorded loops: read once more, to be imported.

A round was appended to ``watch-ID-NUMBER.jsonl``. Of a full journal the finished questions became
``watch-ID-NUMBER.parquet``, and what was unfinished went on in the next number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.contracts import strict_json
from suffice.errors import DataError, plain_file
from suffice.trace.reader import first_error
from suffice.trace.rounds.labels import labels_beside
from suffice.trace.rounds.reader import as_trace_set, inspect_traces
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round, round_of_document
from suffice.trace.rounds.schema import records_to_table
from suffice.trace.rounds.table import TraceSetOrigin
from suffice.trace.store import free_id

_NAME = re.compile(r"watch-(\w+)-(\d{5})\.jsonl")


def read_watch_1(folder: Path) -> tuple[QuestionRecord, ...]:
    """The questions of a folder that nobody records into any more, with the labels beside them.

    What a process that died had not finished ended in error; lines that are damaged are left out.
    """
    files = sorted(file for file in folder.glob("watch-*.jsonl") if _NAME.fullmatch(file.name))
    parquet = any(folder.glob("[!.]*.parquet"))
    if not files and not parquet:
        raise DataError("holds no watch-*.jsonl and no Parquet file", file=str(folder))
    records: dict[str, QuestionRecord] = {}
    if parquet:
        traces = inspect_traces(folder).valid(skip_invalid=False)
        records = {record.question.id: record for record in traces.records()}
    for file in files:
        if file.with_suffix(".parquet").exists():
            continue
        for record in _of_journal(file):
            name = free_id(record.question.id, records.__contains__)
            records[name] = replace(record, question=replace(record.question, id=name))
    rows = records_to_table(records.values())
    beside = labels_beside(folder, rows)
    if beside.errors:
        raise first_error(beside.errors)
    origin = TraceSetOrigin(source=str(folder), run={})
    return tuple(as_trace_set(beside.labels.onto(rows), origin).records())


def _of_journal(file: Path) -> Iterator[QuestionRecord]:
    under_way: dict[str, dict[str, Any]] = {}
    *lines, _ = plain_file(file).read_bytes().split(b"\n")  # the last is empty, or was cut off
    for line in lines:
        with suppress(ValueError, LookupError, TypeError, AttributeError, RecursionError):
            document = strict_json(line)
            if "begin" in document:
                gold = {name: tuple(texts) for name, texts in document["gold"].items()}
                asked = Question(**document["begin"])
                drawn = {name: document[name] for name in ("propensity", "policy_hash")}
                under_way[asked.id] = {
                    "question": asked,
                    "gold": Gold(**gold),
                    **drawn,
                    "rounds": [],
                }
            elif "round" in document:
                rounds = under_way[document["id"]]["rounds"]
                rounds.append((round_of_document(document["round"]), document.get("score")))
            elif "end" in document:
                held = under_way.pop(document["id"])
                if "last" in document:
                    score = held["rounds"][-1][1]
                    held["rounds"][-1] = (round_of_document(document["last"]), score)
                if held["rounds"]:
                    yield _record(held, document["end"])
    match = _NAME.fullmatch(file.name)
    after = "" if match is None else f"watch-{match[1]}-{int(match[2]) + 1:05d}"
    if not any(file.with_name(f"{after}{end}").exists() for end in (".jsonl", ".parquet")):
        yield from (_record(held, "error") for held in under_way.values() if held["rounds"])


def _record(held: dict[str, Any], stopped_by: Any) -> QuestionRecord:
    rounds: list[tuple[Round, float | None]] = held["rounds"]
    return QuestionRecord(
        question=held["question"],
        gold=held["gold"],
        rounds=tuple(finished for finished, _ in rounds),
        scores={number: score for number, (_, score) in enumerate(rounds, 1) if score is not None},
        propensity=held["propensity"],
        stopped_by=stopped_by,
        policy_hash=held["policy_hash"],
    )
