"""LangChain retrievers, both ways (``langchain-core``), and its agents (``langchain``)."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any, Self
from weakref import WeakKeyDictionary, WeakValueDictionary

from suffice._optional import require
from suffice.errors import UsageError
from suffice.integrations.agents import Framework, ToolResult, outcome, readable, round_of_tools
from suffice.integrations.documents import AdaptedRetriever, AdapterSettings, Found
from suffice.integrations.langgraph import GraphLoops, run_of
from suffice.live.loop import Loop, Probe
from suffice.live.reported import reported_tokens, reported_usage
from suffice.live.watch import Watch
from suffice.protocols import Retriever
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Draft, LoopView, Token, Usage

_SIZE_FIELDS = ("k", "top_k", "top_k_results")


class LangChainRetriever(AdaptedRetriever):
    """A LangChain ``BaseRetriever`` as a :class:`suffice.protocols.Retriever`.

    LangChain's ``invoke`` takes no number of documents. It is set, on a copy, where the retriever keeps
    it: ``search_kwargs["k"]`` (vector stores), or a field ``k``, ``top_k`` or ``top_k_results``; or it
    is passed on to a ``_get_relevant_documents`` that takes ``k``. Any other retriever keeps its own
    number: the result is cut to ``k``, and a warning is given once when it is shorter.

    LangChain's documents carry no score, so scores are 1/rank unless ``score_key`` names one.

    Parameters
    ----------
    retriever
        A ``langchain_core.retrievers.BaseRetriever``; of a vector store, ``store.as_retriever()``.
    settings
        See :class:`suffice.integrations.documents.AdapterSettings`.
    size_field
        The retriever's field that holds its number of documents, where it has another name.
    """

    def __init__(
        self,
        retriever: Any,
        *,
        settings: AdapterSettings | None = None,
        size_field: str | None = None,
    ) -> None:
        base = _langchain("retrievers").BaseRetriever
        if not isinstance(retriever, base):
            raise UsageError(
                f"wanted a LangChain BaseRetriever, found {type(retriever).__name__}; of a vector store "
                "give store.as_retriever()"
            )
        fields = type(retriever).model_fields
        if size_field is not None and size_field not in fields:
            raise UsageError(
                f"{type(retriever).__name__} has no field {size_field!r}; it has: {', '.join(fields)}"
            )
        super().__init__(
            f"LangChain's {type(retriever).__name__}",
            settings,
            advice="Raise its own number of documents, or name the field that holds it with size_field=.",
        )
        self._retriever = retriever
        self._size_field = size_field or next(
            (field for field in _SIZE_FIELDS if field in fields), None
        )
        self._by_search_kwargs = size_field is None and "search_kwargs" in fields
        self._by_argument = "k" in inspect.signature(retriever._get_relevant_documents).parameters  # noqa: SLF001

    def _search(self, query: str, k: int) -> tuple[Sequence[Any], bool]:
        retriever = self._retriever
        if self._by_search_kwargs:
            changed = {"search_kwargs": {**retriever.search_kwargs, "k": k}}
            return retriever.model_copy(update=changed).invoke(query), True
        if self._size_field is not None:
            return retriever.model_copy(update={self._size_field: k}).invoke(query), True
        arguments = {"k": k} if self._by_argument else {}
        return retriever.invoke(query, **arguments), self._by_argument

    def _found(self, document: Any) -> Found:
        return Found(text=document.page_content, id=document.id, metadata=document.metadata)


def as_langchain_retriever(retriever: Retriever, *, k: int = 4) -> Any:
    """A retriever of this library as a LangChain ``BaseRetriever`` with a field ``k``.

    Title and score stand in each document's metadata, under ``title`` and ``score``.
    """
    check_k(k)
    document = _langchain("documents").Document
    base: Any = _langchain("retrievers").BaseRetriever

    class SufficeRetriever(base):  # type: ignore[misc]
        source: Any
        k: int

        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            del run_manager  # nothing below reports to it
            return [
                document(
                    page_content=passage.text or "",
                    id=passage.id,
                    metadata={"title": passage.title, "score": passage.score},
                )
                for passage in self.source.retrieve(query, self.k)
            ]

    # annotations are text here; pydantic resolves them where the class is made
    return SufficeRetriever(source=retriever, k=k)


def _langchain(module: str) -> ModuleType:
    return require(
        f"langchain_core.{module}", package="langchain-core", purpose="A LangChain retriever"
    )


# --- agents --------------------------------------------------------------------------------------
_AGENTS = Framework(name="LangChain's agents", package="langchain", tested="1.4.7")
_KEY = "suffice"


@dataclass(slots=True)
class _Calls:
    """Of a loop: what its next round has cost, the message taken in last, a reply that a probe had."""

    usage: list[Usage] = field(default_factory=list)
    taken: str | None = None
    reply: Any = None


class SufficeMiddleware:
    """Watches the runs of ``create_agent``, LangGraph's agent, and of deepagents.

    A round is a message that calls tools, with their results. When the watch ends a loop, the next call of
    the model is made without tools: it answers from what it has. Every message of the model says, under
    ``response_metadata["suffice"]``, of which question it is, who stopped it and why.

    Parameters
    ----------
    watch
        Decides, records. One middleware serves any number of runs at once.
    tools
        Names of the tools that retrieve; ``None``: all do.
    probe
        ``True``: an answer is asked for after a round where one is needed, by a call of the model without
        tools on the same messages; at a stop that answer is the run's. Or what ``loop.observe`` takes.
    without_tools
        Makes the request that the model answers without searching; ``None``: one without tools. Of a provider
        that refuses results of tools then: ``lambda request: request.override(tool_choice="none")``.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Of a class that derives from LangChain's too."""
        base = _AGENTS.point("langchain.agents.middleware", "AgentMiddleware")
        made = cls if issubclass(cls, base) else _joined(cls, base)  # type: ignore[arg-type]
        return object.__new__(made)

    def __init__(
        self,
        watch: Watch,
        *,
        tools: Collection[str] | None = None,
        probe: bool | Probe = False,
        without_tools: Callable[[Any], Any] | None = None,
    ) -> None:
        self._tools, self._probe = tools, probe
        self._without_tools = without_tools or _without_tools
        self._loops = GraphLoops(watch)
        self._calls: WeakKeyDictionary[Loop, _Calls] = WeakKeyDictionary()
        self._begun: WeakValueDictionary[Hashable, Loop] = WeakValueDictionary()

    # --- what LangChain calls ---------------------------------------------------------------------
    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Take in the round that just ended, and have the model go on or answer."""
        loop = self._loop(request)
        step = self._step(loop, request.state["messages"])
        if step is not None:
            loop.observe(**step, probe=self._probe_with(loop, request, handler))
        reply = self._reply(loop)
        return _stamped(loop, handler(self._asked(loop, request)) if reply is None else reply)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """As :meth:`wrap_model_call`."""
        loop = self._loop(request)
        step = self._step(loop, request.state["messages"])
        if step is not None:
            await loop.aobserve(**step, probe=self._aprobe_with(loop, request, handler))
        reply = self._reply(loop)
        return _stamped(loop, await handler(self._asked(loop, request)) if reply is None else reply)

    def after_agent(self, state: Any, runtime: Any) -> Any:
        """The run's end, and its answer where the watch chooses that of an earlier round."""
        loop = self._answered(state, runtime)
        if loop is None:
            return None
        loop.end()
        return _chosen(loop, state)

    async def aafter_agent(self, state: Any, runtime: Any) -> Any:
        """As :meth:`after_agent`."""
        loop = self._answered(state, runtime)
        if loop is None:
            return None
        await loop.aend()
        return _chosen(loop, state)

    # --- which loop -------------------------------------------------------------------------------
    def _loop(self, request: Any) -> Loop:
        """That of the message which called tools last, or a new one: the state holds no loop, but its id."""
        self._loops.sweep()
        messages, runtime = request.state["messages"], request.runtime
        asked = next(
            (place for place in reversed(range(len(messages))) if _asks(messages[place])), -1
        )
        question = messages[asked] if asked >= 0 else None
        last = _last_call(messages)
        if last is not None and (name := _question_id(messages[last])) is not None:
            loop = self._under_way(name, runtime)
            if asked < last:
                return loop or self._resumed(messages[max(asked, 0) :], runtime, name)
            if loop is not None and not _open_calls(messages[last:]):
                return loop  # a tool added a message of the user's
        begun = (getattr(question, "id", None), id(run_of(runtime)))
        loop = self._under_way(begun, runtime)
        if loop is None:
            loop = self._loops.begin("" if question is None else str(question.text), runtime)
            self._begun[begun] = self._begun[loop.question_id] = loop
        return loop

    def _under_way(self, name: Hashable, runtime: Any) -> Loop | None:
        loop = self._begun.get(name)
        if loop is None or self._loops.get(loop.question_id, runtime) is not loop:
            return None
        return loop

    def _resumed(self, messages: Sequence[Any], runtime: Any, name: str) -> Loop:
        """A loop whose process is gone: its rounds are taken in again, from the question on."""
        loop = self._loops.begin(str(messages[0].text), runtime)
        self._begun[name] = self._begun[loop.question_id] = loop
        places = [
            place
            for place, message in enumerate(messages)
            if message.type == "ai" and message.tool_calls
        ]
        for place, end in pairwise(places):
            step = self._step(loop, messages[place:end])
            if step is not None:
                loop.observe(**step)
        return loop

    # --- its rounds -------------------------------------------------------------------------------
    def _step(self, loop: Loop, messages: Sequence[Any]) -> dict[str, Any] | None:
        """What ``observe`` takes of the last message's calls, once; ``None``: nothing is to be observed."""
        place = _last_call(messages)
        calls = self._calls.setdefault(loop, _Calls())
        if place is None or calls.taken == messages[place].id:
            return None
        message = messages[place]
        if _question_id(message) is None:
            return None
        calls.taken = message.id
        calls.usage.append(_usage(message))
        called = {call["id"]: call for call in message.tool_calls}
        results = [
            ToolResult(
                tool=called[result.tool_call_id]["name"],
                arguments=called[result.tool_call_id]["args"],
                output=None if result.status == "error" else _output(result),
                text="" if result.status == "error" else result.text,
            )
            for result in messages[place + 1 :]
            if result.type == "tool" and result.tool_call_id in called
        ]
        step = round_of_tools(results, self._tools)
        if step is None:
            return None
        usage, calls.usage = calls.usage, []
        return {**step, "usage": usage}

    def _asked(self, loop: Loop, request: Any) -> Any:
        return self._without_tools(request) if loop.done else request

    def _reply(self, loop: Loop) -> Any:
        """What a probe at the stop was answered, which is what the model would be asked for again."""
        calls = self._calls[loop]
        reply, calls.reply = calls.reply, None
        return reply if loop.done else None

    def _probe_with(self, loop: Loop, request: Any, handler: Callable[[Any], Any]) -> Probe | None:
        if self._probe is not True:
            return self._probe or None

        def ask(_: LoopView) -> Draft:
            return self._drafted(loop, handler(_unseen(self._without_tools(request))))

        return ask

    def _aprobe_with(
        self, loop: Loop, request: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Probe | None:
        if self._probe is not True:
            return self._probe or None

        async def ask(_: LoopView) -> Draft:
            return self._drafted(loop, await handler(_unseen(self._without_tools(request))))

        return ask

    def _drafted(self, loop: Loop, reply: Any) -> Draft:
        self._calls[loop].reply = reply
        message = reply.result[-1]
        answer = _written(reply.structured_response, message)
        return Draft(answer, tokens=_tokens(message), usage=_usage(message))

    def _answered(self, state: Any, runtime: Any) -> Loop | None:
        """The loop of a run that came to its end, with its answer."""
        messages = state["messages"]
        own = next(
            (place for place in reversed(range(len(messages))) if _question_id(messages[place])),
            None,
        )
        loop = None if own is None else self._under_way(_question_id(messages[own]), runtime)
        if own is None or loop is None:
            return None
        self._loops.pop(loop.question_id)
        message, structured = messages[own], state.get("structured_response")
        if structured is None:  # a tool may end a run with what it gives
            step = self._step(loop, messages)
            if step is not None:
                loop.observe(**step)
        if loop.rounds and (not message.tool_calls or messages[-1].type == "tool"):
            last = messages[-1] if message.tool_calls else message
            answer = _written(structured, last)
            loop.answered(answer, logprobs=_tokens(message), usage=_usage(message))
        return loop


@cache
def _joined(cls: type, base: type) -> type:
    """The middleware as LangChain wants it: of its base class, which is not imported before."""
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _without_tools(request: Any) -> Any:
    return request.override(tools=[], tool_choice=None)


def _unseen(request: Any) -> Any:
    """A request whose reply does not appear in the stream of the run."""
    model = request.model
    if not hasattr(model, "tags"):
        return request
    tags = [*(model.tags or ()), "nostream"]
    return request.override(model=model.model_copy(update={"tags": tags}))


def _stamped(loop: Loop, reply: Any) -> Any:
    """The reply, whose message says what became of the loop."""
    message = reply.result[-1] if reply.result[-1].type == "ai" else reply.result[0]
    said = outcome(loop)
    last = not message.tool_calls or reply.structured_response is not None
    if last and said["stopped_by"] is None:
        said["stopped_by"] = "end"
    message.response_metadata[_KEY] = said
    return reply


def _chosen(loop: Loop, state: Any) -> dict[str, Any] | None:
    """The state's change where the watch ended the loop and returns the answer of an earlier round."""
    message = state["messages"][-1]
    earlier = loop.answer_round is not None and loop.answer_round < len(loop.rounds)
    if not earlier or loop.stopped_by not in {"policy", "budget"} or message.type != "ai":
        return None
    said = {**message.response_metadata, _KEY: {**outcome(loop), "answer_round": loop.answer_round}}
    changed = {"content": loop.answer, "response_metadata": said}
    return {"messages": [message.model_copy(update=changed)]}


def _last_call(messages: Sequence[Any]) -> int | None:
    """The model's last message, if it calls tools."""
    last = next((n for n in reversed(range(len(messages))) if messages[n].type == "ai"), None)
    return last if last is not None and messages[last].tool_calls else None


def _asks(message: Any) -> bool:
    """Whether it is a question, and no summary of the messages before."""
    return message.type == "human" and "lc_source" not in message.additional_kwargs


def _open_calls(messages: Sequence[Any]) -> bool:
    """Whether the first message's calls lack a result: the run failed in its tools."""
    results = {message.tool_call_id for message in messages if message.type == "tool"}
    return any(call["id"] not in results for call in messages[0].tool_calls)


def _question_id(message: Any) -> str | None:
    said = message.response_metadata.get(_KEY) if message.type == "ai" else None
    return None if said is None else said["question_id"]


def _output(result: Any) -> Any:
    """Its documents as mappings, which are read faster than pydantic's objects, else its content."""
    held = result.content if result.artifact is None else result.artifact
    if not isinstance(held, list | tuple):
        return held
    return [vars(part) if hasattr(part, "page_content") else part for part in held]


def _usage(message: Any) -> Usage:
    reported = getattr(message, "usage_metadata", None)
    usage = readable(reported_usage, reported) if reported else None
    return usage or Usage(llm_calls=1)


def _tokens(message: Any) -> tuple[Token, ...] | None:
    return readable(reported_tokens, message.response_metadata.get("logprobs"))


def _written(structured: Any, message: Any) -> str:
    """The answer: text, or JSON where the agent has a response format."""
    if structured is None:
        return str(message.text)
    if hasattr(structured, "model_dump_json"):
        return str(structured.model_dump_json())
    return json.dumps(structured, default=lambda part: getattr(part, "__dict__", str(part)))
