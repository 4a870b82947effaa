"""Logs of inspect_ai: JSON, or ``.eval``, which is a zip of JSON."""

from __future__ import annotations

import math
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_documents, most_bytes
from suffice.datasets.recordings.runs import (
    ANSWERING,
    Call,
    Noted,
    Search,
    Step,
    action_of,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError, SufficeWarning
from suffice.protocols import strict_json
from suffice.trace.rounds.records import (
    Gold,
    Question,
    QuestionRecord,
    StoppedBy,
    Token,
    TopToken,
)
from suffice.trace.values import MOST_INT32

_GRADES: Mapping[str, float] = {
    **dict.fromkeys(("C", "yes", "true"), 1.0),
    **dict.fromkeys(("I", "N", "no", "false"), 0.0),
    "P": 0.5,
}
_ZSTANDARD = 93
_ATTACHED = "attachment://"


def read_inspect(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of a log's samples; the second epoch of ``q1`` is ``q1#2``.

    The target is gold. A use of a tool opens a round, those of one message share it. Scores given while a
    sample ran (``score(state)``) are those of the round, with the answer that was scored, and the sample's
    own the last round's: C, I, P and N are 1, 0, .5 and 0, and what is no number in 0 to 1 is left out.
    """
    records: list[QuestionRecord] = []
    empty = 0
    for number, values in enumerate(_samples(path)):
        sample = _Sample(Row(str(path), number, values))
        try:
            record = sample.record()
        except DataError as error:
            raise error if error.file else sample.row.error(str(error)) from error
        if record is None:
            empty += 1
        else:
            records.append(record)
    if empty:
        warnings.warn(
            f"{path}: {empty} samples have no call to a model and were left out",
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
_DAMAGED = (zipfile.BadZipFile, NotImplementedError)


def _samples(path: Path) -> Iterator[Mapping[str, Any]]:
    if path.is_file() and zipfile.is_zipfile(path):
        yield from _of_zip(path)
        return
    for row in json_documents(path):
        if "eval" not in row.values or "samples" not in row.values:
            raise row.error("is no log of inspect_ai: it has no eval and samples")
        for sample in row.rows("samples", default=[]):
            if not isinstance(sample, dict):
                raise row.error(f"a sample must be an object, found {sample!r:.60}", "samples")
            yield sample


def _of_zip(path: Path) -> Iterator[Mapping[str, Any]]:
    """The samples of a ``.eval``, in order; no more bytes are unpacked than their directory says."""
    try:
        opened = zipfile.ZipFile(path)
    except (*_DAMAGED, ValueError) as error:
        raise DataError(f"cannot be read ({error}); the log is damaged", file=str(path)) from error
    with opened as archive:
        parts = [part for part in archive.infolist() if part.filename.startswith("samples/")]
        if not parts and "header.json" not in archive.namelist():
            raise DataError("is a zip, and no log of inspect_ai: it has no samples", file=str(path))
        total = sum(part.file_size for part in parts)
        if total > most_bytes():
            raise DataError(
                f"unpacks to {total:,} bytes, more than the {most_bytes():,} that are read at once; split "
                "the log by its samples",
                file=str(path),
            )
        for part in parts:
            try:
                sample = strict_json(_unpacked(path, archive, part))
            except (*_DAMAGED, ValueError, RecursionError, OSError, zlib.error) as error:
                raise DataError(
                    f"{part.filename!r:.80} cannot be read ({error}); the log is damaged",
                    file=str(path),
                ) from error
            if not isinstance(sample, dict):
                raise DataError(f"{part.filename!r:.80} holds no sample", file=str(path))
            yield sample


def _unpacked(path: Path, archive: zipfile.ZipFile, part: zipfile.ZipInfo) -> bytes:
    if part.flag_bits & 1:
        raise ValueError("it is encrypted")
    if part.compress_type != _ZSTANDARD:
        with archive.open(part) as stream:
            return stream.read(part.file_size)
    import pyarrow as pa

    # Zstandard, which zipfile knows from Python 3.14 on; a local header is 30 bytes, a name and extras
    with path.open("rb") as file:
        file.seek(part.header_offset)
        header = file.read(30)
        if header[:4] != b"PK\x03\x04":
            raise ValueError("no header at its place")
        lengths = (int.from_bytes(header[at : at + 2], "little") for at in (26, 28))
        file.seek(part.header_offset + 30 + sum(lengths))
        packed = file.read(part.compress_size)
    with pa.input_stream(pa.py_buffer(packed), compression="zstd") as unpacking:
        content: bytes = unpacking.read(part.file_size + 1)
    if len(content) != part.file_size or zlib.crc32(content) != part.CRC:
        raise ValueError("its content is not what the directory says")
    return content


# --- a sample ---------------------------------------------------------------------------------------
class _Sample:
    """A sample of a log, with checked access."""

    def __init__(self, row: Row) -> None:
        self.row = row
        self._values = row.values
        attached = row.values.get("attachments")
        self._attached: Mapping[str, Any] = attached if isinstance(attached, dict) else {}

    def record(self) -> QuestionRecord | None:
        """``None``: it holds no call to a model and no use of a tool."""
        values = self._values
        number, epoch = values.get("id"), values.get("epoch", 1)
        if not isinstance(number, str | int) or isinstance(number, bool):
            raise self.row.error(f"must be a text or a number, found {number!r:.40}", "id")
        steps = list(self._steps())
        if not any(isinstance(step, Call | Search) for step in steps):
            return None
        answer = self._answer()
        run = read_run(steps, answer, began=self._moment(values, "started_at"))
        scores = dict(run.scores)
        final = self._final_score()
        if final is not None:
            scores[len(run.rounds)] = final
        target = values.get("target")
        gold = [text for text in self.row.texts(target, "target") if text.strip()]
        metadata = values.get("metadata")
        held = metadata if isinstance(metadata, dict) else {}
        kind = held.get("question_type", held.get("type"))
        ended: StoppedBy = (
            "budget" if values.get("limit") else "error" if values.get("error") else "end"
        )
        return QuestionRecord(
            question=Question(
                id=str(number) if epoch == 1 else f"{number}#{epoch}",
                text=self._question(),
                type=kind if isinstance(kind, str) else None,
            ),
            gold=Gold(answers=tuple(gold)),
            rounds=run.rounds,
            scores=scores,
            stopped_by=ended,
        )

    def _moment(self, held: Mapping[str, Any], *names: str) -> datetime | None:
        stated = next((held[name] for name in names if held.get(name)), None)
        return Row(self.row.file, self.row.number, {"timestamp": stated}).moment("timestamp")

    def _text(self, content: Any) -> str:
        """A text, perhaps kept apart under a number, or the texts of parts."""
        if isinstance(content, str) and content.startswith(_ATTACHED):
            held = self._attached.get(content.removeprefix(_ATTACHED))
            return held if isinstance(held, str) else content
        if isinstance(content, list):
            parts = [
                {**part, "text": self._text(part.get("text"))}
                for part in content
                if isinstance(part, dict) and part.get("type", "text") == "text"
            ]
            return text_of(parts)
        return content if isinstance(content, str) else ""

    def _question(self) -> str:
        asked = self._values.get("input")
        if isinstance(asked, list):
            messages = [m for m in asked if isinstance(m, dict) and m.get("role") == "user"]
            return self._text(messages[-1].get("content")) if messages else ""
        return self._text(asked)

    def _answer(self) -> str | None:
        """What was handed in, else the last text; ``None``: it ended while it asked for a tool."""
        events = self._values.get("events")
        for event in reversed(events if isinstance(events, list) else []):
            if _is(event, "tool") and event.get("function") in ANSWERING and not event.get("error"):
                return self._text(event.get("result")).strip()
        output = self._values.get("output")
        choices = output.get("choices") if isinstance(output, dict) else None
        if not isinstance(output, dict) or not choices:
            return None
        asked = set(_tools(_message(output))) - ANSWERING
        return None if asked else self._text(output.get("completion")).strip()

    def _final_score(self) -> float | None:
        scores = self._values.get("scores")
        if not isinstance(scores, dict) or not scores:
            return None
        first = next(iter(scores.values()))
        return _grade(first.get("value")) if isinstance(first, dict) else None

    def _steps(self) -> Iterator[Step]:
        events = self._values.get("events")
        if isinstance(events, list) and any(_is(event, "model") for event in events):
            yield from self._of_events([event for event in events if isinstance(event, dict)])
        else:
            yield from self._of_messages(self.row.rows("messages", default=[]))

    def _of_events(self, events: list[dict[str, Any]]) -> Iterator[Step]:
        scoring = _scoring(events)
        scores = self._values.get("scores")
        scorer = next(iter(scores), None) if isinstance(scores, dict) else None
        for event in events:
            if event.get("pending") or (_is(event, "model") and event.get("error")):
                continue
            if _is(event, "model") and event.get("span_id") not in scoring:
                yield self._call(event)
            elif _is(event, "tool") and event.get("function") not in ANSWERING:
                yield self._search(event)
            elif _is(event, "score") and event.get("intermediate"):
                held = event.get("score")
                value = _grade(held.get("value")) if isinstance(held, dict) else None
                if value is not None and scorer in (None, event.get("scorer", scorer)):
                    answer = held.get("answer") if isinstance(held, dict) else None
                    yield Noted(score=value, answer=self._text(answer) if answer else None)

    def _call(self, event: Mapping[str, Any]) -> Call:
        output = event.get("output")
        output = output if isinstance(output, dict) else {}
        usage = output.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        names = (
            "input_tokens",
            "output_tokens",
            "input_tokens_cache_read",
            "input_tokens_cache_write",
        )
        told = Row(self.row.file, self.row.number, usage, place="usage")
        prompt, completion, read, written = (told.amount(name, MOST_INT32) for name in names)
        # inspect counts what a cache gave or took apart from the rest
        whole = None if prompt is None else prompt + (read or 0) + (written or 0)
        asked = _tools(_message(output))
        cost = usage.get("total_cost")
        return Call(
            text=self._text(output.get("completion")) or None,
            prompt_tokens=whole,
            cached_tokens=read,
            completion_tokens=completion,
            cost_usd=float(cost) if isinstance(cost, int | float) and 0 <= cost < 1e9 else None,
            tokens=self._tokens(output),
            searches=bool(set(asked) - ANSWERING),
            calls=0 if event.get("cache") == "read" else 1,
            ended=self._moment(event, "completed", "timestamp"),
        )

    def _tokens(self, output: Mapping[str, Any]) -> tuple[Token, ...] | None:
        choices = output.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        logprobs = first.get("logprobs") if isinstance(first, dict) else None
        content = logprobs.get("content") if isinstance(logprobs, dict) else None
        if not content:
            return None
        try:
            return tuple(
                Token(
                    str(one["token"]),
                    one["logprob"],
                    tuple(
                        TopToken(str(top["token"]), top["logprob"])
                        for top in one.get("top_logprobs") or ()
                    ),
                )
                for one in content
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise self.row.error(
                f"no log-probabilities of tokens: {error!r}", "logprobs"
            ) from error

    def _search(self, event: Mapping[str, Any]) -> Search:
        result = event.get("result")
        return Search(
            query=query_of(event.get("arguments")),
            action=action_of(event.get("function"), event.get("arguments")),
            passages=() if event.get("error") else self._passages(result),
            joined=True,
            ended=self._moment(event, "completed", "timestamp"),
        )

    def _passages(self, result: Any) -> Any:
        return passages_of(self._text(result) if isinstance(result, str | list) else str(result))

    def _of_messages(self, messages: list[Any]) -> Iterator[Step]:
        """Where no events were logged: tokens and times are unknown."""
        arguments: dict[Any, Any] = {}
        for message in messages:
            if not isinstance(message, dict):
                continue
            content = message.get("content")
            if message.get("role") == "assistant":
                tools = message.get("tool_calls")
                for tool in tools if isinstance(tools, list) else ():
                    if isinstance(tool, dict):
                        arguments[tool.get("id")] = tool.get("arguments")
                asked = set(_tools(message)) - ANSWERING
                yield Call(text=self._text(content) or None, searches=bool(asked))
            elif message.get("role") == "tool" and message.get("function") not in ANSWERING:
                asked_for = arguments.get(message.get("tool_call_id"))
                yield Search(
                    query=query_of(asked_for),
                    action=action_of(message.get("function"), asked_for),
                    passages=() if message.get("error") else self._passages(content),
                    joined=True,
                )


def _is(event: Any, kind: str) -> bool:
    return isinstance(event, dict) and event.get("event") == kind


def _scoring(events: list[dict[str, Any]]) -> frozenset[Any]:
    """Spans in which a scorer worked, whose calls are not the loop's."""
    inside: set[Any] = set()
    for event in events:  # a span begins before those within it
        if _is(event, "span_begin") and (
            event.get("type") in ("scorer", "scorers") or event.get("parent_id") in inside
        ):
            inside.add(event.get("id"))
    return frozenset(inside)


def _message(output: Mapping[str, Any]) -> Mapping[str, Any]:
    choices = output.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else {}


def _tools(message: Mapping[str, Any]) -> list[str]:
    """The tools that a message asks for, by name."""
    calls = message.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    return [str(call.get("function")) for call in listed if isinstance(call, dict)]


def _grade(value: Any) -> float | None:
    """A scorer's value in 0 to 1; ``None``: it is none."""
    if isinstance(value, str):
        return _GRADES.get(value, _GRADES.get(value.lower()))
    if isinstance(value, int | float) and not math.isnan(value) and 0 <= value <= 1:
        return float(value)
    return None
