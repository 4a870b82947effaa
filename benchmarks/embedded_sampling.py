"""Samples of a round by the embedded model, over a greedy answer of their length and llama.cpp's server.

The requests are those of recordings of generated questions. Evaluating the prompt is not counted. Times are
CPU time of this process, one thread, so that other programs disturb them little; the ways take turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings, model_path
from suffice.llm.llama_api import quiet_params, start_server
from suffice.llm.wire import request_body
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.protocols import Generation, GenerationRequest

QUESTIONS = 4
ROUNDS = 3
MOST = {3: 1.4, 8: 2.0}
_ALONE = EmbeddedSettings(replicas=1, threads=1)


@dataclass(slots=True)
class Spent:
    """CPU seconds and tokens drawn."""

    seconds: float = 0.0
    tokens: int = 0

    def add(self, work: Callable[[], int]) -> None:
        started = time.process_time()
        self.tokens += work()
        self.seconds += time.process_time() - started

    @property
    def each(self) -> float:
        return self.seconds / max(self.tokens, 1)


def server(*, slots: int, threads: int = 1) -> Any:
    """llama.cpp's server on the same weights."""
    params = quiet_params(model_path(None), threads=threads, purpose="This benchmark")
    params.n_ctx, params.n_parallel = 8192, slots
    params.kv_unified = params.swa_full = True
    return start_server(params, check="")


def ask_server(opened: Any, request: GenerationRequest) -> int:
    """Tokens drawn, the first choice's only where there are several."""
    reply = opened.handle_completions(request_body(request) | {"top_k": 40, "min_p": 0.05})
    return int(reply["usage"]["completion_tokens"])


@dataclass(slots=True)
class Ways:
    """Asks the embedded model, and by the way the others; a :class:`suffice.protocols.ChatModel`."""

    model: EmbeddedModel
    alone: EmbeddedModel
    server: Any
    greedy: Spent = field(default_factory=Spent)  # in one batch with the samples that follow
    samples: Spent = field(default_factory=Spent)
    greedy_alone: Spent = field(default_factory=Spent)
    server_greedy: Spent = field(default_factory=Spent)
    server_batch: Spent = field(default_factory=Spent)
    server_singly: Spent = field(default_factory=Spent)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self.model.api

    def generate(self, request: GenerationRequest) -> Generation:
        first = replace(request, n=1, temperature=0, max_tokens=1, soon=None)
        replies: list[Generation] = []

        def ours(model: EmbeddedModel, asked: GenerationRequest) -> int:
            replies.append(model.generate(asked))
            return replies[-1].completion_tokens or 0

        if request.n == 1:  # evaluates the prompt
            for model in (self.model, self.alone):
                ours(model, first)
            ask_server(self.server, first)
            self.greedy_alone.add(lambda: ours(self.alone, replace(request, soon=None)))
            self.server_greedy.add(lambda: ask_server(self.server, request))
            self.greedy.add(lambda: ours(self.model, request))
        else:
            self.server_batch.add(lambda: ask_server(self.server, request))
            for number in range(request.n):
                one = replace(request, n=1, seed=(request.seed or 0) + number)
                self.server_singly.add(lambda one=one: ask_server(self.server, one))  # type: ignore[misc]
            self.samples.add(lambda: ours(self.model, request))
        return replies[-1]


def recorded(samples: int) -> Ways:
    """The ways over all rounds of a recording."""
    recording = Recording(
        dataset="generated", settings=CumulativeSettings(rounds=ROUNDS, samples=samples)
    )
    with (
        EmbeddedModel.load(settings=_ALONE) as model,
        EmbeddedModel.load(settings=_ALONE) as alone,
        tempfile.TemporaryDirectory() as folder,
    ):
        ways = Ways(model, alone, server(slots=samples))
        examples = load("generated", limit=QUESTIONS)
        record_examples(examples, ways, Path(folder) / "t", recording, lambda _: None)
    return ways


def main() -> dict[str, float]:
    figures: dict[str, float] = {}
    for n, most in MOST.items():
        ways = recorded(n)
        together = ways.greedy.seconds + ways.samples.seconds
        length = ways.samples.tokens / n  # of all prompts' samples, an n-th
        answer = length * ways.greedy_alone.each
        theirs = ways.server_singly.tokens / n * ways.server_greedy.each
        figures |= {
            f"{n} samples beside the greedy answer, over one of their length (at most {most})": (
                (together - ways.greedy_alone.seconds) / answer
            ),
            f"{n} samples as one batch of llama.cpp's server, over the same": (
                ways.server_batch.seconds / theirs
            ),
            f"{n} samples one by one by llama.cpp's server, over the same": (
                ways.server_singly.seconds / theirs
            ),
            f"answer and {n} samples, one by one by the server over ours": (
                (ways.server_greedy.seconds + ways.server_singly.seconds) / together
            ),
            f"a greedy token, ours over the server's ({n})": (
                ways.greedy_alone.each / ways.server_greedy.each
            ),
        }
    return figures
