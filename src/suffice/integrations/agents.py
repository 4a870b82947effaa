"""Shared code of the agent adapters: versions, rounds of tool calls, and reports of a run."""

from __future__ import annotations

import time
import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from operator import attrgetter
from typing import Any

from suffice._optional import require
from suffice.concurrency import settled
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.live.loop import Asking, Loop, Probe
from suffice.live.reported import draft_of, reported_passages, reported_tokens, reported_usage
from suffice.loops.calls import parse_reply
from suffice.trace.rounds.records import Draft, LoopView, Passage, Usage

# --- versions ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """Name a framework as it was tested: the distribution ``package`` at the version ``tested``."""

    name: str
    package: str
    tested: str

    def point(self, module: str, name: str | None = None) -> Any:
        """Return the module, or the object under the dotted ``name``, that an adapter hooks into."""
        installed = ""
        with suppress(PackageNotFoundError):
            installed = version(self.package)
        tested = f"pip install '{self.package}=={self.tested}' is what was tested"
        try:
            point = require(module, purpose=f"Suffice in {self.name}", package=self.package)
            point = point if name is None else attrgetter(name)(point)
        except (AttributeError, ImportError) as error:
            if not installed:
                raise
            raise UsageError(
                f"{self.package} {installed} has no {'.'.join(filter(None, (module, name)))}, by which "
                f"Suffice stops it; {tested}"
            ) from error
        if installed.split(".")[:2] != self.tested.split(".")[:2]:
            warnings.warn(
                f"Suffice was not run with {self.package} {installed}; {tested}",
                SufficeWarning,
                stacklevel=3,
            )
        return point


DOCUMENTS = ("documents", "results", "passages")
"""Keys under which a tool's output holds its documents."""
Tools = Collection[str] | None  # names of those that retrieve; None: all


# --- rounds --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """Hold a tool call and its result: documents where they are kept, else text; ``text`` is the fallback.

    Give a call that failed the output ``None``: it counts, and what was said of it is no passage.
    """

    tool: str
    output: Any
    text: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


def round_of_tools(
    results: Sequence[ToolResult], tools: Collection[str] | None = None
) -> dict[str, Any] | None:
    """Return one step's calls as arguments of ``loop.observe``; ``None`` if none of them retrieves."""
    kept = [result for result in results if tools is None or result.tool in tools]
    if not kept:
        return None
    asked = {
        id(result.arguments): result.arguments for result in kept
    }  # a call may have two results
    queries = [query for arguments in asked.values() if (query := query_of(arguments))]
    return {
        "passages": tuple(
            passage for result in kept for passage in tool_passages(result.output, result.text)
        ),
        "query": "\n".join(queries) or None,
        "action": ", ".join(dict.fromkeys(result.tool for result in kept)),
    }


def query_of(arguments: Mapping[str, Any]) -> str:
    """Return the argument ``query``, else the texts among the arguments."""
    for name in ("query", "question", "input"):
        if isinstance(arguments.get(name), str):
            return str(arguments[name])
    return " ".join(value for value in arguments.values() if isinstance(value, str))


def tool_passages(output: Any, text: str | None = None) -> tuple[Passage, ...]:
    """Read a tool's output as passages: its documents, else its text as one passage; of an error none."""
    if output is None or (isinstance(output, str) and not output.strip()):
        return ()
    if isinstance(output, Mapping):
        if output.keys() == {"error"} or output.get("status") == "error" or output.get("isError"):
            return ()  # as ADK and MCP tell a failure
        inner = next((output[name] for name in DOCUMENTS if name in output), None)
        output = [output] if inner is None else inner
    if isinstance(output, str | bytes) or not isinstance(output, Iterable):
        output = [output]
    documents = list(output)
    try:
        return reported_passages(documents)
    except DataError:
        texts = [str(document) for document in documents] if text is None else [text]
        return reported_passages([held for held in texts if held.strip()])


