"""Spans that frameworks make with OpenTelemetry's SDK are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import suffice

pytest.importorskip("pydantic_ai", reason="runs in its own environment: make test-integrations")
pytest.importorskip("opentelemetry.sdk.trace")

from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


def written(exporter: InMemorySpanExporter, folder: Path) -> suffice.QuestionRecord:
    """What is read of the spans that a framework made."""
    file = folder / "spans.json"
    file.write_text(json.dumps(MessageToDict(encode_spans(exporter.get_finished_spans()))))
    suffice.traces.import_(file, folder / "out", format="otlp")
    (record,) = suffice.read(folder / "out").records()
    return record


def provider_to(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def test_an_agent_of_pydantic_ai_that_searches_twice_at_once(tmp_path: Path) -> None:
    """By the GenAI conventions, as its own instrumentation writes them."""
    from pydantic_ai import Agent
    from pydantic_ai.capabilities import Instrumentation
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    replies = iter(
        [
            ModelResponse(parts=[ToolCallPart("search", {"query": "capital"})]),
            ModelResponse(
                parts=[ToolCallPart("search", {"query": name}) for name in ("Norway", "Oslo")]
            ),
            ModelResponse(parts=[TextPart("Oslo")]),
        ]
    )
    exporter = InMemorySpanExporter()
    settings = InstrumentationSettings(tracer_provider=provider_to(exporter))
    agent: Any = Agent(
        FunctionModel(lambda *_: next(replies)), capabilities=[Instrumentation(settings)]
    )

    @agent.tool_plain  # type: ignore[untyped-decorator]
    def search(query: str) -> list[dict[str, Any]]:
        return [{"id": query, "text": f"About {query}.", "score": 0.5}]

    agent.run_sync("Capital of Norway?")
    record = written(exporter, tmp_path)
    first, second = record.rounds
    assert record.question.text == "Capital of Norway?"
    assert (first.answer, second.answer, record.stopped_by) == (None, "Oslo", "end")
    assert {passage.id for passage in second.passages or ()} == {"Norway", "Oslo"}
    assert (first.usage.llm_calls, second.usage.llm_calls, second.usage.retrievals) == (1, 2, 2)
    assert first.usage.prompt_tokens


def test_an_agent_of_langchain(tmp_path: Path) -> None:
    """By OpenInference: chains within a chain, messages in LangChain's own forms."""
    from langchain.agents import create_agent
    from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from openinference.instrumentation.langchain import LangChainInstrumentor

    class Model(GenericFakeChatModel):  # type: ignore[misc]
        def bind_tools(self, *_: Any, **__: Any) -> Any:
            return self

    @tool  # type: ignore[untyped-decorator]
    def search(query: str) -> str:
        """Search."""
        return f"About {query}."

    def asking(number: int, query: str) -> Any:
        call = {"name": "search", "args": {"query": query}, "id": str(number)}
        usage = {"input_tokens": 10 * number, "output_tokens": 2, "total_tokens": 0}
        return AIMessage("", tool_calls=[call], usage_metadata=usage)

    exporter = InMemorySpanExporter()
    LangChainInstrumentor().instrument(tracer_provider=provider_to(exporter))
    replies = iter([asking(1, "capital"), asking(2, "Norway"), AIMessage("Oslo")])
    agent = create_agent(Model(messages=replies), [search])
    agent.invoke({"messages": [{"role": "user", "content": "Capital of Norway?"}]})
    LangChainInstrumentor().uninstrument()
    record = written(exporter, tmp_path)
    assert record.question.text == "Capital of Norway?"
    assert [round_.answer for round_ in record.rounds] == [None, "Oslo"]
    assert [round_.query for round_ in record.rounds] == ["capital", "Norway"]
    found = [passage.text for round_ in record.rounds for passage in round_.passages or ()]
    assert found == ["About capital.", "About Norway."]
    assert [round_.usage.prompt_tokens for round_ in record.rounds] == [10, 20]
    assert [round_.usage.llm_calls for round_ in record.rounds] == [1, 2]
