"""Trajectories that the real ``atif`` package checks and writes are read as they were meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("atif")

from atif import Agent, Metrics, Observation, ObservationResult, Step, ToolCall, Trajectory

FIXTURE = Path(__file__).parents[1] / "unit/datasets/recordings/atif.json"


def trajectory() -> Trajectory:
    """Two searches, of which the second finds a document again, and an answer with log-probabilities."""

    def searching(number: int, query: str, *documents: tuple[str, str, float]) -> Step:
        call = f"call_{number}"
        return Step(
            step_id=number + 1,
            timestamp=f"2026-01-31T12:00:0{number}Z",
            source="agent",
            message="Let me look.",
            reasoning_content="I do not know yet.",
            tool_calls=[
                ToolCall(tool_call_id=call, function_name="search", arguments={"query": query})
            ],
            observation=Observation(
                results=[
                    ObservationResult(
                        source_call_id=call,
                        content=text,
                        extra={"retrieval_score": score, "source_doc_id": name},
                    )
                    for name, text, score in documents
                ]
            ),
            metrics=Metrics(
                prompt_tokens=100 * number, completion_tokens=20, cached_tokens=50, cost_usd=0.001
            ),
            llm_call_count=1,
        )

    return Trajectory(
        schema_version="ATIF-v1.8",
        trajectory_id="run-1",
        agent=Agent(name="looker", version="1", model_name="m"),
        steps=[
            Step(
                step_id=1,
                timestamp="2026-01-31T12:00:00Z",
                source="user",
                message="Who founded the observatory?",
            ),
            searching(
                1, "observatory founder", ("d1", "It was built.", 0.5), ("d2", "In Oslo.", 0.25)
            ),
            searching(2, "Oslo observatory", ("d2", "In Oslo.", 0.75), ("d3", "Ada did.", 0.5)),
            Step(
                step_id=4,
                timestamp="2026-01-31T12:00:03Z",
                source="agent",
                message="Ada",
                metrics=Metrics(
                    prompt_tokens=300,
                    completion_tokens=2,
                    completion_token_ids=[7, 9],
                    logprobs=[-0.25, -0.5],
                ),
            ),
        ],
    )


def test_a_trajectory_is_the_one_that_the_everyday_tests_read() -> None:
    assert trajectory().to_json_dict() == json.loads(FIXTURE.read_text())
