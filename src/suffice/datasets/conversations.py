"""Logs of conversations become runs: chat messages, sessions of coding agents, SWE-agent's trajectories.

Each format is a generator of messages; one reader makes questions and rounds of them. Each message of the
user after the agent acted begins a question. The agent's last message is its answer, unless it asks a tool.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from suffice.datasets.files import Row, json_documents, text_id
from suffice.datasets.pairing import paired
from suffice.datasets.runs import (
    ANSWERING,
    Call,
    Search,
    Step,
    action_of,
    child,
    children,
    loaded,
    objects_in,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError, SufficeWarning, counted
from suffice.trace.rounds.records import Question, QuestionRecord
from suffice.trace.store import free_id
from suffice.trace.usage import Counts, read_counts

Ending = Literal["end", "budget", "error", "user"]
_AGENT = frozenset({"assistant", "model", "ai", "gpt"})
_USER = frozenset({"user", "human"})
_RESULT = frozenset({"tool", "function", "ipython"})
_LISTS = ("messages", "traj", "conversations", "items", "input")
_NOT_ASKED = re.compile(
    r"\s*(<(environment_context|user_instructions|command-|local-command|permissions|system-reminder)"
    r"|# AGENTS\.md instructions|Caveat: The messages below)"
)


@dataclass(slots=True)
class Use:
    """A use of a tool, and its result once it came; ``failed``: the result is an error."""

    id: str | None
    name: str
    arguments: Any
    result: Any = None
    failed: bool = False
    done: bool = False
    ended: datetime | None = None


@dataclass(slots=True)
class Message:
    """A message; ``results``: id, content and failure by tool use; ``call``: messages of one model call."""

    role: str
    text: str = ""
    uses: list[Use] = field(default_factory=list)
    results: list[tuple[str | None, Any, bool]] = field(default_factory=list)
    counts: Counts | None = None
    usd: float | None = None
    time: datetime | None = None
    call: str | None = None


@dataclass(slots=True)
class _Turn:
    texts: list[str] = field(default_factory=list)
    agent: list[Message] = field(default_factory=list)
    began: datetime | None = None


def message_of(values: Mapping[str, Any], time: datetime | None = None) -> Message | None:
    """Return a message of the OpenAI or Anthropic APIs, or an item of OpenAI's Responses; else nothing."""
    kind = str(values.get("type") or "")
    own = values.get("call_id") or values.get("tool_call_id")
    if kind.endswith("_call_output"):
        return Message("tool", results=[(own, values.get("output"), _failed(values))], time=time)
    if kind.endswith("_call") and "role" not in values:
        given: Any = next(
            (values[n] for n in ("arguments", "input", "action", "queries") if n in values), {}
        )
        name = str(values.get("name") or kind.removesuffix("_call"))
        return Message("assistant", uses=[Use(own or values.get("id"), name, given)], time=time)
    role = str(values.get("role") or values.get("from") or "")
    content = values.get("content", values.get("value"))
    if role in _RESULT:
        own = own or (values.get("name") if role == "function" else None)
        return Message("tool", results=[(own, content, _failed(values))], time=time)
    if role not in _AGENT | _USER:
        return None
    blocks = objects_in(content)
    message = Message(
        "assistant" if role in _AGENT else "user",
        text_of(content),
        results=[
            (part.get("tool_use_id"), part.get("content"), part.get("is_error") is True)
            for part in blocks
            if part.get("type") == "tool_result"
        ],
        time=time,
    )
    asked = [*children(values, "tool_calls")]
    asked += [part for part in blocks if part.get("type") in ("tool_use", "server_tool_use")]
    if isinstance(values.get("function_call"), dict):
        asked.append({"id": values["function_call"].get("name"), **values["function_call"]})
    for use in asked:
        told = child(use, "function") or use
        given = next((told[n] for n in ("arguments", "input", "args") if n in told), {})
        message.uses.append(Use(use.get("id"), str(told.get("name") or ""), given))
    if message.role == "assistant":
        counts = read_counts({n: values[n] for n in ("usage", "response_metadata") if n in values})
        message.counts = None if counts == Counts() else counts
    return message


def _failed(values: Mapping[str, Any]) -> bool:
    return values.get("status") in ("error", "failed", "incomplete") or bool(values.get("is_error"))


