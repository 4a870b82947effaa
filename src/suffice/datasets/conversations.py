"""Logs of conversations become runs: chat messages, sessions of coding agents, trajectories.

Each format is a generator of messages; one reader makes questions and rounds of them. Each message of the
user after the agent acted begins a question. The agent's last message is its answer, unless it asks a tool.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import Any

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
    objects_in,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError, SufficeWarning
from suffice.reasoning import without_reasoning
from suffice.trace.rounds.records import Passage, Question, QuestionRecord, StoppedBy, Token
from suffice.trace.store import free_id
from suffice.trace.usage import Counts, read_counts

_AGENT = frozenset({"assistant", "model", "ai", "gpt"})
_USER = frozenset({"user", "human"})
_RESULT = frozenset({"tool", "function", "ipython"})
_NO_PART = frozenset({"system", "developer", "reasoning", "exit", "ghost_snapshot"})
LISTS = ("messages", "traj", "conversations", "items", "input", "output")
"""Names under which conversations stand in a row."""
_NOT_ASKED = re.compile(
    r"\s*(<(environment_context|user_instructions|command-|local-command|permissions|system-reminder)"
    r"|# AGENTS\.md instructions|Caveat: The messages below)"
)
Left = Counter[str]
"""What was left out of a file, and how often."""


@dataclass(slots=True)
class Use:
    """A use of a tool and what it found; ``served``: the model's own server ran it inside the call."""

    id: Any
    name: str | None
    arguments: Any
    served: bool = False
    passages: tuple[Passage, ...] = ()
    ended: datetime | None = None


@dataclass(slots=True)
class Message:
    """A message; ``results``: what was found, by the id of the tool's use.

    ``call``: messages of one model call share it; empty: neighbors do. The role ``usage`` tells the counts
    of the call before, ``exit`` how the run ended, with the answer handed in.
    """

    role: str
    text: str = ""
    uses: list[Use] = field(default_factory=list)
    results: list[tuple[Any, tuple[Passage, ...]]] = field(default_factory=list)
    time: datetime | None = None
    call: str | None = None
    counts: Counts | None = None
    usd: float | None = None
    tokens: tuple[Token, ...] | None = None
    calls: int = 1
    ended: StoppedBy | None = None


@dataclass(slots=True)
class _Turn:
    texts: list[str] = field(default_factory=list)
    agent: list[Message] = field(default_factory=list)
    began: datetime | None = None
    end: Message | None = None


def message_of(values: Mapping[str, Any], time: datetime | None = None) -> Message | None:
    """Return a message of the OpenAI or Anthropic APIs, or an item of OpenAI's Responses; else nothing."""
    kind = str(values.get("type") or "")
    own = values.get("call_id") or values.get("tool_call_id")
    if kind.endswith("_call_output"):
        return Message("tool", results=[(own, _found(values, "output"))], time=time)
    if kind.endswith("_call") and "role" not in values:
        names = ("arguments", "input", "action", "queries")
        given: Any = next((values[name] for name in names if name in values), {})
        name = str(values.get("name") or kind.removesuffix("_call"))
        use = Use(own or values.get("id"), name, given, not own, _found(values, "results"))
        return Message("assistant", uses=[use], time=time, call="")
    role = str(values.get("role") or values.get("from") or "")
    content = values.get("content", values.get("value"))
    if role in _RESULT:
        own = own or (values.get("name") if role == "function" else None)
        return Message("tool", results=[(own, _found({**values, "content": content}))], time=time)
    if role not in _AGENT | _USER:
        return None
    message = Message("user" if role in _USER else "assistant", text_of(content), time=time)
    parts = objects_in(content)
    of_tools = [part for part in parts if str(part.get("type")).endswith("tool_result")]
    message.results = [(part.get("tool_use_id"), _found(part)) for part in of_tools]
    asked = [part for part in parts if part.get("type") in ("tool_use", "server_tool_use")]
    asked += children(values, "tool_calls")
    if function := child(values, "function_call"):
        asked.append({"id": function.get("name"), **function})
    for one in asked:
        told = child(one, "function") or one
        given = next((told[n] for n in ("arguments", "input", "args") if n in told), {})
        served = one.get("type") == "server_tool_use"
        message.uses.append(Use(one.get("id"), str(told.get("name") or ""), given, served))
    if message.role == "assistant":
        message.call = "" if kind == "message" and "usage" not in values else None
        message.counts = _counts(values, "usage", "response_metadata")
    return message


