"""What a watched round costs its loop, with and without a record, beside the bare decision: microseconds.

A question that ends waits until it is kept, some milliseconds in which the processor turns to other work,
and rounds after such a pause are slower for that alone. So the loops without a record pause as long.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from suffice.pipelines.live.controller import Controller
from suffice.pipelines.live.watch import Watch
from suffice.policies.rules.policy import RulePolicy
from suffice.trace.rounds.records import Passage, Round, Token, Usage

RULE = "answer_stable and not abstained"
QUESTIONS, ROUNDS = 1_000, 5


def _ready(question: int, number: int) -> Round:
    """A round of five passages and a short answer."""
    return Round(
        answer="Oslo" if number else "Bergen",
        passages=tuple(
            Passage(id=f"{question}-{number}-{rank}", text="word " * 100, score=1 - rank / 10)
            for rank in range(5)
        ),
        tokens=tuple(Token("Oslo", -0.1) for _ in range(10)),
        usage=Usage(llm_calls=1, prompt_tokens=600, completion_tokens=10),
    )


def _reported(question: int, number: int) -> Mapping[str, Any]:
    """The same as a search and an OpenAI client give it."""
    return {
        "answer": "Oslo" if number else "Bergen",
        "passages": [
            {"id": f"{question}-{number}-{rank}", "text": "word " * 100, "score": 1 - rank / 10}
            for rank in range(5)
        ],
        "logprobs": {"content": [{"token": "Oslo", "logprob": -0.1, "top_logprobs": []}] * 10},
        "usage": {"prompt_tokens": 600, "completion_tokens": 10},
    }


def _timed(act: Callable[[], object]) -> float:
    started = time.perf_counter()
    act()
    return (time.perf_counter() - started) * 1e6


PAUSE_S = 0.002


def _watched(watch: Watch, *, ready: bool, pause_s: float = 0.0) -> list[float]:
    took: list[float] = []
    for question in range(QUESTIONS):
        if pause_s:
            time.sleep(pause_s)
        with watch.question("Which capital?") as loop:
            for number in range(ROUNDS):
                if ready:
                    finished = _ready(question, number)
                    took.append(_timed(lambda held=finished: loop.observe(held)))  # type: ignore[misc]
                else:
                    parts = _reported(question, number)
                    took.append(_timed(lambda held=parts: loop.observe(**held)))  # type: ignore[misc]
    return took


def _bare(controller: Controller) -> list[float]:
    took: list[float] = []
    for question in range(QUESTIONS):
        time.sleep(PAUSE_S)
        controller.start("Which capital?")
        for number in range(ROUNDS):
            finished = _ready(question, number)
            took.append(_timed(lambda held=finished: controller.observe(held)))  # type: ignore[misc]
    return took


def main() -> dict[str, float]:
    policy = RulePolicy(rule=RULE)
    with tempfile.TemporaryDirectory() as folder, Watch(policy, record=folder) as watch:
        _watched(watch, ready=True)
        ready, reported = _watched(watch, ready=True), _watched(watch, ready=False)
    unrecorded = _watched(Watch(policy), ready=True, pause_s=PAUSE_S)
    hot = _watched(Watch(policy), ready=True)
    bare = _bare(Controller(RulePolicy(rule=f"{RULE} and round > {ROUNDS}"), max_rounds=ROUNDS))
    return {
        f"{name}, {how}, microseconds": float(np.percentile(took, share))
        for name, took in (
            ("watch.observe of a round, recording (p99 under 100)", ready),
            ("the same without a record", unrecorded),
            ("the same without a record and without a pause", hot),
            ("controller.observe", bare),
            ("watch.observe of what clients report, recording", reported),
        )
        for how, share in (("median", 50), ("p99", 99))
    }
