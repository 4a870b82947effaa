"""Trajectories of agents in the Agent Trajectory Interchange Format (ATIF) up to version 1.8."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suffice.datasets.files import Row, json_documents, text_id
from suffice.datasets.recordings.runs import (
    ANSWERING,
    Call,
    Search,
    Step,
    action_of,
    is_count,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError
from suffice.trace.rounds.records import Question, QuestionRecord, Token

_MAJOR = "ATIF-v1."


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
    steps = [_Step(row, number, step) for number, step in enumerate(row.rows("steps"))]
    steps = [step for step in steps if step.values.get("is_copied_context") is not True]
    asked: list[_Asked] = []
    for step in steps:
        if step.source == "user":
            if not asked or asked[-1].run:
                asked.append(_Asked([], step.time))
            asked[-1].texts.append(text_of(step.values.get("message")))
        elif step.source == "agent":
            if not asked:
                asked.append(_Asked([], step.time))
            asked[-1].run.append(step)
    name = row.values.get("trajectory_id") or row.values.get("session_id")
    own = str(name) if name else text_id("\n".join(text for one in asked for text in one.texts))
    number = 0
    for one in asked:
        if one.run:
            number += 1
            try:
                yield _record(own if number == 1 else f"{own}#{number}", one)
            except DataError as error:
                raise error if error.file else row.error(error.message, error.column) from error
    if not number:
        raise row.error("has no step of the agent", "steps")


@dataclass(slots=True)
class _Asked:
    """A question: messages of the user's, and the steps that the agent made then."""

    texts: list[str]
    began: datetime | None
    run: list[_Step] = field(default_factory=list)


class _Step:
    """A step of a trajectory, with checked access."""

    def __init__(self, row: Row, number: int, values: Any) -> None:
        self._row, self._place = row, f"steps[{number}]"
        if not isinstance(values, dict):
            raise self.error(f"must be an object, found {values!r:.60}")
        self.values: Mapping[str, Any] = values
        self.source = values.get("source")
        if self.source not in ("system", "user", "agent"):
            raise self.error(f"must be system, user or agent, found {self.source!r:.40}", "source")

    def error(self, message: str, part: str = "") -> DataError:
        """What is wrong, with the step."""
        return self._row.error(message, f"{self._place}.{part}" if part else self._place)

    @property
    def time(self) -> datetime | None:
        """When it was; a moment without a zone is taken for UTC."""
        stated = self.values.get("timestamp")
        if stated is None:
            return None
        try:
            moment = datetime.fromisoformat(stated)
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (OverflowError, TypeError, ValueError) as error:
            raise self.error(
                f"must be a moment as 2026-01-31T12:00:00Z, found {stated!r:.40}", "timestamp"
            ) from error

    def listed(self, value: Any, part: str) -> list[Mapping[str, Any]]:
        """A list of objects; none where there is nothing."""
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
            raise self.error(f"must be a list of objects, found {value!r:.60}", part)
        return value

    def held(self, name: str) -> Mapping[str, Any]:
        """An object; empty where there is nothing."""
        value = self.values.get(name)
        if not isinstance(value, dict | None):
            raise self.error(f"must be an object, found {value!r:.60}", name)
        return value or {}

    def _call_id(self, value: Any, part: str) -> str | None:
        if value is not None and not isinstance(value, str):
            raise self.error(f"the id of a call must be text, found {value!r:.60}", part)
        return value

    @property
    def tools(self) -> Mapping[str | None, Mapping[str, Any]]:
        """The tools that it asked for, by the ids of their calls."""
        return {
            self._call_id(tool.get("tool_call_id"), "tool_calls"): tool
            for tool in self.listed(self.values.get("tool_calls"), "tool_calls")
        }

    @property
    def asks(self) -> bool:
        """Whether it asked for more than to hand in its answer."""
        names = [tool.get("function_name") for tool in self.tools.values()]
        observed = bool(self.values.get("observation"))
        return any(name not in ANSWERING for name in names) if names else observed

    @property
    def answer(self) -> str:
        """What it handed in by a tool, else its message."""
        for tool in self.tools.values():
            if tool.get("function_name") in ANSWERING:
                handed = query_of(tool.get("arguments"))
                if handed is not None:
                    return handed
        return text_of(self.values.get("message"))

    def searches(self) -> Iterator[Search]:
        """Its results, each with the call of a tool that it is of."""
        tools = self.tools
        results = self.listed(self.held("observation").get("results"), "observation.results")
        by_call: dict[Any, list[Mapping[str, Any]]] = {}
        for number, result in enumerate(results):
            of_call = self._call_id(result.get("source_call_id"), "observation.results")
            by_call.setdefault(of_call or number, []).append(result)
        for number, (call, parts) in enumerate(by_call.items()):
            tool = tools.get(call, {})
            if tool.get("function_name") in ANSWERING:
                continue
            arguments = tool.get("arguments")
            yield Search(
                query=query_of(arguments),
                action=action_of(tool.get("function_name"), arguments),
                passages=tuple(
                    passage
                    for part in parts
                    for passage in passages_of(part.get("content"), **_known(part))
                ),
                joined=number > 0,
                ended=self.time,
            )

    def call(self) -> Call | None:
        """Its calls to a model; ``None``: it made none."""
        calls = self.values.get("llm_call_count")
        metrics = self.held("metrics")
        if calls == 0:
            return None
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens"):
            if not is_count(metrics.get(name)):
                raise self.error(
                    f"must be a whole number from 0, found {metrics[name]!r:.40}", f"metrics.{name}"
                )
        cost = metrics.get("cost_usd")
        if not (is_count(cost) or (isinstance(cost, float) and cost >= 0)):
            raise self.error(f"must be a number from 0, found {cost!r:.40}", "metrics.cost_usd")
        if not is_count(calls):
            raise self.error(f"must be a whole number, found {calls!r:.40}", "llm_call_count")
        return Call(
            text=text_of(self.values.get("message")) or None,
            prompt_tokens=metrics.get("prompt_tokens"),
            cached_tokens=metrics.get("cached_tokens"),
            completion_tokens=metrics.get("completion_tokens"),
            cost_usd=cost,
            tokens=self._tokens(metrics),
            searches=self.asks,
            calls=calls or 1,
            ended=self.time,
        )

    def _tokens(self, metrics: Mapping[str, Any]) -> tuple[Token, ...] | None:
        """Log-probabilities; the format names tokens by number only, so that their texts are empty."""
        logprobs = metrics.get("logprobs")
        if logprobs is None:
            return None
        if not isinstance(logprobs, list) or not all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in logprobs
        ):
            raise self.error(
                f"must be a list of numbers, found {logprobs!r:.60}", "metrics.logprobs"
            )
        try:
            return tuple(Token("", float(one)) for one in logprobs) or None
        except (DataError, OverflowError) as error:
            raise self.error(str(error), "metrics.logprobs") from error


def _known(result: Mapping[str, Any]) -> dict[str, Any]:
    extra = result.get("extra")
    held = extra if isinstance(extra, dict) else {}
    names = ("source_doc_id", "retrieval_score", "title")
    return {name: held[name] for name in names if held.get(name) is not None}


def _record(name: str, asked: _Asked) -> QuestionRecord:
    steps: list[Step] = []
    for step in asked.run:
        call = step.call()
        if call is not None:
            steps.append(call)
        steps += step.searches()
    last = asked.run[-1]
    answer = None if last.asks else last.answer
    return QuestionRecord(
        question=Question(id=name, text="\n".join(asked.texts)),
        rounds=read_run(steps, answer, began=asked.began).rounds,
        stopped_by=None if answer is None else "end",
    )