def _found(values: Mapping[str, Any], name: str = "content") -> tuple[Passage, ...]:
    """Return what a tool gave; a failed one gives nothing."""
    content = values.get(name)
    bad = values.get("status") in ("error", "failed", "incomplete") or values.get("is_error")
    parts = any("type" in part for part in objects_in(content))
    return () if bad or content is None else passages_of((parts and text_of(content)) or content)


def _counts(values: Mapping[str, Any], *names: str) -> Counts | None:
    counts = read_counts({name: values[name] for name in names if name in values})
    return None if counts == Counts() else counts


def records_of(
    messages: Iterable[Message], own: str, left: Left, score: float | None = None
) -> Iterator[QuestionRecord]:
    """Yield the questions of a conversation, of one id; the score is that of an only question."""
    turns = [_Turn()]
    calls: dict[str, Message] = {}
    uses: dict[int, Use] = {}  # those that wait for a result, in order
    done: dict[Any, Use] = {}
    neighbor: Message | None = None
    for message in messages:
        turn = turns[-1]
        if message.role == "assistant":
            same = neighbor if message.call == "" else calls.get(message.call or "")
            uses |= {id(use): use for use in message.uses if not use.passages}
            if same is None:
                turn.agent.append(message)
            else:
                same.uses += message.uses
                same.text = "\n".join(filter(None, (same.text, message.text)))
                same.counts, same.time = message.counts or same.counts, message.time or same.time
            if message.call:
                calls.setdefault(message.call, message)
        left["tool results that no use asked for"] += _pair(message, uses, done)
        neighbor = turn.agent[-1] if message.role == "assistant" and message.call == "" else None
        if message.role == "usage" and turn.agent:
            turn.agent[-1].counts = message.counts
        elif message.role == "exit" or message.ended:
            turn.end = message
        elif message.role == "user" and (message.text.strip() or not message.results):
            if turn.agent:
                turns.append(turn := _Turn())
                calls, uses = {}, {key: use for key, use in uses.items() if use.id is not None}
            turn.began = message.time if not turn.texts else turn.began
            turn.texts.append(message.text)
    turns = [turn for turn in turns if turn.agent]
    left["conversations without a step of an agent"] += not turns
    for turn in turns:
        answer, end = _answer(turn), turn.end
        rounds, _ = read_run(_steps(turn.agent), answer, began=turn.began)
        yield QuestionRecord(
            question=Question(id=own, text="\n".join(turn.texts)),
            rounds=rounds,
            scores={len(rounds): float(score)} if score is not None and len(turns) == 1 else {},
            stopped_by=end.ended if end and end.ended else "end" if answer is not None else None,
        )


def _pair(message: Message, waiting: dict[int, Use], done: dict[Any, Use]) -> int:
    """Give results to the uses that they belong to; return how many belong to none."""
    lost, calls = 0, [*waiting.values()]
    named = [(own, None) for own, _ in message.results]
    places = paired([(use.id, use.name) for use in calls], named)
    for place, (own, passages) in zip(places, message.results, strict=True):
        use = done.get(own) if place is None else calls[place]
        lost += use is None
        if use is not None:
            waiting.pop(id(use), None)
            use.passages, use.ended = use.passages + passages, message.time
            done |= {} if own is None else {own: use}
    return lost


def _answer(turn: _Turn) -> str | None:
    last, end = turn.agent[-1], turn.end
    if end is not None and (end.text.strip() or end.ended == "user"):
        return end.text.strip() or None
    for use in last.uses:
        if use.name in ANSWERING:
            return query_of(use.arguments) or last.text or None
    if not all(use.served for use in last.uses):
        return None
    return without_reasoning(last.text).strip() or None


