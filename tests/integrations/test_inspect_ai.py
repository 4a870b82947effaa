"""Logs that the real inspect_ai writes, with its mock model, are read as they were meant."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import suffice

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval  # noqa: A004
from inspect_ai.dataset import Sample
from inspect_ai.model import Logprob, Logprobs, ModelOutput, ModelUsage, TopLogprob, get_model
from inspect_ai.scorer import includes, score
from inspect_ai.solver import solver, use_tools
from inspect_ai.tool import tool

SAMPLE = Path(__file__).parents[1] / "unit/datasets/recordings/inspect.eval"
MODEL = "mockllm/model"


def search() -> Any:
    async def execute(query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        return f"Found for {query}: Oslo is the capital of Norway. " + "It lies at a fjord. " * 5

    return execute


def stepwise() -> Any:
    """Two steps with a search, scored after each, and an answer."""

    async def solve(state: Any, generate: Any) -> Any:
        for _ in range(2):
            state = await generate(state, tool_calls="single")
            await score(state)
        return await generate(state, tool_calls="none")

    return solve


def log(folder: Path, *, kind: str) -> Path:
    outputs = [
        ModelOutput.for_tool_call(MODEL, "search", {"query": "capital"}, content="Oslo, perhaps."),
        ModelOutput.for_tool_call(MODEL, "search", {"query": "Norway"}, content="Bergen?"),
        ModelOutput.from_content(MODEL, "ANSWER: Oslo"),
    ]
    for number, output in enumerate(outputs, start=1):
        output.usage = ModelUsage(
            input_tokens=100 * number, output_tokens=10, total_tokens=0, input_tokens_cache_read=5
        )
    outputs[-1].choices[0].logprobs = Logprobs(
        content=[
            Logprob(
                token="ANSWER: Oslo",
                logprob=-0.25,
                top_logprobs=[TopLogprob(token="ANSWER: Bergen", logprob=-1.5)],
            )
        ]
    )
    task = Task(
        name="capitals",
        dataset=[
            Sample(
                id="q1",
                input="Which city is the capital of Norway?",
                target=["Oslo", "Christiania"],
                metadata={"type": "city"},
            )
        ],
        solver=[use_tools(tool(search)()), solver(stepwise)()],
        scorer=includes(),
    )
    model = get_model(MODEL, custom_outputs=outputs)
    eval(task, model=model, log_format=kind, log_dir=str(folder), display="none")
    (file,) = folder.glob(f"*.{kind}")
    return file


def records(file: Path, folder: Path) -> list[suffice.QuestionRecord]:
    suffice.traces.import_(file, folder / "out", format="inspect")
    return [
        dataclasses.replace(
            record,
            rounds=tuple(
                dataclasses.replace(
                    round_, time=None, usage=dataclasses.replace(round_.usage, latency_s=None)
                )
                for round_ in record.rounds
            ),
        )
        for record in suffice.read(folder / "out").records()
    ]


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_a_log_becomes_the_record_of_the_everyday_tests(tmp_path: Path, kind: str) -> None:
    written = records(log(tmp_path / "logs", kind=kind), tmp_path / "new")
    assert written == records(SAMPLE, tmp_path / "sample")
    assert [round_.answer for round_ in written[0].rounds][-1] == "ANSWER: Oslo"
