"""The embedded model under a recording: prompt tokens evaluated, and throughput against bare sending.

Two ways get the same requests of the same questions, and take turns at every few of them: the recording, and
its requests sent to an embedded model whose replies nobody reads. Both keep what they evaluated. Wall times
want idle cores.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Lock
from typing import Any, Literal

from suffice.datasets.example import Example
from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.protocols import ChatModel, Generation, GenerationRequest
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

ROUNDS = 5
AT_ONCE = 4
"""Questions of a turn; the last of them leave a core idle, in every way alike."""
TURNS = {0: 3, 3: 1}
"""By samples a round."""
_HELLO = GenerationRequest(prompt="Hello", max_tokens=1)


@dataclass
class Listening:
    """Passes requests on and keeps them; the first of a question is its shortest."""

    model: ChatModel
    sent: list[GenerationRequest] = field(default_factory=list)
    drawn: int = 0
    _lock: Lock = field(default_factory=Lock)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self.model.api

    @property
    def concurrency(self) -> int:
        return int(getattr(self.model, "concurrency", 1))

    def generate(self, request: GenerationRequest) -> Generation:
        made = self.model.generate(request)
        with self._lock:
            self.sent.append(request)
            self.drawn += made.completion_tokens or 0
        return made


def recorded(examples: Sequence[Example], model: ChatModel, samples: int) -> TraceSet:
    """Their record."""
    recording = Recording(
        dataset="generated", settings=CumulativeSettings(rounds=ROUNDS, samples=samples)
    )
    with tempfile.TemporaryDirectory() as folder:
        record_examples(examples, model, Path(folder) / "t", recording, lambda _: None)
        return read_traces(Path(folder) / "t")


def requests_of(examples: Sequence[Example], samples: int) -> list[list[GenerationRequest]]:
    """By question: they depend on no reply."""
    asked = []
    for example in examples:
        listening = Listening(ScriptedModel())
        recorded([example], listening, samples)
        asked.append(listening.sent)
    return asked


@dataclass(slots=True)
class Driver:
    """Sends a question's requests one after the other, a question a seat at a time."""

    send: Callable[[Any, GenerationRequest], int]
    seats: Sequence[Any]

    def drive(self, asked: Sequence[Sequence[GenerationRequest]]) -> int:
        """Tokens drawn, as the replies say."""
        free: SimpleQueue[Any] = SimpleQueue()
        for seat in self.seats:
            free.put(seat)

        def question(requests: Sequence[GenerationRequest]) -> int:
            seat = free.get()
            try:
                return sum(self.send(seat, request) for request in requests)
            finally:
                free.put(seat)

        with ThreadPoolExecutor(len(self.seats)) as pool:
            return sum(pool.map(question, asked))


@dataclass(slots=True)
class Spent:
    """Of a way: wall and CPU seconds turn by turn, and tokens drawn."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    tokens: int = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall.append(time.perf_counter() - wall)
        self.cpu.append(time.process_time() - cpu)


RECORDING, BARE = "recording", "bare sending"


def drivers(model: EmbeddedModel) -> dict[str, Driver]:
    """The ways without a record, by name."""
    return {
        BARE: Driver(
            lambda model, request: model.generate(request).completion_tokens or 0,
            [model] * model.concurrency,
        )
    }


def in_turn(samples: int) -> tuple[dict[str, Spent], float]:
    """What each way took, another one first at every turn, and the recording's evaluated share."""
    turns = TURNS[samples]
    examples = load("generated", limit=AT_ONCE * turns)
    asked = requests_of(examples, samples)
    evaluated: list[TraceSet] = []
    with EmbeddedModel.load() as recorder, EmbeddedModel.load() as bare:
        there = drivers(bare)
        names = [RECORDING, *there]
        spent = {name: Spent() for name in names}
        recorder.generate(_HELLO)
        for driver in there.values():
            driver.drive([[_HELLO]] * len(driver.seats))
        for turn in range(turns):
            part = slice(AT_ONCE * turn, AT_ONCE * (turn + 1))
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if name == RECORDING:
                    listening = Listening(recorder)
                    with spent[name].turn():
                        evaluated.append(recorded(examples[part], listening, samples))
                    spent[name].tokens += listening.drawn
                    sent = [request for requests in asked[part] for request in requests]
                    assert {r.prompt for r in listening.sent} == {r.prompt for r in sent}
                    assert len(listening.sent) == len(sent)
                else:
                    with spent[name].turn():
                        tokens = there[name].drive(asked[part])
                    spent[name].tokens += tokens
    return spent, evaluated_share(evaluated)


def evaluated_share(records: Sequence[TraceSet]) -> float:
    """Prompt tokens evaluated over prompt tokens sent: without reuse every one is evaluated."""
    evaluated = sent = 0.0
    for traces in records:
        prompt, cached = traces.column("prompt_tokens"), traces.column("cached_tokens")
        if prompt is None or cached is None:
            raise SystemExit("the record has no token counts")
        evaluated += float((prompt - cached).sum())
        sent += float(prompt.sum())
    return evaluated / sent


def compared(samples: int) -> Iterator[tuple[str, float]]:
    spent, share = in_turn(samples)
    ours = spent.pop(RECORDING)
    where = f"{samples} samples a round"
    if TURNS[samples] > 1:  # what all questions share weighs too much in a few
        yield f"{where}: prompt tokens evaluated over re-sending (at most 0.15)", share
    for name, way in spent.items():
        what = f"{where}: throughput of recording over {name}"
        yield f"{what} (at least 0.95)", sum(way.wall) / sum(ours.wall)
        if TURNS[samples] > 1:
            ratios = [way_s / ours_s for way_s, ours_s in zip(way.wall, ours.wall, strict=True)]
            yield f"{what}, lowest of its turns", min(ratios)
            yield f"{what}, highest", max(ratios)
        yield f"{what}, by CPU time", sum(way.cpu) / sum(ours.cpu)
        yield f"{where}: tokens drawn, recording over {name}", ours.tokens / way.tokens
    rounds = ROUNDS * AT_ONCE * TURNS[samples]
    yield f"{where}: seconds a round (this machine)", sum(ours.wall) / rounds


def main() -> dict[str, float]:
    return {figure: value for samples in TURNS for figure, value in compared(samples)}