def records_of(
    messages: Iterable[Message],
    own: str,
    named: Callable[[str], str],
    ended: Ending | None = None,
    handed: str | None = None,
    score: float | None = None,
) -> Iterator[QuestionRecord]:
    """Yield the questions of a conversation; the ending, answer and score given are those of the last."""
    turns: list[_Turn] = []
    calls: dict[str, Message] = {}
    for message in messages:
        if message.results and turns:
            _pair(message, [use for one in turns[-1].agent for use in one.uses if not use.done])
        if message.role == "user" and (message.text.strip() or not message.results):
            if not turns or turns[-1].agent:
                turns.append(_Turn(began=message.time))
            turns[-1].texts.append(message.text)
        elif message.role == "assistant":
            if not turns:
                turns.append(_Turn())
            same = calls.get(message.call) if message.call else None
            if same is None or same not in turns[-1].agent:
                turns[-1].agent.append(message)
                calls |= {message.call: message} if message.call else {}
            else:
                same.uses += message.uses
                same.text = "\n".join(filter(None, (same.text, message.text)))
                same.counts, same.time = message.counts or same.counts, message.time or same.time
    turns = [turn for turn in turns if turn.agent]
    for number, turn in enumerate(turns, start=1):
        final = number == len(turns)
        answer = handed if final and handed is not None else _answer(turn.agent[-1])
        rounds, _ = read_run(_steps(turn.agent), answer, began=turn.began)
        yield QuestionRecord(
            question=Question(id=named(own), text="\n".join(turn.texts)),
            rounds=rounds,
            scores={len(rounds): score} if score is not None and len(turns) == 1 else {},
            stopped_by=ended if final and ended else None if answer is None else "end",
        )


def _pair(message: Message, waiting: list[Use]) -> None:
    """Give results to the tool uses of their ids; without ids, or with equal ones, in order."""
    named = [(own, None) for own, _, _ in message.results]
    places = paired([(use.id, use.name) for use in waiting], named)
    for place, (_, content, failed) in zip(places, message.results, strict=True):
        if place is not None and not (use := waiting[place]).done:
            use.result, use.failed, use.done, use.ended = content, failed, True, message.time


def _answer(last: Message) -> str | None:
    for use in last.uses:
        if use.name in ANSWERING:
            return query_of(use.arguments) or last.text or None
    return None if last.uses else last.text.strip() or None


def _steps(agent: Iterable[Message]) -> Iterator[Step]:
    for message in agent:
        uses = [use for use in message.uses if use.name not in ANSWERING]
        counts = message.counts or Counts()
        yield Call(
            text=message.text or None,
            prompt_tokens=counts.prompt,
            cached_tokens=counts.cached,
            completion_tokens=counts.completion,
            usd=message.usd,
            searches=bool(uses),
            ended=message.time,
        )
        for number, use in enumerate(uses):
            given = loaded(use.arguments) if isinstance(use.arguments, str) else use.arguments
            shown = text_of(use.result) if isinstance(use.result, list) else use.result
            yield Search(
                query=query_of(given),
                action=action_of(use.name, use.arguments),
                passages=()
                if use.failed or use.result is None
                else passages_of(shown or use.result),
                joined=number > 0,
                ended=use.ended,
            )


# --- formats ----------------------------------------------------------------------------------------
Reader = Callable[[Iterable[Row], Callable[[str], str]], Iterator[QuestionRecord]]


def conversations(path: Path, read: Reader) -> Iterator[QuestionRecord]:
    """Yield the questions of a file; say what had no step of an agent, and which lines are broken."""
    broken: list[DataError] = []
    taken: set[str] = set()
    rows = json_documents(path, broken, lists="messages")

    def named(wanted: str) -> str:
        name = free_id(wanted, taken.__contains__)
        taken.add(name)
        return name

    found = 0
    for record in read(rows, named):
        found += 1
        yield record
    if not found:
        raise DataError("holds no step of an agent", file=str(path))
    if broken:
        warnings.warn(
            f"{path}: left out {counted(len(broken), 'broken line')}, the first in row {broken[0].row}",
            SufficeWarning,
            stacklevel=2,
        )


