"""Spans that the real OpenTelemetry SDK encodes, by both conventions, are read as they were meant."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import suffice

pytest.importorskip("opentelemetry.sdk.trace")
pytest.importorskip("openinference.semconv.trace")

from google.protobuf.json_format import MessageToDict, ParseDict
from openinference.semconv.trace import (
    DocumentAttributes,
    OpenInferenceSpanKindValues,
    SpanAttributes,
)
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
    InMemorySpanExporter,
)
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

SAMPLES = Path(__file__).parents[1] / "unit/datasets/recordings"
SECOND = 1_000_000_000
START = 1_769_860_800 * SECOND


class Numbered(IdGenerator):  # type: ignore[misc]
    def __init__(self) -> None:
        self._ids = count(1)

    def generate_span_id(self) -> int:
        return next(self._ids)

    def generate_trace_id(self) -> int:
        return next(self._ids)


class Recording:
    """Spans of a tracer, each with its second of start and end."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(
            resource=Resource.get_empty(), id_generator=Numbered(), shutdown_on_exit=False
        )
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._tracer = provider.get_tracer("agent")

    def span(
        self, name: str, start: int, end: int, attributes: dict[str, Any], *inner: Any
    ) -> None:
        span = self._tracer.start_span(
            name, start_time=START + start * SECOND, attributes=attributes
        )
        with trace.use_span(span):
            for make in inner:
                self.span(*make)
        span.end(START + end * SECOND)

    def document(self) -> dict[str, Any]:
        return dict(MessageToDict(encode_spans(self._exporter.get_finished_spans())))


def message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def by_gen_ai() -> dict[str, Any]:
    """An agent that asks for two searches, one through a tool, and answers."""

    def chat(start: int, reason: str, text: str = "") -> tuple[Any, ...]:
        said = {gen_ai.GEN_AI_OUTPUT_MESSAGES: message("assistant", text)} if text else {}
        amounts = {
            gen_ai.GEN_AI_USAGE_INPUT_TOKENS: 100 * start,
            gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: 10,
            gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: 50,
        }
        return (
            "chat m",
            start,
            start + 1,
            {
                gen_ai.GEN_AI_OPERATION_NAME: "chat",
                gen_ai.GEN_AI_RESPONSE_FINISH_REASONS: [reason],
                **amounts,
                **said,
            },
        )

    def retrieval(start: int, query: str, *documents: dict[str, Any]) -> tuple[Any, ...]:
        return (
            "retrieval wiki",
            start,
            start + 1,
            {
                gen_ai.GEN_AI_OPERATION_NAME: "retrieval",
                gen_ai.GEN_AI_RETRIEVAL_QUERY_TEXT: query,
                gen_ai.GEN_AI_RETRIEVAL_DOCUMENTS: json.dumps(documents),
            },
        )

    first = retrieval(2, "observatory founder", {"id": "d1", "score": 0.5, "content": "Built."})
    tool = {
        gen_ai.GEN_AI_OPERATION_NAME: "execute_tool",
        gen_ai.GEN_AI_TOOL_NAME: "search",
        gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS: json.dumps({"query": "founder of the observatory"}),
    }
    second = retrieval(
        5, "Oslo observatory", {"id": "d1", "score": 0.25}, {"id": "d2", "score": 0.125}
    )
    recording = Recording()
    recording.span(
        "invoke_agent looker",
        0,
        8,
        {
            gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent",
            gen_ai.GEN_AI_INPUT_MESSAGES: message("user", "Who founded the observatory?"),
            gen_ai.GEN_AI_OUTPUT_MESSAGES: message("assistant", "Ada"),
        },
        chat(1, "tool_calls"),
        ("execute_tool search", 2, 3, tool, first),
        chat(4, "tool_calls"),
        second,
        ("embeddings e", 5, 6, {gen_ai.GEN_AI_OPERATION_NAME: "embeddings"}),
        chat(6, "stop", "Ada"),
    )
    return recording.document()


