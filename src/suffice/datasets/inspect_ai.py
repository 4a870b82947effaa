"""Import of inspect_ai logs: JSON, or ``.eval``, a zip of JSON."""

from __future__ import annotations

import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.contracts import strict_json
from suffice.datasets.files import Row, json_documents
from suffice.datasets.pairing import paired
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
from suffice.reasoning import without_reasoning
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Token, TopToken
from suffice.trace.usage import read_counts

_GRADES: Mapping[str, float] = {
    **dict.fromkeys(("c", "yes", "true"), 1.0),
    **dict.fromkeys(("i", "n", "no", "false"), 0.0),
    "p": 0.5,
}
_ZSTANDARD = 93
_ATTACHED = re.compile(r"(?:attachment|tc)://(.+)")
_DEEPEST = 100
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
            record = _record(replace(row, values=_of_today(values)))
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
        if "eval" not in row.values:
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
    if not parts and not {"header.json", "_journal/start.json"} & {*archive.namelist()}:
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
def _of_today(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a sample of any version of inspect_ai: by today's names, with its attached texts in place."""
    transcript = child(sample, "transcript")
    attached = {**child(transcript, "content"), **child(sample, "attachments")}
    now: dict[str, Any] = _with({**sample, "attachments": None}, attached)
    if isinstance(now.get("score"), dict) and not now.get("scores"):
        now["scores"] = {"score": now["score"]}
    now["events"] = children(now, "events") or children(child(now, "transcript"), "events")
    if not now["events"]:
        now["events"] = list(_from_messages(now))
    return now


def _with(value: Any, attached: Mapping[str, Any], depth: int = 0) -> Any:
    if isinstance(value, str):
        named = _ATTACHED.fullmatch(value) if attached else None
        return attached.get(named[1], value) if named else value
    if depth > _DEEPEST or not isinstance(value, dict | list):
        return value
    if isinstance(value, list):
        return [_with(item, attached, depth + 1) for item in value]
    return {name: _with(item, attached, depth + 1) for name, item in value.items()}


def _from_messages(sample: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Make events of the messages of a log without any; only the usage of a single call is known."""
    said = [m for m in children(sample, "messages") if m.get("source") != "input"]
    calls = [message for message in said if message.get("role") == "assistant"]
    used = list(child(sample, "model_usage").values())
    usage = used[0] if len(used) == len(calls) == 1 else None
    asked = [use for call in calls for use in children(call, "tool_calls")]
    given = [message for message in said if message.get("role") == "tool"]
    named = [(message.get("tool_call_id"), message.get("function")) for message in given]
    at = iter(paired([(use.get("id"), use.get("function")) for use in asked], named))
    for message in said:
        if message.get("role") == "assistant":
            yield {"event": "model", "output": {"choices": [{"message": message}], "usage": usage}}
        elif message.get("role") == "tool":
            place = next(at)
            tool: dict[str, Any] = {} if place is None else asked[place]
            called = {"function": tool.get("function", message.get("function"))}
            told = {"result": message.get("content"), "error": message.get("error")}
            yield {"event": "tool", "arguments": tool.get("arguments"), **called, **told}


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
            text=text_of(asked),
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


def _completion(output: Mapping[str, Any]) -> str:
    return text_of(output.get("completion")) or text_of(_message(output).get("content"))


def _answer(row: Row) -> str | None:
    for event in reversed(children(row.values, "events")):
        used = event.get("event") == "tool" and not event.get("error")
        if used and event.get("function") in ANSWERING:
            return text_of(event.get("result")).strip()
    output = child(row.values, "output")
    if not output.get("choices") or _asks(_message(output)):
        return None
    return without_reasoning(_completion(output)).strip()


def _steps(row: Row) -> Iterator[Step]:
    events = list(_flat(children(row.values, "events")))
    scoring, grading = _scoring(events), 0
    scorer = next(iter(child(row.values, "scores")), None)
    inside: list[Call] = []  # calls of the agents inside the tools that share a round
    for event in events:
        kind, name = event.get("event"), event.get("function")
        if kind == "step" and event.get("type") == "scorer":
            grading += {"begin": 1, "end": -1}.get(str(event.get("action")), 0)
        if event.get("pending") or (kind == "model" and event.get("error")) or grading > 0:
            continue
        if kind == "model" and event.get("span_id") not in scoring:
            yield from inside
            inside = []
            yield _call(row, event)
        elif kind == "tool":
            if name not in ANSWERING:
                yield _search(row, event)
            nested = [e for e in _flat(children(event, "events"), tools=True) if not e.get("error")]
            calls = [_call(row, e) for e in nested if e.get("event") == "model"]
            inside += [replace(call, text=None, tokens=None, searches=False) for call in calls]
        elif kind == "score" and event.get("intermediate"):
            held = child(event, "score")
            value = _grade(held)
            if value is not None and scorer in (None, event.get("scorer", scorer)):
                yield Noted(score=value, answer=text_of(held.get("answer")) or None)
    yield from inside


def _flat(events: Sequence[Mapping[str, Any]], *, tools: bool = False) -> Iterator[Any]:
    """Yield events and those inside subtasks; with ``tools``, those inside tools too."""
    waiting = [*reversed(events)]
    while waiting:
        event = waiting.pop()
        yield event
        if tools or event.get("event") != "tool":
            waiting += reversed(children(event, "events"))


def _search(row: Row, event: Mapping[str, Any]) -> Search:
    asked, result = event.get("arguments"), event.get("result")
    text = text_of(result) if isinstance(result, str | list) else str(result)
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
    counts, cost = read_counts(usage), usage.get("total_cost")
    return Call(
        text=_completion(output) or None,
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        completion_tokens=counts.completion,
        usd=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
        tokens=_tokens(row, output),
        searches=_asks(_message(output)),
        calls=0 if event.get("cache") == "read" else 1,
        ended=_when(row, event).moment("timestamp"),
    )


def _when(row: Row, event: Mapping[str, Any]) -> Row:
    return row.inside("", {"timestamp": event.get("completed") or event.get("timestamp")})


def _tokens(row: Row, output: Mapping[str, Any]) -> tuple[Token, ...] | None:
    first = next(iter(children(output, "choices")), {})
    tokens = []
    try:
        for one in children(child(first, "logprobs"), "content"):
            others = children(one, "top_logprobs")
            top = tuple(TopToken(str(other["token"]), other["logprob"]) for other in others)
            tokens.append(Token(str(one["token"]), one["logprob"], top))
    except (KeyError, TypeError) as error:
        raise row.error(f"no log-probabilities of tokens: {error!r}", "logprobs") from error
    return tuple(tokens) or None


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
