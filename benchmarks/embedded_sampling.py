"""Eight samples of a round by the embedded model, over a greedy answer of their length.

The requests are those of recordings of generated questions. Evaluating the prompt is not counted. Times are
CPU time of this process, one thread, so that other programs disturb them little.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from suffice.datasets.registry import load
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.protocols import Generation, GenerationRequest

QUESTIONS = 4
ROUNDS = 3
MOST = {3: 3.5, 8: 5.0}


@dataclass(slots=True)
class Timed:
    """A :class:`suffice.protocols.ChatModel` that keeps what samples and greedy tokens cost."""

    model: EmbeddedModel
    samples_s: float = 0.0
    sampled: int = 0
    greedy_s: float = 0.0
    greedy: int = 0

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def api(self) -> Literal["chat", "completion"]:
        return self.model.api

    def generate(self, request: GenerationRequest) -> Generation:
        self.model.generate(replace(request, n=1, temperature=0, max_tokens=1))  # the prompt
        started = time.process_time()
        reply = self.model.generate(request)
        seconds, tokens = time.process_time() - started, reply.completion_tokens or 0
        if request.n == 1:
            self.greedy_s, self.greedy = self.greedy_s + seconds, self.greedy + tokens
        else:
            self.samples_s, self.sampled = self.samples_s + seconds, self.sampled + tokens
        return reply

    def over_an_answer(self, samples: int) -> float:
        """What so many samples cost over one greedy answer of their mean length."""
        answer = self.sampled / samples * self.greedy_s / self.greedy
        return self.samples_s / answer


def main() -> dict[str, float]:
    figures = {}
    examples = load("generated", limit=QUESTIONS)
    for samples, most in MOST.items():
        settings = CumulativeSettings(rounds=ROUNDS, samples=samples)
        with (
            EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model,
            tempfile.TemporaryDirectory() as folder,
        ):
            timed = Timed(model)
            recording = Recording(dataset="generated", settings=settings)
            record_examples(examples, timed, Path(folder) / "t", recording, lambda _: None)
        name = f"{samples} samples over one greedy answer of their length (at most {most})"
        figures[name] = timed.over_an_answer(samples)
    return figures