def _steps(agent: Iterable[Message]) -> Iterator[Step]:
    for message in agent:
        uses = [use for use in message.uses if use.name not in ANSWERING]
        counts = message.counts or Counts()
        if message.calls:
            yield Call(
                text=message.text or None,
                prompt_tokens=counts.prompt,
                cached_tokens=counts.cached,
                completion_tokens=counts.completion,
                usd=message.usd,
                tokens=message.tokens,
                searches=bool(uses),
                calls=message.calls,
                ended=message.time,
            )
        for number, use in enumerate(uses):
            yield Search(
                query=query_of(use.arguments),
                action=action_of(use.name, use.arguments),
                passages=use.passages,
                joined=number > 0,
                ended=use.ended,
            )


# --- formats ----------------------------------------------------------------------------------------
Reader = Callable[[Iterator[Row], Left], Iterator[QuestionRecord]]


def conversations(path: Path, read: Reader) -> Iterator[QuestionRecord]:
    """Yield the questions of a file, each with an id of its own; say in one line what was left out."""
    broken: list[DataError] = []
    left: Left = Counter()
    taken: dict[str, int] = {}
    for record in read(json_documents(path, broken, lists="messages"), left):
        own = record.question.id
        taken[own] = taken.get(own, 0) + 1
        name = own if taken[own] == 1 else free_id(f"{own}#{taken[own]}", taken.__contains__)
        taken.setdefault(name, 1)
        yield replace(record, question=replace(record.question, id=name))
    if broken:
        left[f"broken lines from row {broken[0].row}"] = len(broken)
    if told := ", ".join(f"{what} ({number:,})" for what, number in left.items() if number):
        warnings.warn(f"{path}: left out: {told}", SufficeWarning, stacklevel=2)


def _read(values: Mapping[str, Any], row: Row, left: Left) -> Iterator[Message]:
    """Yield the message that values are, and count those of an unknown kind."""
    timed = replace(row, values=values if "timestamp" in values else row.values)
    stated = isinstance(timed.values.get("timestamp"), str)
    message = message_of(values, timed.moment("timestamp") if stated else None)
    kind = values.get("role") or values.get("from") or values.get("type")
    if message is not None:
        yield message
    elif kind not in _NO_PART:
        left[f"messages of kind {kind!r:.40}"] += 1


def chat(rows: Iterator[Row], left: Left) -> Iterator[QuestionRecord]:
    """Chat messages: a conversation a row under ``messages``, or one message a row."""
    for row in rows:
        values = row.values
        name = next((n for n in LISTS if isinstance(values.get(n), list)), None)
        if name is None:  # a message: all rows are one conversation
            name, values = "messages", {"messages": [one.values for one in chain([row], rows)]}
        listed = replace(row, values=values).objects(name)
        if isinstance(values.get("input"), str):
            listed = [{"role": "user", "content": values["input"]}, *listed]
        reply = [child(one, "message") for one in children(values, "choices")[:1]]
        reply += children(values, "output") if name != "output" else []
        plain = replace(row, values={})
        messages = [one for values_ in listed + reply for one in _read(values_, plain, left)]
        if reply or name == "output" or sum(one.role == "assistant" for one in messages) == 1:
            counts = _counts(values, "usage")
            messages += [Message("usage", counts=counts)] if counts else []
        told = [values[n] for n in ("id", "task_id", "session_id", "uuid") if n in values]
        own = str(told[0]) if told and isinstance(told[0], str | int) else text_id(str(listed))
        score = next((values[n] for n in ("reward", "score") if n in values), None)
        if not isinstance(score, bool | int | float) or not 0 <= score <= 1:
            score = None
        yield from records_of(messages, own, left, score)


def claude_code(rows: Iterator[Row], left: Left) -> Iterator[QuestionRecord]:
    """A session of Claude Code; an API message over several lines is one call, subagents are left out."""
    listed = [*rows]
    session = next((row.values["sessionId"] for row in listed if row.values.get("sessionId")), "")

    def messages() -> Iterator[Message]:
        for row in listed:
            values, inner = row.values, child(row.values, "message")
            spoken = values.get("type") in ("user", "assistant") and not values.get("isSidechain")
            if not spoken or inner.get("model") == "<synthetic>":
                continue
            for message in _read(inner, row, left):
                hidden = values.get("isMeta") or values.get("isCompactSummary")
                if message.role == "assistant":
                    message.call = inner.get("id") or values.get("requestId")
                elif "[Request interrupted" in message.text[:40]:
                    message.text, message.ended = "", "user"
                elif hidden or _NOT_ASKED.match(message.text):
                    message.text, message.role = "", "tool"
                yield message

    yield from records_of(messages(), str(session), left)


