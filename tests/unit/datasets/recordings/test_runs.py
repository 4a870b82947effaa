"""Runs of agents become records: a trajectory, spans, a log of evaluations."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.datasets.inspect_ai import _unpacked
from suffice.datasets.recordings import import_traces
from suffice.errors import DataError, SufficeWarning
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, QuestionRecord, Token

HERE = Path(__file__).parent


def imported(path: Path, kind: str, folder: Path) -> list[QuestionRecord]:
    import_traces(path, folder / "out.parquet", format=kind)
    return list(read_traces(folder / "out.parquet").records())


def changed(name: str, folder: Path, change: Callable[[Any], Any]) -> Path:
    document = json.loads((HERE / name).read_text())
    path = folder / name
    path.write_text(json.dumps(change(document) or document))
    return path


# --- ATIF -------------------------------------------------------------------------------------------
def test_steps_of_a_trajectory_are_rounds(tmp_path: Path) -> None:
    (record,) = imported(HERE / "atif.json", "atif", tmp_path)
    assert (record.question.id, record.question.text) == ("run-1", "Who founded the observatory?")
    first, second = record.rounds
    assert (first.answer, second.answer, record.stopped_by) == (None, "Ada", "end")
    assert (first.query, second.query) == ("observatory founder", "Oslo observatory")
    assert first.passages == (
        Passage(id="d1", text="It was built.", score=0.5),
        Passage(id="d2", text="In Oslo.", score=0.25),
    )
    assert second.passages == (Passage(id="d3", text="Ada did.", score=0.5),)
    assert second.refound == (Passage(id="d2", score=0.75),)
    assert second.tokens == (Token("", -0.25), Token("", -0.5))
    usage = second.usage
    assert (usage.llm_calls, usage.answer_calls, usage.retrievals) == (2, 1, 1)
    assert (usage.prompt_tokens, usage.answer_prompt_tokens, usage.latency_s) == (500, 300, 2.0)
    assert first.usage.cached_tokens == 50
    assert (first.usage.usd, first.usage.answer_usd) == (0.001, None)


def test_an_answer_that_a_trajectory_hands_in_by_a_tool(tmp_path: Path) -> None:
    def submit(document: Any) -> None:
        tool = {"tool_call_id": "c", "function_name": "finish", "arguments": {"answer": "Ada L."}}
        result = {"source_call_id": "c", "content": "Done."}
        document["steps"][3].update(tool_calls=[tool], observation={"results": [result]})

    path = changed("atif.json", tmp_path, submit)
    (record,) = imported(path, "atif", tmp_path)
    assert [round_.answer for round_ in record.rounds] == [None, "Ada L."]
    assert record.rounds[-1].usage.answer_prompt_tokens == 300


BAD_ATIF: list[tuple[Callable[[Any], Any], str]] = [
    (lambda it: it.update(schema_version="2"), "column schema_version"),
    (lambda it: it["steps"].clear(), "column steps"),
    (lambda it: it["steps"][1].update(source="model"), "source"),
    (lambda it: it["steps"][1]["metrics"].update(prompt_tokens=-1), "prompt_tokens"),
    (lambda it: it["steps"][3]["metrics"].update(logprobs=["a"]), "metrics.logprobs"),
    (lambda it: it["steps"][1].update(timestamp="noon"), "timestamp"),
    (lambda it: it["steps"][1].update(timestamp="0001-01-01T00:00:00+05:00"), "timestamp"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ATIF)
def test_what_is_wrong_in_a_trajectory_is_said(
    tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    path = changed("atif.json", tmp_path, lambda it: change(it) and None)
    with pytest.raises(DataError, match=message) as error:
        imported(path, "atif", tmp_path)
    assert "atif.json, row 0" in str(error.value)


# --- OTLP -------------------------------------------------------------------------------------------
def spans_of(document: Any) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    return held


def test_spans_by_the_genai_conventions_are_rounds(tmp_path: Path) -> None:
    (record,) = imported(HERE / "otlp_gen_ai.json", "otlp", tmp_path)
    assert record.question.text == "Who founded the observatory?"
    first, second = record.rounds
    assert (first.answer, second.answer, record.stopped_by) == (None, "Ada", "end")
    assert (first.query, second.query) == ("founder of the observatory", "Oslo observatory")
    assert first.passages == (Passage(id="d1", text="Built.", score=0.5),)
    assert second.passages == (Passage(id="d2", score=0.125),)
    assert second.refound == (Passage(id="d1", score=0.25),)
    one, two = first.usage, second.usage
    assert (one.llm_calls, one.prompt_tokens, one.cached_tokens) == (1, 100, 50)
    assert (two.llm_calls, two.prompt_tokens) == (2, 1000)
    assert (two.answer_calls, two.answer_prompt_tokens) == (1, 600)
    assert (one.latency_s, two.latency_s) == (3.0, 4.0)


def test_spans_by_openinference_are_rounds(tmp_path: Path) -> None:
    (record,) = imported(HERE / "otlp_openinference.json", "otlp", tmp_path)
    assert record.question.text == "Who founded it?"
    first, second = record.rounds
    assert first.passages == (
        Passage(id="d1", title="D1", text="Text of d1.", score=0.5),
        Passage(id="d2", title="D2", text="Text of d2.", score=1 / 3),
    )
    assert [passage.id for passage in second.passages or ()] == ["d3"]
    assert (first.answer, first.response, second.answer) == (None, "I need more.", "Ada")
    assert (first.usage.prompt_tokens, second.usage.cached_tokens) == (200, 20)
    assert (second.usage.usd, second.usage.answer_usd) == (0.25, 0.25)


def of_a_client(name: str, at: int, kind: str, **held: Any) -> dict[str, Any]:
    """A span as Phoenix's client gives it."""
    ids = {"context": {"trace_id": "t", "span_id": name}, "parent_id": None if at == 0 else "ask"}
    attributes = {"suffice.question_id": "q7", **{n.replace("_", "."): v for n, v in held.items()}}
    times = {"start_time": f"2026-01-01T00:00:0{at}Z", "status_code": "OK"}
    return {**ids, **times, "name": name, "span_kind": kind, "attributes": attributes}


