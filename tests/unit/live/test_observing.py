"""Spans of watched loops: what they say, and that they break and slow nothing."""

from __future__ import annotations

import socket
import sys
import time
from typing import Any

import pytest

import suffice
from suffice.errors import MissingExtra, UsageError


def walk(provider: Any, **settings: Any) -> Any:
    watch = suffice.Watch("answer_stable", spans=provider, **settings)
    with watch.question("Who founded it?") as loop:
        for answer in ("Bo", "Ada", "Ada", "Ada"):
            if not loop.done:
                passages = [f"{len(loop.rounds)}{'x' * 9_000}"]
                loop.observe(answer=answer, query="founder", passages=passages, score=0.5)
    return loop


@pytest.fixture
def sent() -> Any:
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    provider, exporter = trace.TracerProvider(), memory.InMemorySpanExporter()
    provider.add_span_processor(export.SimpleSpanProcessor(exporter))
    return provider, exporter.get_finished_spans


@pytest.mark.parametrize(("mode", "rounds", "label"), [("live", 3, "stop"), ("shadow", 4, "go on")])
def test_decisions_lie_inside_the_span_of_the_caller(
    sent: Any, mode: str, rounds: int, label: str
) -> None:
    provider, finished = sent
    with provider.get_tracer("mine").start_as_current_span("mine") as mine:
        loop = walk(provider, mode=mode)
    *inner, root, _ = finished()
    assert root.parent.span_id == mine.get_span_context().span_id
    assert (root.attributes["suffice.would_stop"], len(loop.rounds)) == (3, rounds)
    assert root.attributes["suffice.reason"] == loop.reason
    decided = [span for span in inner if span.name.startswith("decide")]
    assert len(decided) == rounds
    said = dict(decided[2].attributes)
    assert said["gen_ai.evaluation.score.label"] == label
    assert said["gen_ai.evaluation.explanation"].endswith(loop.decisions[2].reason)
    assert said["suffice.signal.answer_stable"] == 1
    scores = {e.attributes["gen_ai.evaluation.name"]: e.attributes for e in decided[2].events}
    assert scores["suffice.score"]["gen_ai.evaluation.score.value"] == 0.5
    assert len(inner[0].attributes["retrieval.documents.0.document.content"]) == 8_000


def test_without_texts_there_is_none_in_a_span(sent: Any) -> None:
    provider, finished = sent
    walk(provider, mode="live", texts="no-texts")
    told = str([(span.name, dict(span.attributes), span.events) for span in finished()])
    assert "suffice.signal.answer_stable" in told
    assert not any(text in told for text in ("Ada", "founde", "xxx"))


def test_neither_a_failing_provider_nor_an_absent_server_touches_the_loop(sent: Any) -> None:
    class Failing:
        def get_tracer(self, *_: Any, **__: Any) -> Any:
            return self  # which starts no span

    assert walk(Failing(), mode="live").answer == "Ada"
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    http = pytest.importorskip("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        exporter = http.OTLPSpanExporter(f"http://127.0.0.1:{closed.getsockname()[1]}/v1/traces")
        batches = export.BatchSpanProcessor(exporter, schedule_delay_millis=1)
        sent[0].add_span_processor(batches)
        began = time.perf_counter()
        loop = walk(sent[0], mode="live")
        assert (loop.stopped_by, loop.answer) == ("policy", "Ada")
        assert time.perf_counter() - began < 5  # one export alone retries for ten seconds
        exporter.shutdown()
        batches.shutdown()


def test_what_is_no_provider_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="tracer provider"):
        walk("phoenix")
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(MissingExtra, match=r"suffice\[otel\]"):
        walk(True)
