"""What observers make of the events of questions: counts, lines and spans."""

from __future__ import annotations

import json
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.serving import service

from suffice.contracts import Action, Decision
from suffice.datasets.otlp import read_otlp
from suffice.live.answering import Tokens
from suffice.live.observing import QuestionEnded, RoundEnded
from suffice.serve.observers import Metrics, SpanSender
from suffice.trace.rounds.records import Passage, Round, Usage

GO_ON = Decision(action=Action.CONTINUE, reason="", values={})
SECRET = "Where does Sonja\r\n\u2028live?"


def ended(error: str = "") -> QuestionEnded:
    return QuestionEnded(
        trace_id="t1",
        endpoint="chat",
        policy="stable",
        policy_hash="abc",
        model="qwen",
        text=SECRET,
        rounds=tuple(
            RoundEnded(
                number=number,
                round=Round(
                    answer=answer,
                    query="Sonja's home",
                    passages=(Passage(id=f"notes/{number}.md", text=f"Sonja {number}"),),
                    usage=Usage(llm_calls=1, prompt_tokens=100, completion_tokens=7),
                ),
                decision=GO_ON,
                took_s=0.02,
            )
            for number, answer in enumerate(("Oslo", "Skien, Sonja says"), start=1)
        ),
        stopped_by="error" if error else "policy",
        reason=error or "Sonja said so",
        declined=True,
        took_s=0.05,
        tokens=Tokens(prompt=200, cached=0, completion=14),
        usd=0.001,
    )


# --- metrics ----------------------------------------------------------------------------------------
def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(generate_latest(metrics.registry).decode())
        for sample in family.samples
    }


def test_a_question_is_counted() -> None:
    metrics = Metrics(service())
    metrics.on(ended())
    chat = (("endpoint", "chat"),)
    by = (*chat, ("policy", "stable"))
    said = samples(metrics)
    assert said["suffice_requests_total", (*by, ("stopped_by", "policy"))] == 1
    assert said["suffice_question_rounds_sum", by] == 2
    assert said["suffice_round_seconds_count", by] == 2
    assert said["suffice_question_seconds_bucket", (chat[0], ("le", "0.05"), by[1])] == 1
    assert said["suffice_tokens_total", (chat[0], ("kind", "prompt"), by[1])] == 200
    assert said["suffice_cost_usd_total", by] == 0.001
    assert said["suffice_abstentions_total", by] == 1
    levels = ("in_flight", "queue", "record_lost_rounds", "record_failing")
    assert [said[f"suffice_{name}", ()] for name in levels] == [0, 0, 0, 0]
    metrics.alarms("stable", {"coverage": 1.0})
    alarm = (("kind", "coverage"), ("policy", "stable"))
    assert samples(metrics)["suffice_alarm", alarm] == 1


# --- spans --------------------------------------------------------------------------------------------
IN_MEMORY = "opentelemetry.sdk.trace.export.in_memory_span_exporter"


def exported(told: QuestionEnded, *, texts: bool, place: Path) -> tuple[Any, Path]:
    """The finished spans, and a file of them as OTLP in JSON."""
    encoder = pytest.importorskip("opentelemetry.exporter.otlp.proto.common.trace_encoder")
    as_dict = pytest.importorskip("google.protobuf.json_format").MessageToDict
    exporter = pytest.importorskip(IN_MEMORY).InMemorySpanExporter()
    observer = SpanSender(exporter, texts=texts, at_once=True)
    observer.on(told)
    spans = exporter.get_finished_spans()
    document = as_dict(encoder.encode_spans(spans))
    for resource in document["resourceSpans"]:
        for span in (one for scope in resource["scopeSpans"] for one in scope["spans"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                if name in span:  # in OTLP's own JSON these are hexadecimal
                    span[name] = b64decode(span[name]).hex()
    file = place / "spans.json"
    file.write_text(json.dumps(document))
    observer.close()
    return spans, file


def test_a_question_is_a_span_with_its_rounds_below(tmp_path: Path) -> None:
    told = ended()
    spans, file = exported(told, texts=True, place=tmp_path)
    assert [span.name for span in spans] == [
        *("retrieval", "chat qwen", "decide: go on") * 2, "invoke_agent"
    ]  # fmt: skip
    root, chat = spans[-1], spans[1]
    assert all(span.parent.span_id == root.context.span_id for span in spans[:-1])
    assert all(span.start_time <= span.end_time for span in spans)
    assert chat.attributes["gen_ai.operation.name"] == "chat"
    assert chat.attributes["gen_ai.request.model"] == "qwen"
    assert chat.attributes["gen_ai.usage.input_tokens"] == 100
    assert root.attributes["suffice.completion_tokens"] == 14
    (record,) = read_otlp(file)
    assert record.question.text == SECRET
    assert [ran.query for ran in record.rounds] == [ran.round.query for ran in told.rounds]
    assert [ran.passages for ran in record.rounds] == [ran.round.passages for ran in told.rounds]
    assert [ran.answer for ran in record.rounds] == ["Oslo", "Skien, Sonja says"]
    assert (record.stopped_by, record.question.id) == ("policy", "t1")


def test_spans_hold_no_text_unless_asked(tmp_path: Path) -> None:
    told = ended(error="the model said Sonja")
    spans, file = exported(told, texts=False, place=tmp_path)
    assert "Sonja" not in file.read_text()
    assert "notes/" not in file.read_text()
    assert not spans[-1].status.is_ok
    (record,) = read_otlp(file)
    assert record.rounds[-1].answer == "answer2"
    assert record.rounds[1].usage.completion_tokens == 7