def test_spans_of_a_client_keep_answers_and_the_stop(tmp_path: Path) -> None:
    file = tmp_path / "spans.json"
    root = of_a_client("ask", 0, "AGENT", input_value="Who?", output_value="Bo")
    root["attributes"]["suffice.stopped_by"] = "policy"
    spans = [
        of_a_client("find", 1, "RETRIEVER", input_value="who"),
        of_a_client("no", 2, "EVALUATOR", suffice_decision="go on", suffice_answer="Al"),
        of_a_client("again", 3, "RETRIEVER", input_value="whom"),
        of_a_client("yes", 4, "EVALUATOR", suffice_decision="stop", suffice_answer="Bo"),
    ]
    file.write_text(json.dumps([root, *spans]))
    (record,) = imported(file, "otlp", tmp_path)
    assert (record.question.id, record.question.text, record.stopped_by) == ("q7", "Who?", "policy")
    assert [(one.query, one.answer) for one in record.rounds] == [("who", "Al"), ("whom", "Bo")]
    file.write_text(json.dumps([{**root, "start_time": "soon"}]))
    with pytest.raises(DataError) as error:
        imported(file, "otlp", tmp_path / "new")
    assert error.value.column == "start_time"


def _as_a_graph(document: Any) -> None:
    """As LangGraph's spans: messages in LangChain's forms, and chains within the chain."""
    spans = spans_of(document)
    top = next(span for span in spans if span["name"] == "chain")
    asked = {"messages": [{"role": "user", "content": "Who founded it?"}]}
    kinds = {"human": "Who founded it?", "ai": "Ada"}
    given = {"messages": [{"type": k, "data": {"type": k, "content": v}} for k, v in kinds.items()]}
    for pair in top["attributes"]:
        if pair["key"] in ("input.value", "output.value"):
            held = asked if pair["key"] == "input.value" else given
            pair["value"] = {"stringValue": json.dumps(held)}
    role = {"key": "llm.input_messages.0.message.role", "value": {"stringValue": "user"}}
    node = {**top, "spanId": "node", "parentSpanId": top["spanId"], "name": "tools"}
    top["attributes"] = [*top["attributes"], role]
    spans.append(node)
    result = {"type": "tool", "data": {"content": "Found: Ada.", "type": "tool"}}
    tool = next(span for span in spans if span["name"] == "retrieve")
    tool["parentSpanId"] = "node"
    tool["attributes"] = [
        {"key": name, "value": {"stringValue": value}}
        for name, value in (
            ("openinference.span.kind", "TOOL"),
            ("tool.name", "search"),
            ("input.value", "founder"),
            ("output.value", json.dumps(result)),
        )
    ]


def test_a_graph_of_chains_is_one_question(tmp_path: Path) -> None:
    path = changed("otlp_openinference.json", tmp_path, _as_a_graph)
    (record,) = imported(path, "otlp", tmp_path)
    assert record.question.text == "Who founded it?"
    first, second = record.rounds
    assert (first.query, first.action, second.answer) == ("founder", "search founder", "Ada")
    assert [passage.text for passage in first.passages or ()] == ["Found: Ada."]


