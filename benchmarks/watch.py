"""What a watched round costs its loop, with and without a record, beside the bare decision: microseconds.

With a record the round is committed to the store in the call. ``added`` is the difference of the percentiles.
``SUFFICE_POSTGRES``, the address of an empty database, adds a store on that server to the same run.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from suffice.live.controller import Controller
from suffice.live.watch import Watch
from suffice.policies.rules.policy import Rule
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


def _watched(watch: Watch, *, ready: bool) -> list[float]:
    took: list[float] = []
    for question in range(QUESTIONS):
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
        controller.start("Which capital?")
        for number in range(ROUNDS):
            finished = _ready(question, number)
            took.append(_timed(lambda held=finished: controller.observe(held)))  # type: ignore[misc]
    return took


def main() -> dict[str, float]:
    policy = Rule(rule=RULE)
    with tempfile.TemporaryDirectory() as folder:
        with Watch(policy, record=f"{folder}/live.db") as watch:
            _watched(watch, ready=True)
            ready, reported = _watched(watch, ready=True), _watched(watch, ready=False)
        with Watch(policy, record=f"{folder}/durable.db", durable=True) as watch:
            durable = _watched(watch, ready=True)
    on_server: dict[str, list[float]] = {}
    if address := os.environ.get("SUFFICE_POSTGRES"):
        for name, lasting in (
            ("watch.observe of a round, recording on PostgreSQL", False),
            ("the same on PostgreSQL, outliving a power cut", True),
        ):
            with Watch(policy, record=address, durable=lasting) as watch:
                on_server[name] = _watched(watch, ready=True)
    unrecorded = _watched(Watch(policy), ready=True)
    bare = _bare(Controller(Rule(rule=f"{RULE} and round > {ROUNDS}"), max_rounds=ROUNDS))
    took = {
        "watch.observe of a round, recording": ready,
        "the same, outliving a power cut": durable,
        "the same without a record": unrecorded,
        "controller.observe": bare,
        "watch.observe of what clients report, recording": reported,
        **on_server,
    }
    figures = {
        f"{name}, {how}, microseconds": float(np.percentile(each, share))
        for name, each in took.items()
        for how, share in (("median", 50), ("p99", 99))
    }
    for how, share in (("median", 50), ("p99", 99)):
        with_, without = np.percentile(ready, share), np.percentile(unrecorded, share)
        figures[f"added by recording, {how}, microseconds"] = float(with_ - without)
        figures[f"recording over not recording, {how}, ratio"] = float(with_ / without)
    return figures