def _time(row: Row, *names: str) -> datetime | None:
    for name in names:
        if isinstance(row.values.get(name), str):
            return row.moment(name)
    return None


def _score(values: Mapping[str, Any]) -> float | None:
    value = next((values[name] for name in ("reward", "score") if name in values), None)
    return float(value) if isinstance(value, bool | int | float) and 0 <= value <= 1 else None


def chat(rows: Iterable[Row], named: Callable[[str], str]) -> Iterator[QuestionRecord]:
    """Chat messages: a conversation a row under ``messages``, or one message a row."""
    rows = iter(rows)
    first = next(rows, None)
    rows = chain([] if first is None else [first], rows)
    if first and not any(isinstance(first.values.get(name), list) for name in _LISTS):
        rows = iter([Row(first.file, first.number, {"messages": [row.values for row in rows]})])
    for row in rows:
        name = next((n for n in _LISTS if isinstance(row.values.get(n), list)), "messages")
        listed = row.objects(name) + children(row.values, "output")
        listed += [child(one, "message") for one in children(row.values, "choices")[:1]]
        told = [row.values[n] for n in ("id", "task_id", "session_id", "uuid") if n in row.values]
        own = str(told[0]) if told and isinstance(told[0], str | int) else text_id(str(listed))
        messages = list(_items(row, listed))
        agents = [message for message in messages if message.role == "assistant"]
        if len({one.call or id(one) for one in agents}) == 1 and agents[-1].counts is None:
            counts = read_counts({n: row.values[n] for n in ("usage",) if n in row.values})
            agents[-1].counts = None if counts == Counts() else counts
        yield from records_of(messages, own, named, score=_score(row.values))


def _items(row: Row, listed: Iterable[Mapping[str, Any]]) -> Iterator[Message]:
    group = 0
    for values in listed:
        message = message_of(values, _time(replace(row, values=values), "timestamp"))
        if message is None or message.role != "assistant":
            group += 1
        elif str(values.get("type") or "").endswith(("_call", "message")):
            message.call = f"{group}"
        if message is not None:
            yield message


def claude_code(lines: Iterable[Row], named: Callable[[str], str]) -> Iterator[QuestionRecord]:
    """A session of Claude Code; an API message over several lines is one call, subagents are left out."""
    rows = list(lines)
    session = next((row.values["sessionId"] for row in rows if row.values.get("sessionId")), "")

    def messages() -> Iterator[Message]:
        for row in rows:
            values = row.values
            if values.get("type") not in ("user", "assistant") or values.get("isSidechain"):
                continue
            inner = child(values, "message")
            message = message_of(inner, _time(row, "timestamp"))
            if message is None or inner.get("model") == "<synthetic>":
                continue
            hidden = values.get("isMeta") or values.get("isCompactSummary")
            hidden = (
                hidden or _NOT_ASKED.match(message.text) or "[Request inter" in message.text[:20]
            )
            if message.role == "user" and hidden:
                message.text = ""
                if not message.results:
                    continue
            if message.role == "assistant":
                message.call = inner.get("id") or values.get("requestId")
            yield message

    yield from records_of(messages(), str(session), named)


def codex(lines: Iterable[Row], named: Callable[[str], str]) -> Iterator[QuestionRecord]:
    """A rollout of Codex: response items, each call's usage from the count of tokens after it."""
    rows = list(lines)
    meta = next((r.values for r in rows if r.values.get("type") == "session_meta"), {})

    def messages() -> Iterator[Message]:
        group, last, total = 0, None, None
        for row in rows:
            payload = child(row.values, "payload") or row.values
            kind = payload.get("type")
            if kind == "token_count":
                info = child(payload, "info")
                if last is not None and info and info.get("total_token_usage") != total:
                    total = info.get("total_token_usage")
                    last.counts = read_counts({"usage": info.get("last_token_usage")})
                    group, last = group + 1, None
            elif row.values.get("type") in ("response_item", kind):
                message = message_of(payload, _time(row, "timestamp"))
                if message is None or (message.role == "user" and _NOT_ASKED.match(message.text)):
                    continue
                if message.role == "assistant":
                    message.call, last = str(group), message
                else:
                    group += message.role == "user"
                yield message

    own = child(meta, "payload").get("id") or rows[0].values.get("id")
    yield from records_of(messages(), str(own or text_id(str(rows[0].values))), named)