def test_an_answer_that_an_agent_hands_in_by_a_tool(tmp_path: Path) -> None:
    def submit(document: Any) -> None:
        spans = spans_of(document)
        agent = _first_agent(document)
        agent["attributes"] = [a for a in agent["attributes"] if "output" not in a["key"]]
        (call,) = [span for span in spans if '"6' in json.dumps(span) and "chat" in span["name"]]
        reasons = {"arrayValue": {"values": [{"stringValue": "tool_calls"}]}}
        for pair in call["attributes"]:
            if pair["key"] == "gen_ai.response.finish_reasons":
                pair["value"] = reasons
        named = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "final_answer",
            "gen_ai.tool.call.arguments": '{"answer": "Ada L."}',
        }
        held = [{"key": key, "value": {"stringValue": value}} for key, value in named.items()]
        times = dict.fromkeys(("startTimeUnixNano", "endTimeUnixNano"), call["endTimeUnixNano"])
        spans.append({**call, "spanId": "end", "attributes": held, **times})

    (record,) = imported(changed("otlp_gen_ai.json", tmp_path, submit), "otlp", tmp_path)
    assert [round_.answer for round_ in record.rounds] == [None, "Ada L."]
    assert record.rounds[-1].usage.answer_prompt_tokens == 600


def test_spans_in_any_order_twice_and_of_several_traces(tmp_path: Path) -> None:
    """A line a document; the second trace has two questions under a chain that was asked nothing."""
    spans = spans_of(json.loads((HERE / "otlp_gen_ai.json").read_text()))
    kind = {"key": "openinference.span.kind", "value": {"stringValue": "CHAIN"}}
    top = {**spans[0], "traceId": "t2", "spanId": "top", "parentSpanId": "", "attributes": [kind]}
    other = [
        {
            **span,
            "traceId": "t2",
            "spanId": f"{prefix}{span['spanId']}",
            "parentSpanId": f"{prefix}{span['parentSpanId']}" if "parentSpanId" in span else "top",
        }
        for prefix in "ab"
        for span in spans
    ]
    lines = [[span] for span in reversed([top, *other, *spans])] + [spans[:3]]
    documents = [{"resourceSpans": [{"scopeSpans": [{"spans": line}]}]} for line in lines]
    path = tmp_path / "spans.json"
    path.write_text("\n".join(map(json.dumps, documents)))
    records = imported(path, "otlp", tmp_path)
    (alone,) = imported(HERE / "otlp_gen_ai.json", "otlp", tmp_path / "alone")
    assert [record.rounds for record in records] == [alone.rounds] * 3
    ids = [record.question.id for record in records]
    assert ids[0] == alone.question.id
    assert [name[:4] for name in ids[1:]] == ["t2:a", "t2:b"]


def test_a_span_whose_parent_is_missing_goes_to_the_only_agent(tmp_path: Path) -> None:
    def orphan(document: Any) -> None:
        spans = spans_of(document)
        (span,) = [span for span in spans if "Oslo observatory" in json.dumps(span)]
        span["parentSpanId"] = "gone"

    (alone,) = imported(HERE / "otlp_gen_ai.json", "otlp", tmp_path / "alone")
    path = changed("otlp_gen_ai.json", tmp_path, orphan)
    (record,) = imported(path, "otlp", tmp_path)
    assert record == alone


def _first_agent(document: Any) -> dict[str, Any]:
    return next(span for span in spans_of(document) if span["name"].startswith("invoke_agent"))


def _nested(levels: int) -> Any:
    value: Any = {"stringValue": "x"}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return value


def _two_agents(document: Any) -> None:
    agent = _first_agent(document)
    spans_of(document).append({**agent, "spanId": "other"})
    spans_of(document)[0]["parentSpanId"] = "gone"


def _circle(document: Any) -> None:
    spans = spans_of(document)
    spans[0]["parentSpanId"], spans[1]["parentSpanId"] = spans[1]["spanId"], spans[0]["spanId"]


def _attribute(name: str, value: Any) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for span in spans_of(document):
            for pair in span["attributes"]:
                if pair["key"] == name:
                    pair["value"] = value

    return change


