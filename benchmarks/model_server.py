"""The embedded model under a recording: prompt tokens evaluated, and throughput against bare sending.

All run the real model; other work on the machine disturbs the throughput.
"""

from __future__ import annotations

import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock, get_ident
from typing import Literal

from benchmarks.embedded_sampling import ask_server, server
from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel
from suffice.llm.llama_api import processors
from suffice.pipelines.loops.ranked import CumulativeSettings
from suffice.pipelines.record.dataset_run import Recording, record_examples
from suffice.protocols import Generation, GenerationRequest
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

QUESTIONS = 12
ROUNDS = 5


class Listening:
    """Passes requests on and keeps them by the thread, and so the question order, that sent them."""

    def __init__(self, model: EmbeddedModel) -> None:
        self.model = model
        self.sent: defaultdict[int, list[GenerationRequest]] = defaultdict(list)
        self._lock = Lock()

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self.model.api

    @property
    def concurrency(self) -> int:
        return self.model.concurrency

    def generate(self, request: GenerationRequest) -> Generation:
        with self._lock:
            self.sent[get_ident()].append(request)
        return self.model.generate(request)


def record(samples: int) -> tuple[float, list[list[GenerationRequest]], TraceSet]:
    """Record with a fresh model: (seconds, requests of each worker, the record)."""
    examples = load("generated", limit=QUESTIONS)
    recording = Recording(
        dataset="generated", settings=CumulativeSettings(rounds=ROUNDS, samples=samples)
    )
    with EmbeddedModel.load() as embedded, tempfile.TemporaryDirectory() as folder:
        embedded.generate(GenerationRequest(prompt="Hello", max_tokens=1))  # loads the weights
        model = Listening(embedded)
        started = time.perf_counter()
        record_examples(examples, model, Path(folder) / "t", recording, lambda _: None)
        seconds = time.perf_counter() - started
        return seconds, list(model.sent.values()), read_traces(Path(folder) / "t")


def send_bare(workers: list[list[GenerationRequest]]) -> float:
    """Send the same requests, as many workers, and do nothing with the replies."""
    with EmbeddedModel.load() as model:
        model.generate(GenerationRequest(prompt="Hello", max_tokens=1))

        def send(requests: list[GenerationRequest]) -> None:
            for request in requests:
                model.generate(request)

        started = time.perf_counter()
        with ThreadPoolExecutor(len(workers)) as pool:
            list(pool.map(send, workers))
        return time.perf_counter() - started


def send_to_llama_cpp(
    workers: list[list[GenerationRequest]], *, servers: int, threads: int
) -> float:
    """Send the same requests to llama.cpp's own servers in this process, with the slots they need."""
    asked = [request for requests in workers for request in requests]
    slots = max(request.n for request in asked) + len(workers)
    opened = [server(slots=slots, threads=threads) for _ in range(servers)]
    for one in opened:
        ask_server(one, GenerationRequest(prompt="Hello", max_tokens=1))

    def send(number: int) -> None:
        for request in workers[number]:
            ask_server(opened[number % servers], request)

    started = time.perf_counter()
    with ThreadPoolExecutor(len(workers)) as pool:
        list(pool.map(send, range(len(workers))))
    return time.perf_counter() - started


def llama_cpp(workers: list[list[GenerationRequest]]) -> float:
    """The better of one server with all processors and one a processor."""
    cores = processors()
    return min(
        send_to_llama_cpp(workers, servers=1, threads=cores),
        send_to_llama_cpp(workers, servers=cores, threads=1),
    )


def evaluated_share(traces: TraceSet, *, samples: bool) -> float:
    """Prompt tokens evaluated over prompt tokens sent: without reuse every one is evaluated.

    With ``samples`` the sample calls' evaluated tokens are added above, and their prompts below.
    """
    prefixes = ("", "sample_") if samples else ("",)
    evaluated = sent = 0.0
    for prefix in prefixes:
        prompt = traces.column(f"{prefix}prompt_tokens")
        cached = traces.column(f"{prefix}cached_tokens")
        if prompt is None or cached is None:
            raise SystemExit("the record has no token counts")
        evaluated += float((prompt - cached).sum())
        sent += float(prompt.sum())
    return evaluated / sent


def main() -> dict[str, float]:
    seconds, requests, plain = record(samples=0)
    bare = send_bare(requests)
    bare = min(bare, send_bare(requests))
    theirs = llama_cpp(requests)
    seconds = min(seconds, record(samples=0)[0])
    sampled_s, sampled_requests, sampled = record(samples=3)
    return {
        "prompt tokens evaluated over re-sending (at most 0.15)": evaluated_share(
            plain, samples=False
        ),
        "the same while 3 samples a round are drawn": evaluated_share(sampled, samples=False),
        "recording over bare sending, throughput (at least 0.95)": bare / seconds,
        "recording over llama.cpp's server, throughput (at least 0.95)": theirs / seconds,
        "the same with 3 samples a round": llama_cpp(sampled_requests) / sampled_s,
        "seconds a round without samples (this machine)": seconds / (QUESTIONS * ROUNDS),
    }
