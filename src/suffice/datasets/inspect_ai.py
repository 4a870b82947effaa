"""Import of inspect_ai logs: JSON, or ``.eval``, a zip of JSON."""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.contracts import strict_json
from suffice.datasets.files import Row, json_documents
from suffice.datasets.runs import (
    ANSWERING,
    Call,
    Noted,
    Search,
    Step,
    action_of,
    child,
    children,
    objects_in,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError, SufficeWarning, at_most, counted, most_unpacked
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Token, TopToken

_GRADES: Mapping[str, float] = {
    **dict.fromkeys(("c", "yes", "true"), 1.0),
    **dict.fromkeys(("i", "n", "no", "false"), 0.0),
    "p": 0.5,
}
_ZSTANDARD = 93
_ATTACHED = "attachment://"
_DAMAGED = (zipfile.BadZipFile, NotImplementedError, ValueError, RecursionError, OSError)


def read_inspect(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of a log's samples; the second epoch of ``q1`` is ``q1#2``.

    The target is gold. A tool use opens a round; those of one message share it. Scores during a sample
    (``score(state)``) belong to their round, with the scored answer; the sample's own score belongs to the
    last round. C, I, P and N are 1, 0, .5 and 0; other values outside [0, 1] are left out.
    """
    records: list[QuestionRecord] = []
    empty = 0
    for number, values in enumerate(_samples(path)):
        row = Row(str(path), number, values)
        try:
            record = _record(row)
        except DataError as error:
            raise error if error.file else row.error(str(error)) from error
        if record is None:
            empty += 1
        else:
            records.append(record)
    if empty:
        warnings.warn(
            f"{path}: left out {counted(empty, 'sample')} without a call to a model",
            SufficeWarning,
            stacklevel=2,
        )
    if not records:
        raise DataError(
            "holds no sample; evaluate without --no-log-samples, and with at least one finished sample",
            file=str(path),
        )
    return tuple(records)


# --- files ------------------------------------------------------------------------------------------
def _samples(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file() and zipfile.is_zipfile(path):
        yield from _of_zip(path)
        return
    for row in json_documents(path):
        if "eval" not in row.values or "samples" not in row.values:
            raise row.error("is no log of inspect_ai: it has no eval and samples")
        yield from row.objects("samples")


def _of_zip(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the samples of a ``.eval`` in order; unpack no more bytes than its directory states."""
    try:
        with zipfile.ZipFile(path) as archive:
            for part in _parts(path, archive):
                sample = strict_json(_unpacked(path, archive, part))
                yield from objects_in([sample])
    except (*_DAMAGED, zlib.error) as error:
        raise DataError(f"cannot be read ({error}); the log is damaged", file=str(path)) from error


def _parts(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    parts = [part for part in archive.infolist() if part.filename.startswith("samples/")]
    if not parts and "header.json" not in archive.namelist():
        raise ValueError("it is a zip, but not a log of inspect_ai")
    size, most = sum(part.file_size for part in parts), most_unpacked(path.stat().st_size)
    if size > most:
        raise ValueError(f"it would unpack to {size:,} bytes, and {most:,} are allowed")
    return parts


def _unpacked(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    if part.compress_type != _ZSTANDARD:
        with archive.open(part) as stream:  # read() unpacks all before it looks at its size
            return at_most(stream, path, part.file_size)
    import pyarrow as pa

    # Zstandard, which zipfile knows from Python 3.14 on; a local header is 30 bytes, a name and extras
    with path.open("rb") as file:
        file.seek(part.header_offset)
        header = file.read(30)
        lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        file.seek(part.header_offset + 30 + sum(lengths))
        packed = file.read(part.compress_size)
    with pa.input_stream(pa.py_buffer(packed), compression="zstd") as unpacking:
        content: bytes = unpacking.read(part.file_size + 1)
    if zlib.crc32(content) != part.CRC:
        raise ValueError("its content differs from its directory")
    return content


# --- a sample ---------------------------------------------------------------------------------------
def _record(row: Row) -> QuestionRecord | None:
    values = row.values
    number, epoch = values.get("id"), values.get("epoch", 1)
    if not isinstance(number, str | int) or isinstance(number, bool):
        raise row.error(f"must be a text or a number, found {number!r:.40}", "id")
    steps = list(_steps(row))
    if not any(isinstance(step, Call | Search) for step in steps):
        return None
    rounds, scores = read_run(steps, _answer(row), began=row.moment("started_at"))
    given = next(iter(child(values, "scores").values()), None)
    if isinstance(given, dict) and (final := _grade(given)) is not None:
        scores[len(rounds)] = final
    metadata = child(values, "metadata")
    kind = metadata.get("question_type", metadata.get("type"))
    asked = values.get("input")
    if isinstance(asked, list):
        messages = [m for m in children(values, "input") if m.get("role") == "user"]
        asked = messages[-1].get("content") if messages else ""
    return QuestionRecord(
        question=Question(
            id=str(number) if epoch == 1 else f"{number}#{epoch}",
            text=_text(row, asked),
            type=kind if isinstance(kind, str) else None,
        ),
        gold=Gold(
            answers=tuple(
                text for text in row.texts(values.get("target"), "target") if text.strip()
            )
        ),
        rounds=rounds,
        scores=scores,
        stopped_by="budget" if values.get("limit") else "error" if values.get("error") else "end",
    )


def _text(row: Row, content: Any) -> str:
    if isinstance(content, str) and content.startswith(_ATTACHED):
        held = child(row.values, "attachments").get(content.removeprefix(_ATTACHED))
        return held if isinstance(held, str) else content
    parts = [p for p in objects_in(content) if p.get("type", "text") == "text"]
    return (
        content if isinstance(content, str) else text_of([_text(row, p.get("text")) for p in parts])
    )


def _answer(row: Row) -> str | None:
    for event in reversed(children(row.values, "events")):
        used = event.get("event") == "tool" and not event.get("error")
        if used and event.get("function") in ANSWERING:
            return _text(row, event.get("result")).strip()
    output = child(row.values, "output")
    if not output.get("choices") or _asks(_message(output)):
        return None
    return _text(row, output.get("completion")).strip()


def _steps(row: Row) -> Iterator[Step]:
    events = children(row.values, "events")
    scoring = _scoring(events)
    scorer = next(iter(child(row.values, "scores")), None)
    for event in events:
        kind, name = event.get("event"), event.get("function")
        if event.get("pending") or (kind == "model" and event.get("error")):
            continue
        if kind == "model" and event.get("span_id") not in scoring:
            yield _call(row, event)
        elif kind == "tool" and name not in ANSWERING:
            yield _search(row, event)
        elif kind == "score" and event.get("intermediate"):
            held = child(event, "score")
            value = _grade(held)
            if value is not None and scorer in (None, event.get("scorer", scorer)):
                yield Noted(score=value, answer=_text(row, held.get("answer")) or None)


def _search(row: Row, event: Mapping[str, Any]) -> Search:
    asked, result = event.get("arguments"), event.get("result")
    text = _text(row, result) if isinstance(result, str | list) else str(result)
    return Search(
        query=query_of(asked),
        action=action_of(event.get("function"), asked),
        passages=() if event.get("error") else passages_of(text),
        joined=True,
        ended=_when(row, event).moment("timestamp"),
    )


def _call(row: Row, event: Mapping[str, Any]) -> Call:
    output = child(event, "output")
    usage = child(output, "usage")
    names = ("input_tokens", "output_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
    told = Row(row.file, row.number, usage, place="usage")
    prompt, completion, read, written = (told.amount(name) for name in names)
    cost = usage.get("total_cost")
    return Call(
        text=_text(row, output.get("completion")) or None,
        # inspect counts what a cache gave or took apart from the rest
        prompt_tokens=None if prompt is None else prompt + (read or 0) + (written or 0),
        cached_tokens=read,
        completion_tokens=completion,
        usd=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
        tokens=_tokens(row, output),
        searches=_asks(_message(output)),
        calls=0 if event.get("cache") == "read" else 1,
        ended=_when(row, event).moment("timestamp"),
    )


def _when(row: Row, event: Mapping[str, Any]) -> Row:
    ended = event.get("completed") or event.get("timestamp")
    return Row(row.file, row.number, {"timestamp": ended})


def _tokens(row: Row, output: Mapping[str, Any]) -> tuple[Token, ...] | None:
    first = next(iter(children(output, "choices")), {})
    try:
        return (
            tuple(
                Token(
                    str(one["token"]),
                    one["logprob"],
                    tuple(
                        TopToken(str(top["token"]), top["logprob"])
                        for top in children(one, "top_logprobs")
                    ),
                )
                for one in children(child(first, "logprobs"), "content")
            )
            or None
        )
    except (KeyError, TypeError) as error:
        raise row.error(f"no log-probabilities of tokens: {error!r}", "logprobs") from error


def _scoring(events: Sequence[Mapping[str, Any]]) -> frozenset[Any]:
    inside: set[Any] = set()
    for event in events:  # a span begins before those within it
        if event.get("event") == "span_begin" and (
            event.get("type") in ("scorer", "scorers") or event.get("parent_id") in inside
        ):
            inside.add(event.get("id"))
    return frozenset(inside)


def _message(output: Mapping[str, Any]) -> Mapping[str, Any]:
    return child(next(iter(children(output, "choices")), {}), "message")


def _asks(message: Mapping[str, Any]) -> bool:
    return any(tool.get("function") not in ANSWERING for tool in children(message, "tool_calls"))


def _grade(score: Mapping[str, Any]) -> float | None:
    value = score.get("value")
    if isinstance(value, str):
        return _GRADES.get(value.lower())
    if isinstance(value, int | float) and not math.isnan(value) and 0 <= value <= 1:
        return float(value)
    return None
