"""What a planning agent takes beside its model: its own time over the model's, and over a bare loop's."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable
from functools import partial

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark
from studies.hidden_constraints.scripted import ScriptedPlanner

from suffice.errors import SufficeWarning
from suffice.loops.planning.agent import PlanningAgent
from suffice.loops.planning.controls import agent_control
from suffice.loops.planning.parsing import PLAN_SCHEMA
from suffice.loops.planning.prompts import PlanText
from suffice.protocols import Generation, GenerationRequest
from suffice.retrieval.lexical.tfidf import TfidfIndex

DELAY_S = 0.05  # a fast server's reply; a slower one makes the share smaller
TASKS = 12


class Slow:
    """The scripted planner at a server's pace; counts the seconds spent in it."""

    def __init__(self, benchmark: Benchmark) -> None:
        self._planner = ScriptedPlanner(benchmark)
        self.seconds = 0.0
        self._lock = threading.Lock()
        self.name, self.api = self._planner.name, self._planner.api

    def generate(self, request: GenerationRequest) -> Generation:
        started = time.perf_counter()
        time.sleep(DELAY_S)
        reply = self._planner.generate(request)
        with self._lock:
            self.seconds += time.perf_counter() - started
        return reply


def bare(model: Slow, benchmark: Benchmark) -> None:
    """The same calls without a gate, a retriever, parsing or records."""
    for task in benchmark.tasks[:TASKS]:
        text = PlanText(task.visible, 2000)
        for number in range(1, task.depth + 1):
            drawn = model.generate(
                GenerationRequest(prompt=text.ask_next(model, number), n=2, temperature=0.6)
            )
            text.take(number, drawn.completions[0].text)
        model.generate(GenerationRequest(prompt=text.ask_result(model), json_schema=PLAN_SCHEMA))


def planned(agent: PlanningAgent, benchmark: Benchmark) -> None:
    for task in benchmark.tasks[:TASKS]:
        agent.run(task.visible)


def shares(model: Slow, work: Callable[[], None]) -> tuple[float, float]:
    """Seconds in all, and the share of them not spent in the model."""
    model.seconds, started = 0.0, time.perf_counter()
    work()
    took = time.perf_counter() - started
    return took, (took - model.seconds) / took


def main() -> dict[str, float]:
    benchmark = generate()
    model = Slow(benchmark)
    index = TfidfIndex.build(benchmark.documents)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        agent = PlanningAgent(model, agent_control("confidence-gated"), index)
    planned(agent, benchmark)  # what is loaded at first use
    took, share = shares(model, partial(planned, agent, benchmark))
    plain, _ = shares(model, partial(bare, model, benchmark))
    return {
        "gated planning, 50 ms a reply: share of time beyond the model (under 0.02)": share,
        "gated planning over the bare calls, seconds": took / plain,
    }