# --- what is said --------------------------------------------------------------------------------
def outcome(loop: Loop) -> dict[str, Any]:
    """Return a run's result as JSON for its metadata: the question, how it ended and why."""
    return {
        "question_id": loop.question_id,
        "rounds": len(loop.rounds),
        "would_stop": loop.would_stop,
        "stopped_by": loop.stopped_by,
        "dropped_calls": loop.dropped_calls,
        "reason": loop.reason,
        "policy_hash": loop.policy_hash,
    }


# --- runs ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """Hold a model's reply: ``raw`` as the framework has it, and the fields that ``observe`` reads."""

    raw: Any
    text: str
    usage: Any = None
    logprobs: Any = None
    answer_starts: int | None = None
    calls: int = 0  # of tools
    final: bool = False  # its text answers, whatever it calls: a tool of the output gives it

    def costs(self, seconds: float | None = None) -> dict[str, Any]:
        """Return the arguments of ``answered`` besides the text."""
        usage, tokens = reported_usage({} if self.usage is None else self.usage), None
        with suppress(DataError):
            tokens = reported_tokens(self.logprobs)
        usage = usage if seconds is None else replace(usage, latency_s=seconds)
        return {"usage": usage, "tokens": tokens, "answer_starts": self.answer_starts}


class AgentRun:
    """Hold an agent's run: its loop, and the model's replies since the last round."""

    def __init__(
        self, loop: Loop, *, tools: Tools, probe: Asking, in_loop: bool = False, write: Any = None
    ) -> None:
        if isinstance(probe, str) and not in_loop:
            raise UsageError(f"found probe={probe!r}; here it is True, False or a function")
        self.loop: Loop = loop
        self.in_loop: bool = in_loop
        # its write(raw, text) puts the text in a raw reply's place, None: a new one, and keeps a final call
        self._write: Callable[[Any, str], Any] = write or (lambda _, text: text)
        self._tools, self._probe = tools, probe
        self._usages: list[Usage] = []
        self._drafts: dict[int, Any] = {}
        self._costs: dict[str, Any] = {}
        self.reply: Reply | None = None
        self.said: str = ""  # the model's last text
        self.given: Any = None
        """The reply that is a stopped run's answer, as the framework has it."""

    @staticmethod
    def settings(tools: Tools, probe: Asking) -> dict[str, Any]:
        """Return the settings of an adapter that can also ask at the end of the conversation."""
        if isinstance(probe, str) and probe != "in-loop":
            raise UsageError(f"found probe={probe!r}; it is 'in-loop', True, False or a function")
        return {"tools": tools, "probe": probe, "in_loop": probe == "in-loop"}

    async def astep(
        self,
        results: Sequence[ToolResult],
        ask: Callable[[], Reply | Awaitable[Reply]],
        documents: Any = None,
    ) -> Any:
        """Take in the calls of a step; the model's raw reply where a draft is the answer, else ``None``.

        ``ask`` requests that reply, without tools. ``documents`` stand for what the calls gave.
        """
        held = self._round(results, documents)
        if held is None:
            return None
        await self.loop.aobserve(**held, probe=self._asking(ask))
        if not self.loop.done or self.loop.rounds[-1].answer is None:
            return None
        self.given = self.best
        self.reply = self.reply if self.given is None else None
        return self.given

    async def turn(self, results: Sequence[ToolResult], ask: Callable[[str], Any]) -> Any:
        """Take in a step's calls and return the model's next raw reply, the last one after a stop.

        ``ask`` requests one: to go ``on``; for a ``draft``, or the ``last``, that is to call no tool.
        """
        await self.astep(results, partial(ask, "draft"))
        if self.loop.done:
            return await self.finish(partial(ask, "last"))
        began = time.perf_counter()
        reply = await settled(ask("on"))
        self.replied(reply, time.perf_counter() - began)
        return reply.raw

    def take(self, results: Sequence[ToolResult], answer: str | None = None) -> bool:
        """Take in the calls of a last step; whether there was one."""
        held = None if self.loop.done else self._round(results)
        if held is not None:
            self.loop.observe(**held, answer=answer)
        return held is not None

    def replied(self, reply: Reply, seconds: float | None = None) -> None:
        """Take in a reply of the model, which may be the last."""
        self.reply, self._costs = reply, reply.costs(seconds)
        self.said = reply.text if reply.text.strip() else self.said
        self._usages.append(self._costs["usage"])

    async def finish(self, ask: Callable[[], Reply | Awaitable[Reply]]) -> Any:
        """Return the raw reply that ends a stopped run; ``ask`` requests it, unless one is at hand.

        Calls of tools are dropped. A request that fails is replaced by an earlier answer.
        """
        if self.given is None:
            began = time.perf_counter()
            try:
                reply = self._fit(await settled(ask()))
            except Exception as error:
                if self.loop.answer is None or not self.loop.end(error):
                    raise
                reply = self._fit(Reply(raw=None, text=""))
            else:
                self.replied(reply, time.perf_counter() - began)
                with suppress(UsageError):  # it was ended meanwhile
                    self.answered()
            self.given, self.reply = reply.raw, None
        return self.given

    def _fit(self, reply: Reply) -> Reply:
        """Return a reply after the stop without its calls, and with the best text that is known.

        If it calls something, that is the answer of the watch so far, an earlier one, the model's last text.
        """
        own = bool(reply.text.strip()) and (reply.final or not reply.calls)
        if reply.calls:
            self.loop.dropped(reply.calls)
        elif own:
            return reply
        text, tokens, raw, rounds = reply.text, reply.logprobs, None, self.loop.rounds
        if not own:
            text, tokens = text if text.strip() else self.said, None
            for place in (*range(1, len(rounds) + 1), self.loop.answer_round or 0):
                if place and rounds[place - 1].answer_text.strip():
                    text, raw = rounds[place - 1].answer_text, self._drafts.get(place)
        raw = self._write(reply.raw, text) if raw is None else raw
        return replace(reply, raw=raw, text=text, logprobs=tokens)

    def answered(
        self, text: str | None = None, *, unsearched: bool = False, **changed: Any
    ) -> None:
        """End the question with the last reply as its answer; ``text`` replaces it.

        Without a round nothing is said, or it is a round of its own where ``unsearched``.
        """
        held = self.reply
        answer = held.text if text is None and held is not None else text
        costs = {**({} if held is None else self._costs), **changed}
        if answer is None:
            return
        if self.in_loop and self.loop.rounds and self.loop.rounds[-1].answer is not None:
            last = self.loop.rounds[-1]  # its words compare with those of the rounds before
            answer, costs = last.answer_text, {**costs, "tokens": last.tokens}
            costs |= {"response": last.response, "answer_starts": None}
        if self.loop.rounds:
            self._drafts[len(self.loop.rounds)] = None if held is None else held.raw
            self.loop.answered(answer, **costs)
        elif unsearched:
            self.loop.observe(passages=(), answer=answer, **costs)

    @property
    def best(self) -> Any:
        """Return the raw reply whose answer the watch returns; ``None`` if there is none."""
        return self._drafts.get(self.loop.answer_round or 0)

    def _round(self, results: Sequence[ToolResult], documents: Any = None) -> dict[str, Any] | None:
        held = round_of_tools(results, self._tools)
        if held is None:
            return None
        if documents is not None:
            held["passages"] = tool_passages(documents)
        usages, self._usages = self._usages, []
        return {**held, "usage": usages}

    def _asking(self, ask: Callable[[], Reply | Awaitable[Reply]]) -> Probe | None:
        if callable(self._probe):
            return self._probe

        async def draft(view: LoopView) -> Draft:
            began = time.perf_counter()
            reply = await settled(ask())
            if self.loop.done and not self.in_loop:
                reply = self._fit(reply)
            costs = reply.costs(time.perf_counter() - began)
            if self.in_loop:
                parsed = parse_reply(reply.text)
                made = draft_of(parsed.answer, {**costs, "response": reply.text})
                return replace(made, parse_failure=parsed.failure)
            if reply.calls and not self.loop.done:  # it answers nothing, or also calls
                raw = self._write(reply.raw, reply.text) if reply.final else None
                reply = replace(reply, raw=raw)
            self._drafts[len(view.rounds)] = reply.raw
            return draft_of(reply.text, costs)

        return draft if self._probe else None
