"""Trajectories of agents in the Agent Trajectory Interchange Format (ATIF) up to version 1.8."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_documents, text_id
from suffice.datasets.recordings.runs import (
    ANSWERING,
    Call,
    Search,
    Step,
    action_of,
    child,
    children,
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


def _records(row: Row) -> Iterator[QuestionRecord]:
    version = row.values.get("schema_version")
    if not isinstance(version, str) or not version.startswith(_MAJOR):
        raise row.error(
            f"is no trajectory of {_MAJOR}x: its schema_version is {version!r:.40}",
            "schema_version",
        )
    asked: list[
        tuple[list[str], list[Row]]
    ] = []  # the user's messages, the steps made from there on
    for number, values in enumerate(row.objects("steps")):
        step = row.inside(f"steps[{number}]", values)
        source = values.get("source")
        if source not in ("system", "user", "agent"):
            raise step.error(f"must be system, user or agent, found {source!r:.40}", "source")
        if source == "system" or values.get("is_copied_context") is True:
            continue
        made = asked and any(one.values["source"] == "agent" for one in asked[-1][1])
        if not asked or (source == "user" and made):
            asked.append(([], []))
        if source == "user":
            asked[-1][0].append(text_of(values.get("message")))
        asked[-1][1].append(step)
    name = row.values.get("trajectory_id") or row.values.get("session_id")
    own = str(name) if name else text_id("\n".join(text for texts, _ in asked for text in texts))
    count = 0
    for texts, steps in asked:
        run = [step for step in steps if step.values["source"] == "agent"]
        if not run:
            continue
        count += 1
        answer = None if _asks(run[-1]) else _answer(run[-1])
        parts = [part for step in run for part in _parts(step)]
        try:
            yield QuestionRecord(
                question=Question(
                    id=own if count == 1 else f"{own}#{count}", text="\n".join(texts)
                ),
                rounds=read_run(parts, answer, began=steps[0].moment("timestamp"))[0],
                stopped_by=None if answer is None else "end",
            )
        except DataError as error:
            raise error if error.file else row.error(error.message, error.column) from error
    if not count:
        raise row.error("has no step of the agent", "steps")


def _asks(step: Row) -> bool:
    """Whether it asked for more than to hand in its answer."""
    names = [tool.get("function_name") for tool in children(step.values, "tool_calls")]
    observed = bool(step.values.get("observation"))
    return any(name not in ANSWERING for name in names) if names else observed


def _answer(step: Row) -> str:
    """What it handed in by a tool, else its message."""
    for tool in children(step.values, "tool_calls"):
        handed = query_of(tool.get("arguments"))
        if tool.get("function_name") in ANSWERING and handed is not None:
            return handed
    return text_of(step.values.get("message"))


def _parts(step: Row) -> Iterator[Step]:
    """Its calls to a model, and its results, each with the call of a tool that it is of."""
    if step.values.get("llm_call_count") != 0:
        yield _call(step)
    tools = {str(tool.get("tool_call_id")): tool for tool in children(step.values, "tool_calls")}
    by_call: dict[str, list[dict[str, Any]]] = {}
    for number, result in enumerate(children(child(step.values, "observation"), "results")):
        by_call.setdefault(str(result.get("source_call_id") or number), []).append(result)
    for number, (call, results) in enumerate(by_call.items()):
        tool = tools.get(call, {})
        if tool.get("function_name") not in ANSWERING:
            yield Search(
                query=query_of(tool.get("arguments")),
                action=action_of(tool.get("function_name"), tool.get("arguments")),
                passages=tuple(
                    passage
                    for result in results
                    for passage in passages_of(
                        result.get("content"),
                        **{
                            name: held
                            for name, held in child(result, "extra").items()
                            if name in _KNOWN and held is not None
                        },
                    )
                ),
                joined=number > 0,
                ended=step.moment("timestamp"),
            )


def _call(step: Row) -> Call:
    metrics = step.inside("metrics", step.values.get("metrics"))
    cost = metrics.values.get("cost_usd")
    if not (isinstance(cost, float) and cost >= 0):
        cost = metrics.amount("cost_usd", MOST_INT32)
    logprobs = metrics.rows("logprobs", default=[])
    try:  # the format names tokens by number only, so that their texts are empty
        tokens = tuple(Token("", float(one)) for one in logprobs) or None
    except (DataError, OverflowError, TypeError, ValueError) as error:
        raise metrics.error(str(error), "logprobs") from error
    return Call(
        text=text_of(step.values.get("message")) or None,
        prompt_tokens=metrics.amount("prompt_tokens", MOST_INT32),
        completion_tokens=metrics.amount("completion_tokens", MOST_INT32),
        cached_tokens=metrics.amount("cached_tokens", MOST_INT32),
        cost_usd=cost,
        tokens=tokens,
        searches=_asks(step),
        calls=step.amount("llm_call_count", MOST_INT32) or 1,
        ended=step.moment("timestamp"),
    )
