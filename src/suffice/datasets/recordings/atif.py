"""Trajectories of agents in the Agent Trajectory Interchange Format (ATIF) up to version 1.8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_documents, text_id
from suffice.datasets.recordings.runs import (
    ANSWERING,
    Call,
    Search,
    Step,
    action_of,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError
from suffice.trace.rounds.records import Question, QuestionRecord, Token
from suffice.trace.values import MOST_INT32

_MAJOR = "ATIF-v1."
_KNOWN = ("source_doc_id", "retrieval_score", "title")


def read_atif(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of trajectories: an object, a list of them, or one a line.

    Each message of the user's begins a question, each step that observed results of tools is a round. The
    agent's last message is the answer, and the last round's; the others were asked for none. Steps that
    were copied from another trajectory, and trajectories of subagents, are left out.
    """
    return tuple(record for row in json_documents(path) for record in _records(row))


@dataclass(slots=True)
class _Asked:
    """A question: messages of the user's, and the steps that the agent made then."""

    texts: list[str]
    began: datetime | None
    run: list[Row] = field(default_factory=list)


def _records(row: Row) -> Iterator[QuestionRecord]:
    version = row.values.get("schema_version")
    if not isinstance(version, str) or not version.startswith(_MAJOR):
        raise row.error(
            f"is no trajectory of {_MAJOR}x: its schema_version is {version!r:.40}",
            "schema_version",
        )
    steps = [_step(row, number, values) for number, values in enumerate(row.rows("steps"))]
    asked: list[_Asked] = []
    for step in steps:
        source = step.values["source"]
        if source == "system" or step.values.get("is_copied_context") is True:
            continue
        if not asked or (source == "user" and asked[-1].run):
            asked.append(_Asked([], step.moment("timestamp")))
        if source == "user":
            asked[-1].texts.append(text_of(step.values.get("message")))
        else:
            asked[-1].run.append(step)
    name = row.values.get("trajectory_id") or row.values.get("session_id")
    own = str(name) if name else text_id("\n".join(text for one in asked for text in one.texts))
    answered = [one for one in asked if one.run]
    for number, one in enumerate(answered, start=1):
        try:
            yield _record(own if number == 1 else f"{own}#{number}", one)
        except DataError as error:
            raise error if error.file else row.error(error.message, error.column) from error
    if not answered:
        raise row.error("has no step of the agent", "steps")


def _step(row: Row, number: int, values: Any) -> Row:
    place = f"steps[{number}]"
    if values is None:
        raise row.error("must be an object, found nothing", place)
    step = row.inside(place, values)
    source = values.get("source")
    if source not in ("system", "user", "agent"):
        raise step.error(f"must be system, user or agent, found {source!r:.40}", "source")
    return step


def _record(name: str, asked: _Asked) -> QuestionRecord:
    steps = [part for step in asked.run for part in _parts(step)]
    answer = None if _asks(asked.run[-1]) else _answer(asked.run[-1])
    return QuestionRecord(
        question=Question(id=name, text="\n".join(asked.texts)),
        rounds=read_run(steps, answer, began=asked.began).rounds,
        stopped_by=None if answer is None else "end",
    )


def _call_id(step: Row, value: Any, column: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise step.error(f"the id of a call must be text, found {value!r:.60}", column)
    return value


def _tools(step: Row) -> Mapping[str | None, Mapping[str, Any]]:
    """The tools that it asked for, by the ids of their calls."""
    return {
        _call_id(step, tool.get("tool_call_id"), "tool_calls"): tool
        for tool in step.objects("tool_calls")
    }


def _asks(step: Row) -> bool:
    """Whether it asked for more than to hand in its answer."""
    names = [tool.get("function_name") for tool in _tools(step).values()]
    observed = bool(step.values.get("observation"))
    return any(name not in ANSWERING for name in names) if names else observed


def _answer(step: Row) -> str:
    """What it handed in by a tool, else its message."""
    for tool in _tools(step).values():
        if tool.get("function_name") in ANSWERING:
            handed = query_of(tool.get("arguments"))
            if handed is not None:
                return handed
    return text_of(step.values.get("message"))


def _parts(step: Row) -> Iterator[Step]:
    """Its calls to a model, and its results, each with the call of a tool that it is of."""
    if step.values.get("llm_call_count") != 0:
        yield _call(step)
    tools = _tools(step)
    observation = step.inside("observation", step.values.get("observation"))
    by_call: dict[Any, list[Mapping[str, Any]]] = {}
    for number, result in enumerate(observation.objects("results")):
        of_call = _call_id(observation, result.get("source_call_id"), "results")
        by_call.setdefault(of_call or number, []).append(result)
    for number, (call, parts) in enumerate(by_call.items()):
        tool = tools.get(call, {})
        if tool.get("function_name") not in ANSWERING:
            yield Search(
                query=query_of(tool.get("arguments")),
                action=action_of(tool.get("function_name"), tool.get("arguments")),
                passages=tuple(
                    passage
                    for part in parts
                    for passage in passages_of(part.get("content"), **_known(part))
                ),
                joined=number > 0,
                ended=step.moment("timestamp"),
            )


def _known(result: Mapping[str, Any]) -> dict[str, Any]:
    extra = result.get("extra")
    held = extra if isinstance(extra, dict) else {}
    return {name: held[name] for name in _KNOWN if held.get(name) is not None}


def _call(step: Row) -> Call:
    metrics = step.inside("metrics", step.values.get("metrics"))
    names = ("prompt_tokens", "completion_tokens", "cached_tokens")
    amounts = {name: metrics.amount(name, MOST_INT32) for name in names}
    cost = metrics.values.get("cost_usd")
    if not (isinstance(cost, float) and cost >= 0):
        cost = metrics.amount("cost_usd", MOST_INT32)
    return Call(
        text=text_of(step.values.get("message")) or None,
        **amounts,
        cost_usd=cost,
        tokens=_tokens(metrics),
        searches=_asks(step),
        calls=step.amount("llm_call_count", MOST_INT32) or 1,
        ended=step.moment("timestamp"),
    )


def _tokens(metrics: Row) -> tuple[Token, ...] | None:
    """Log-probabilities; the format names tokens by number only, so that their texts are empty."""
    logprobs = metrics.rows("logprobs", default=[])
    if any(isinstance(one, bool) or not isinstance(one, int | float) for one in logprobs):
        raise metrics.error(f"must be a list of numbers, found {logprobs!r:.60}", "logprobs")
    try:
        return tuple(Token("", float(one)) for one in logprobs) or None
    except (DataError, OverflowError) as error:
        raise metrics.error(str(error), "logprobs") from error