BAD_SPANS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda it: it.pop("resourceSpans"), "resourceSpans"),
    (lambda it: spans_of(it).clear(), "holds no span"),
    (lambda it: spans_of(it).remove(_first_agent(it)), "agent"),
    (_two_agents, "AAAAAAAAAAM"),
    (_circle, "parents"),
    (lambda it: spans_of(it).append({**spans_of(it)[0], "name": "else"}), "twice"),
    (lambda it: spans_of(it)[0].update(startTimeUnixNano="soon"), "nanoseconds"),
    (lambda it: spans_of(it)[0].pop("spanId"), "without"),
    (_attribute("gen_ai.retrieval.documents", {"stringValue": "d1"}), "gen_ai.retrieval.documents"),
    (_attribute("gen_ai.input.messages", _nested(40)), "attribute"),
    (_attribute("gen_ai.input.messages", {"arrayValue": {"values": 3}}), "found 3"),
    (_attribute("gen_ai.operation.name", {"stringValue": "embeddings"}), "gen_ai.operation.name"),
]


@pytest.mark.parametrize(("change", "message"), BAD_SPANS)
def test_what_is_wrong_in_spans_is_said(
    tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    path = changed("otlp_gen_ai.json", tmp_path, lambda it: change(it) and None)
    with pytest.raises(DataError, match=message) as error:
        imported(path, "otlp", tmp_path)
    assert "otlp_gen_ai.json" in str(error.value)


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.json"
    path.write_text('{"a":' * 200_000)
    for kind in ("otlp", "atif"):
        with pytest.raises(DataError, match="not JSON"):
            imported(path, kind, tmp_path)


# --- inspect ----------------------------------------------------------------------------------------
def log_of(folder: Path, *changes: Callable[[Any], Any]) -> Path:
    """The sample as a log in JSON, once for each change."""
    source = HERE / "inspect.eval"
    with zipfile.ZipFile(source) as archive:
        (part,) = [p for p in archive.infolist() if p.filename.startswith("samples/")]
        text = _unpacked(source, archive, part)
    samples = []
    for change in changes:
        samples.append(json.loads(text))
        change(samples[-1])
    path = folder / "log.json"
    path.write_text(json.dumps({"version": 2, "eval": {}, "samples": samples}))
    return path


def test_a_log_of_inspect_is_a_record_with_scores(tmp_path: Path) -> None:
    (record,) = imported(HERE / "inspect.eval", "inspect", tmp_path)
    assert record.question.text == "Which city is the capital of Norway?"
    assert (record.question.id, record.question.type) == ("q1", "city")
    assert record.gold.answers == ("Oslo", "Christiania")
    first, second = record.rounds
    assert (first.query, second.query) == ("capital", "Norway")
    assert (first.answer, second.answer) == ("oslo, perhaps.", "ANSWER: Oslo")
    assert (record.scores, record.stopped_by) == ({1: 1.0, 2: 1.0}, "end")
    ((passage,), (other,)) = (round_.passages or () for round_ in record.rounds)
    assert str(passage.text).startswith("Found for capital: Oslo is the capital")
    assert passage.id != other.id
    usage = second.usage
    assert (usage.llm_calls, usage.answer_calls, usage.prompt_tokens) == (2, 1, 510)
    assert (usage.cached_tokens, usage.answer_prompt_tokens) == (10, 305)
    assert [token.top[0].logprob for token in second.tokens or ()] == [-1.5]


def _cut(sample: Any) -> None:
    """It ended at its limit while it asked for a search."""
    asking = [event for event in sample["events"] if event["event"] == "model"][1]
    sample.update(id=7, limit={"type": "message", "limit": 5}, output=asking["output"])


def test_an_answer_that_is_handed_in_by_a_tool(tmp_path: Path) -> None:
    def submit(sample: Any) -> None:
        tool = next(event for event in sample["events"] if event["event"] == "tool")
        handed = {**tool, "function": "submit", "result": "Oslo", "arguments": {"answer": "Oslo"}}
        sample["events"].append(handed)

    (record,) = imported(log_of(tmp_path, submit), "inspect", tmp_path)
    assert [round_.answer for round_ in record.rounds] == ["oslo, perhaps.", "Oslo"]


def test_samples_of_other_kinds(tmp_path: Path) -> None:
    """As JSON: another epoch, a limit, one that failed at once."""
    path = log_of(
        tmp_path,
        lambda it: None,
        lambda it: it.update(epoch=2, scores={}),
        _cut,
        lambda it: it.update(id=8, events=[], messages=[], error={"message": "no server"}),
    )
    with pytest.warns(SufficeWarning, match="without a call to a model"):
        limited, first, second = imported(path, "inspect", tmp_path)
    (alone,) = imported(HERE / "inspect.eval", "inspect", tmp_path / "alone")
    assert first == alone
    assert (second.question.id, limited.question.id) == ("q1#2", "7")
    assert second.rounds == first.rounds
    assert limited.stopped_by == "budget"
    assert [r.answer for r in limited.rounds] == ["oslo, perhaps.", "bergen?"]


BAD_LOGS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda it: it.update(id=None), "column id"),
    (lambda it: it.update(started_at="noon"), "column started_at"),
    (lambda it: it.update(target={"a": 1}), "column target"),
]