def codex(rows: Iterator[Row], left: Left) -> Iterator[QuestionRecord]:
    """A rollout of Codex: response items, each call's usage from the count of tokens after it."""
    listed = [*rows]
    meta = next((r.values for r in listed if r.values.get("type") == "session_meta"), {})

    def messages() -> Iterator[Message]:
        total = None
        for row in listed:
            payload = child(row.values, "payload") or row.values
            kind, info = payload.get("type"), child(payload, "info")
            if kind == "token_count" and info and info.get("total_token_usage") != total:
                total = info.get("total_token_usage")
                yield Message("usage", counts=read_counts({"usage": info.get("last_token_usage")}))
            elif kind == "turn_aborted":
                yield Message("user", ended="user")
            elif kind and row.values.get("type") in ("response_item", kind):
                for message in _read(payload, row, left):
                    if message.role != "user" or not _NOT_ASKED.match(message.text):
                        yield message

    own = child(meta, "payload").get("id") or (listed[0].values.get("id") if listed else None)
    yield from records_of(messages(), str(own or text_id(str(meta or listed[:1]))), left)


_SHELL = re.compile(r"```(?:\w*bash\w*|sh)\n(.*?)\n?```", re.DOTALL)


def swe_agent(rows: Iterator[Row], left: Left) -> Iterator[QuestionRecord]:
    """Trajectories of SWE-agent and mini-swe-agent; the submission is the answer."""
    for row in rows:
        values = row.values
        own = next((values[n] for n in ("instance_id", "environment") if values.get(n)), None)
        if not isinstance(own, str) or own == "swe_main":
            own = Path(row.file).name.split(".")[0]
        yield from records_of(_trajectory(row, left), own, left)


def _trajectory(row: Row, left: Left) -> Iterator[Message]:
    """Yield the messages: after the first of the agent, those of the user are the shell's."""
    history = children(row.values, "history") or children(row.values, "messages")
    if steps := children(row.values, "trajectory"):
        asked = [h for h in history if h.get("role") == "user" and not h.get("is_demo")]
        history = asked[:1] or [{"role": "user", "content": ""}]
        for step in steps:
            name, _, given = str(step.get("action") or "").strip().partition(" ")
            text = str(step.get("response") or step.get("thought") or "")
            uses = [{"name": name, "arguments": given}] if name else []
            history += [{"role": "assistant", "content": text, "tool_calls": uses}]
            history += [{"role": "tool", "content": step.get("observation")}] if name else []
    acted = False
    for values in history:
        extra = child(values, "extra")
        for message in _read(values, replace(row, values={}), left):
            if message.role == "assistant":
                acted, cost = True, extra.get("cost")
                message.counts = message.counts or _counts(child(extra, "response"), "usage")
                message.usd = float(cost) if isinstance(cost, int | float) and cost >= 0 else None
                if found := None if message.uses else _SHELL.search(message.text):
                    message.uses = [Use(None, "bash", found[1])]
            elif message.role == "user" and acted:
                message.role, message.text = "tool", ""
                message.results = [(None, _found(values))]
            yield message
    info = child(row.values, "info")
    status, handed = str(info.get("exit_status") or "").lower(), info.get("submission")
    limit = any(word in status for word in ("cost", "context", "limit", "time"))
    done: StoppedBy | None = "end" if "submit" in status else "error" if status else None
    text = handed if isinstance(handed, str) else ""
    yield Message("exit", text, ended="budget" if limit else done)


