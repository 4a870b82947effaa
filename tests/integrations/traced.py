"""A watched loop whose spans go to a server of traces in a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import suffice
from suffice.trace.rounds.records import QuestionRecord

FOUND = {"Bo": "Bo drew the plans.", "Ada": "Ada Marsh founded it.", "Ada Marsh": "In 1904."}


def until_there(look: Callable[[], Any], longest_s: float = 240) -> Any:
    until = time.monotonic() + longest_s
    while not (there := look()):
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.5)
    return there


@contextmanager
def serving(folder: Path, path: str, *words: str, **environment: str) -> Iterator[str]:
    """The URL of a server; ``PORT`` stands for its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    told = {name: value.replace("PORT", port) for name, value in environment.items()}
    command = [sys.executable, *(word.replace("PORT", port) for word in words)]
    url = f"http://127.0.0.1:{port}"

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with suppress(OSError), urllib.request.urlopen(url + path, timeout=5):
            return True
        return False

    with (folder / "log").open("w") as log:
        ways: dict[str, Any] = {"cwd": folder, "stdout": log, "stderr": log}
        process = subprocess.Popen(
            command, env={**os.environ, **told}, start_new_session=True, **ways
        )
        try:
            until_there(answers)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)  # with the processes that it began
            process.wait(30)


def watched(url: str, folder: Path, headers: dict[str, str] | None = None) -> QuestionRecord:
    """The record of a loop that its policy stops; its spans are sent."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    exporter = OTLPSpanExporter(f"{url}/v1/traces", headers=headers)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    settings: dict[str, Any] = {"mode": "live", "max_rounds": 5, "record": folder / "live.db"}
    watch = suffice.Watch("answer_stable", spans=provider, **settings)
    with watch, watch.question("Who founded the observatory?", question_id="q1") as loop:
        for number, (query, text) in enumerate(FOUND.items()):
            loop.observe(
                query=f"Who is {query}?",
                passages=[{"id": f"n{number}", "text": text, "score": 0.5}],
                answer="Bo" if number == 0 else "Ada Marsh",
                usage={"prompt_tokens": 100, "completion_tokens": 3},
            )
    provider.shutdown()
    (record,) = suffice.read(folder / "live.db").records()
    return record


def check_the_same(file: Path, record: QuestionRecord) -> None:
    """An export holds the question and the rounds of the record."""
    suffice.traces.import_(file, file.parent / "imported", format="otlp")
    (read,) = suffice.read(file.parent / "imported").records()
    kept = ("question", "stopped_by", "policy_hash")
    assert [getattr(read, name) for name in kept] == [getattr(record, name) for name in kept]
    for one, other in zip(read.rounds, record.rounds, strict=True):
        assert (one.query, one.answer, one.passages) == (other.query, other.answer, other.passages)
        assert one.usage.prompt_tokens == other.usage.prompt_tokens
    assert (len(read.rounds), read.stopped_by) == (3, "policy")