@pytest.mark.parametrize(("change", "message"), BAD_LOGS)
def test_what_is_wrong_in_a_log_is_said(
    tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        imported(log_of(tmp_path, change), "inspect", tmp_path)


def test_zips_that_are_no_logs_or_say_what_is_not_so_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.eval"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("note.txt", "no log")
    with pytest.raises(DataError, match="inspect_ai"):
        imported(other, "inspect", tmp_path)
    content = (HERE / "inspect.eval").read_bytes()
    with zipfile.ZipFile(HERE / "inspect.eval") as archive:
        size = next(p.file_size for p in archive.infolist() if p.filename.startswith("samples/"))
    torn = tmp_path / "torn.eval"
    torn.write_bytes(content.replace(b"PK\x01\x02", b"PK\x01\x07", 1))
    with pytest.raises(DataError, match="damaged"):
        imported(torn, "inspect", tmp_path)
    lying = tmp_path / "lying.eval"
    lying.write_bytes(content.replace(size.to_bytes(4, "little"), (9).to_bytes(4, "little")))
    with pytest.raises(DataError, match="directory"):
        imported(lying, "inspect", tmp_path)
    with pytest.raises(DataError, match="has no eval and samples"):
        imported(HERE / "atif.json", "inspect", tmp_path)
    with pytest.raises(DataError, match="holds no sample"):
        imported(log_of(tmp_path), "inspect", tmp_path)


def _told(name: str, at: int, parent: str = "top", **held: Any) -> dict[str, Any]:
    span = of_a_client(name, at, "UNKNOWN")
    return {**span, "parent_id": parent, "attributes": held}


def _usage(prompt: int) -> dict[str, Any]:
    return {"gen_ai.usage.input_tokens": prompt, "gen_ai.usage.output_tokens": 1}


MODEL: dict[str, Any] = {"gen_ai.request.model": "m"}
AROUND: list[tuple[list[dict[str, Any]], tuple[int, int | None, str]]] = [
    ([_told("invoke_model", 1, **_usage(7))], (1, 7, "")),
    ([_told("responses", 1, **MODEL)], (1, None, "")),
    ([_told("responses", 1, **_usage(7)), _told("raw", 2, "responses", **MODEL)], (1, 7, "1 span")),
    (
        [_told("wrapper", 1, **_usage(7)), _told("raw", 2, "wrapper", **_usage(7))],
        (1, 7, "1 of wrapper"),
    ),
    (
        [
            _told("wrapper", 1, **_usage(9)),
            _told("a", 2, "wrapper", **_usage(4)),
            _told("b", 3, "wrapper", **_usage(5)),
        ],
        (2, 9, "1 of wrapper"),
    ),
    ([_told("openai.embeddings", 1, **MODEL, **_usage(7))], (0, None, "1 of openai.embeddings")),
    ([_told("rerank", 1, **_usage(7)), _told("a", 2, **_usage(4))], (1, 4, "1 of rerank")),
    ([_told("setup", 1, **{"db.system": "x"})], (0, None, "")),
]


@pytest.mark.parametrize(("inner", "expected"), AROUND)
def test_the_innermost_spans_that_tell_usage_are_calls(
    inner: list[dict[str, Any]], expected: tuple[int, int | None, str], tmp_path: Path
) -> None:
    top = of_a_client("top", 0, "AGENT")
    top["attributes"] |= _usage(999) if expected[0] else {}  # it repeats the sum
    path = tmp_path / "spans.json"
    path.write_text(json.dumps([top, *inner]))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (record,) = imported(path, "otlp", tmp_path)
    usage = record.rounds[0].usage
    assert (usage.llm_calls, usage.prompt_tokens) == expected[:2]
    said = [str(w.message) for w in told if "left out" in str(w.message)]
    assert len(said) == bool(expected[2])
    assert expected[2] in "".join(said)


def test_a_trace_with_ids_of_its_observations_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"id": "t", "observations": ["o1", "o2"]}))
    with pytest.raises(DataError) as caught:
        imported(path, "langfuse", tmp_path)
    assert caught.value.column == "observations"