def swe_agent(rows: Iterable[Row], named: Callable[[str], str]) -> Iterator[QuestionRecord]:
    """Trajectories of SWE-agent and mini-swe-agent; the submission is the answer."""
    for row in rows:
        info = child(row.values, "info")
        status = str(info.get("exit_status") or "").lower()
        limit = any(word in status for word in ("cost", "context", "limit", "time"))
        ended: Ending | None = (
            "budget" if limit else "end" if "submit" in status else "error" if status else None
        )
        history = children(row.values, "history") or children(row.values, "messages")
        steps = children(row.values, "trajectory")
        own = next(
            (row.values[n] for n in ("instance_id", "environment") if row.values.get(n)), None
        )
        own = (
            own if isinstance(own, str) and own != "swe_main" else Path(row.file).name.split(".")[0]
        )
        submitted = info.get("submission")
        yield from records_of(
            _trajectory(history, steps) if steps else _shell(history),
            own,
            named,
            ended,
            submitted if isinstance(submitted, str) and submitted.strip() else None,
        )


def _trajectory(history: list[dict[str, Any]], steps: list[dict[str, Any]]) -> Iterator[Message]:
    asked = (h for h in history if h.get("role") == "user" and not h.get("is_demo"))
    yield Message("user", text_of(next(asked, {}).get("content")))
    for step in steps:
        text = str(step.get("response") or step.get("thought") or "")
        name, _, given = str(step.get("action") or "").strip().partition(" ")
        use = Use(None, name, given, step.get("observation"), done=True)
        yield Message("assistant", text, [use] if name else [])


_SHELL = re.compile(r"```(?:\w*bash\w*|sh)\n(.*?)\n?```", re.DOTALL)


def _shell(history: list[dict[str, Any]]) -> Iterator[Message]:
    """Yield messages whose text holds a command, which the next message of the user answers."""
    waits = False
    for values in history:
        message = message_of(values)
        if message is None:
            continue
        if message.role == "user" and waits:
            message = Message("tool", results=[(None, values.get("content"), False)])
        elif message.role == "assistant":
            message.counts = read_counts(child(child(values, "extra"), "response"))
            cost = child(values, "extra").get("cost")
            message.usd = float(cost) if isinstance(cost, int | float) and cost >= 0 else None
            found = None if message.uses else _SHELL.search(message.text)
            message.uses += [Use(None, "bash", found[1])] if found else []
        waits = message.role == "assistant" and any(use.id is None for use in message.uses)
        yield message


def promptfoo(row: Row) -> Iterator[Row]:
    """Return the results of promptfoo as rows; repeats of a test are rounds with answers and scores."""
    results = child(row.values, "results") or row.values
    listed = children(results, "results") or children(row.values, "results")
    if not listed:
        raise row.error("must hold results.results", "results")
    counts: dict[str, int] = {}
    for result in listed:
        given, prompt = child(result, "vars"), child(result, "prompt")
        named = child(result, "provider").get("id") or result.get("provider")
        key = text_id(f"{named}\n{prompt.get('label') or prompt.get('raw')}\n{given}")
        response = child(result, "response")
        output = response.get("output")
        used = response.get("tokenUsage")
        tokens = read_counts({"usage": used}) if isinstance(used, dict) else Counts()
        counts[key] = counts.get(key, 0) + 1
        question = given.get("question") or given.get("query") or prompt.get("raw") or ""
        late, score, usd = result.get("latencyMs"), result.get("score"), result.get("cost")
        yield Row(
            row.file,
            row.number,
            {
                "question_id": key,
                "question": question if isinstance(question, str) else str(question),
                "question_type": named if isinstance(named, str) else None,
                "round": counts[key],
                "answer": None
                if output is None
                else output
                if isinstance(output, str)
                else str(output),
                "llm_calls": 1,
                "answer_calls": 1,
                "prompt_tokens": tokens.prompt,
                "completion_tokens": tokens.completion,
                "usd": usd if isinstance(usd, int | float) else None,
                "latency_s": late / 1000 if isinstance(late, int | float) else None,
                "score": score if isinstance(score, int | float) and 0 <= score <= 1 else None,
            },
        )