def by_openinference() -> dict[str, Any]:
    """A chain that retrieves, drafts, retrieves and answers."""
    kind = SpanAttributes.OPENINFERENCE_SPAN_KIND

    def retriever(start: int, query: str, *names: str) -> tuple[Any, ...]:
        held = {
            f"{SpanAttributes.RETRIEVAL_DOCUMENTS}.{number}.{part}": value
            for number, name in enumerate(names)
            for part, value in (
                (DocumentAttributes.DOCUMENT_ID, name),
                (DocumentAttributes.DOCUMENT_CONTENT, f"Text of {name}."),
                (DocumentAttributes.DOCUMENT_SCORE, 1 / (number + 2)),
                (DocumentAttributes.DOCUMENT_METADATA, json.dumps({"title": name.upper()})),
            )
        }
        attributes = {
            kind: OpenInferenceSpanKindValues.RETRIEVER.value,
            SpanAttributes.INPUT_VALUE: query,
            **held,
        }
        return ("retrieve", start, start + 1, attributes)

    def llm(start: int, text: str) -> tuple[Any, ...]:
        attributes = {
            kind: OpenInferenceSpanKindValues.LLM.value,
            SpanAttributes.LLM_TOKEN_COUNT_PROMPT: 100 * start,
            SpanAttributes.LLM_TOKEN_COUNT_PROMPT_DETAILS_CACHE_READ: 20,
            SpanAttributes.LLM_TOKEN_COUNT_COMPLETION: 10,
            SpanAttributes.LLM_COST_TOTAL: 0.25,
            f"{SpanAttributes.LLM_OUTPUT_MESSAGES}.0.message.role": "assistant",
            f"{SpanAttributes.LLM_OUTPUT_MESSAGES}.0.message.content": text,
        }
        return ("llm", start, start + 1, attributes)

    recording = Recording()
    recording.span(
        "chain",
        0,
        6,
        {
            kind: OpenInferenceSpanKindValues.CHAIN.value,
            SpanAttributes.INPUT_VALUE: json.dumps({"question": "Who founded it?"}),
            SpanAttributes.OUTPUT_VALUE: "Ada",
        },
        retriever(1, "Who founded it?", "d1", "d2"),
        llm(2, "I need more."),
        retriever(3, "founder", "d2", "d3"),
        llm(4, "Ada"),
    )
    return recording.document()


@pytest.mark.parametrize("name", ["gen_ai", "openinference"])
def test_spans_are_those_that_the_everyday_tests_read(name: str) -> None:
    document = by_gen_ai() if name == "gen_ai" else by_openinference()
    assert document == json.loads((SAMPLES / f"otlp_{name}.json").read_text())


def test_spans_become_a_record(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    file.write_text("".join(f"{json.dumps(part)}\n" for part in (by_gen_ai(), by_gen_ai())))
    suffice.import_traces(file, tmp_path / "out", format="otlp")
    (record,) = suffice.read_traces(tmp_path / "out").records()
    assert [round_.answer for round_ in record.rounds] == [None, "Ada"]
    assert record.question.text == "Who founded the observatory?"


def test_an_export_is_what_a_collector_takes(tmp_path: Path) -> None:
    """Every attribute has the type that OpenTelemetry's own message wants."""
    round_ = suffice.Round(
        answer="Ada",
        query="founder",
        passages=(suffice.Passage(id="d1", text="Ada did."),),
        usage=suffice.Usage(llm_calls=1, prompt_tokens=10),
    )
    question = suffice.Question(id="q", text="Who?")
    record = suffice.QuestionRecord(question=question, rounds=(round_,))
    suffice.write_traces([record], tmp_path / "in")
    suffice.export_traces(tmp_path / "in", tmp_path / "out.otlp", format="otlp")
    document = json.loads((tmp_path / "out.otlp").read_text())
    request = ParseDict(document, ExportTraceServiceRequest())
    (search, chat, agent) = request.resource_spans[0].scope_spans[0].spans
    assert [span.name for span in (search, chat, agent)] == ["retrieval", "chat", "invoke_agent"]
    assert search.parent_span_id == agent.span_id
    held = {pair.key: pair.value for pair in chat.attributes}
    assert held[gen_ai.GEN_AI_USAGE_INPUT_TOKENS].int_value == 10
    known = {value for name, value in vars(gen_ai).items() if name.startswith("GEN_AI_")}
    used = {pair.key for span in (search, chat, agent) for pair in span.attributes}
    assert {name for name in used if name.startswith("gen_ai.")} <= known


def written(exporter: InMemorySpanExporter, folder: Path) -> suffice.QuestionRecord:
    """What is read of the spans that a framework made."""
    file = folder / "spans.json"
    file.write_text(json.dumps(MessageToDict(encode_spans(exporter.get_finished_spans()))))
    suffice.import_traces(file, folder / "out", format="otlp")
    (record,) = suffice.read_traces(folder / "out").records()
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