def atif(rows: Iterator[Row], left: Left) -> Iterator[QuestionRecord]:
    """Trajectories in the Agent Trajectory Interchange Format up to 1.8, without steps of other runs."""
    for row in rows:
        version = row.values.get("schema_version")
        if not isinstance(version, str) or not version.startswith("ATIF-v1."):
            said = f"is no trajectory of ATIF-v1.x: its schema_version is {version!r:.40}"
            raise row.error(said, "schema_version")
        steps = [row.inside(f"steps[{at}]", held) for at, held in enumerate(row.objects("steps"))]
        if not any(step.values.get("source") == "agent" for step in steps):
            raise row.error("has no step of the agent", "steps")
        name = row.values.get("trajectory_id") or row.values.get("session_id")
        own = str(name or text_id("\n".join(text_of(step.values.get("message")) for step in steps)))
        yield from records_of(map(_of_step, steps), own, left)


def _of_step(step: Row) -> Message:
    values, source = step.values, step.values.get("source")
    if source not in ("system", "user", "agent"):
        raise step.error(f"must be system, user or agent, found {source!r:.40}", "source")
    if source == "system" or values.get("is_copied_context") is True:
        return Message("system")
    if source == "user":
        return Message("user", text_of(values.get("message")), time=step.moment("timestamp"))
    uses = [
        Use(tool.get("tool_call_id"), tool.get("function_name"), tool.get("arguments"))
        for tool in children(values, "tool_calls")
    ]
    results: list[tuple[Any, tuple[Passage, ...]]] = []
    for number, result in enumerate(children(child(values, "observation"), "results")):
        extra, key = child(result, "extra"), result.get("source_call_id")
        key = number if key is None and not uses else key
        names = ("source_doc_id", "retrieval_score", "title")
        known = {name: extra[name] for name in names if extra.get(name) is not None}
        if key is not None and all(use.id != key for use in uses):
            uses.append(Use(key, None, None))
        results.append((key, passages_of(result.get("content"), **known)))
    metrics = step.inside("metrics", values.get("metrics"))
    cost = metrics.values.get("cost_usd")
    try:  # the format names tokens by number only, so that their texts are empty
        logprobs = metrics.rows("logprobs", default=[])
        tokens = tuple(Token("", float(one)) for one in logprobs) or None
    except (DataError, OverflowError, TypeError, ValueError) as error:
        raise metrics.error(str(error), "logprobs") from error
    names = ("prompt_tokens", "cached_tokens", "completion_tokens")
    prompt, cached, completion = map(metrics.amount, names)
    stated = step.amount("llm_call_count")
    return Message(
        "assistant",
        text_of(values.get("message")),
        uses,
        results,
        step.moment("timestamp"),
        counts=Counts(prompt=prompt, cached=cached, completion=completion),
        usd=cost if isinstance(cost, float) and cost >= 0 else metrics.amount("cost_usd"),
        tokens=tokens,
        calls=1 if stated is None else stated,
    )


def promptfoo(rows: Iterator[Row]) -> Iterator[Row]:
    """Return the results of promptfoo as rows; repeats of a test are rounds with answers and scores."""
    seen: Counter[str] = Counter()
    for row in rows:
        results = child(row.values, "results") or row.values
        listed = children(results, "results") or [row.values][: "vars" in row.values]
        if not listed:
            raise row.error("must hold results.results", "results")
        for result in listed:
            given, prompt = child(result, "vars"), child(result, "prompt")
            named = child(result, "provider").get("id") or result.get("provider")
            key = text_id(f"{named}\n{prompt.get('label') or prompt.get('raw')}\n{given}")
            seen[key] += 1
            response, late = child(result, "response"), result.get("latencyMs")
            output, score = response.get("output"), result.get("score")
            tokens = read_counts({"usage": response.get("tokenUsage")})
            question = given.get("question") or given.get("query") or prompt.get("raw") or ""
            values = {
                "question_id": key,
                "question": str(question),
                "round": seen[key],
                "answer": None if output is None else str(output),
                "llm_calls": 1,
                "answer_calls": 1,
                "prompt_tokens": tokens.prompt,
                "completion_tokens": tokens.completion,
                "usd": result.get("cost"),
                "latency_s": late / 1000 if isinstance(late, int | float) else None,
                "score": score if isinstance(score, int | float) and 0 <= score <= 1 else None,
            }
            yield Row(row.file, row.number, values)
