"""What the adapters of agents share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

import suffice
from suffice.errors import MissingExtra, SufficeWarning, UsageError
from suffice.integrations.agents import (
    AgentRun,
    Framework,
    ToolResult,
    outcome,
    round_of_tools,
    tool_passages,
)

NUMPY = Framework(name="arrays", package="numpy", tested="1.0.3")


@dataclass
class Document:
    page_content: str
    id: str


def test_another_version_is_said_with_the_tested_one() -> None:
    with pytest.warns(SufficeWarning, match="numpy"):
        NUMPY.point("numpy", "array")
    with pytest.raises(UsageError, match="agents"):
        NUMPY.point("numpy", "agents")
    with pytest.raises(UsageError, match="agents"):
        NUMPY.point("numpy.agents")
    with pytest.raises(UsageError, match="ndarray"):
        NUMPY.point("numpy", "ndarray.agents")
    absent = Framework(name="it", package="absent-package", tested="1")
    with pytest.raises(MissingExtra, match="package"):
        absent.point("absent_package")


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ("one text", ["one text"]),
        (["a", "b"], ["a", "b"]),
        ([Document("a", "1"), Document("b", "2")], ["a", "b"]),
        ({"documents": [{"text": "a"}]}, ["a"]),
        ({"text": "a"}, ["a"]),
        ([3, 4], ["3", "4"]),
        (7, ["7"]),
        ("  ", []),
        (None, []),
    ],
)
def test_outputs_become_passages(output: object, texts: list[str]) -> None:
    assert [passage.text for passage in tool_passages(output)] == texts


def test_the_calls_of_a_step_are_one_round() -> None:
    results = [
        ToolResult(tool="search", output=[Document("a", "1")], arguments={"query": "boats"}),
        ToolResult(tool="todo", output="noted", arguments={"text": "search boats"}),
        ToolResult(tool="search", output=[Document("b", "2")], arguments={"q": "trees", "k": 3}),
    ]
    made = round_of_tools(results, {"search"})
    assert made is not None
    assert [passage.id for passage in made["passages"]] == ["1", "2"]
    assert (made["query"], made["action"]) == ("boats\ntrees", "search")
    assert round_of_tools(results[1:2], {"search"}) is None
    with suffice.Watch(suffice.Rule(rule="new_passages < 0.5")).question("Where?") as loop:
        loop.observe(**made)
    with pytest.raises(UsageError, match="in-loop"):  # of an adapter that cannot ask there
        AgentRun(loop, tools=None, probe="in-loop")
    said = outcome(loop)
    assert said["policy_hash"] == loop.policy_hash is not None
    assert (said["rounds"], said["stopped_by"]) == (1, "end")


@dataclass
class Model:
    model_name: str


@pytest.mark.parametrize("texts", ["all", "no-texts"])
def test_what_a_framework_tells_of_the_loop_stands_in_the_run_document(
    texts: Literal["all", "no-texts"], tmp_path: Path
) -> None:
    secret, place = "Bearer abcdef123456", tmp_path / "live.db"

    def asked(watch: suffice.Watch, model: str, prompt: object) -> Any:
        with watch.question(
            "Where?", question_id="q"
        ) as loop:  # the run is written before its rounds
            loop.describe(Model(model), prompt)
            loop.observe(answer="Oslo")
        return suffice.read(place).origin.run

    run = {"model": "mine"}
    with suffice.Watch(record=place, texts=texts, run=run) as watch:
        told = asked(watch, "gpt-5", f"Be brief. Authorization: {secret}")
    assert told["model"] == "mine"
    assert secret not in json.dumps(told)
    assert ("Be brief" in told["prompt"]) is (texts == "all")
    with suffice.Watch(record=tmp_path / "two.db", texts=texts) as watch:
        place = tmp_path / "two.db"
        first, second, third = (
            asked(watch, *parts)
            for parts in (("gpt-5", "Be brief."), ("gpt-5", None), ("mini", "Be long."))
        )
    assert first["model"] == second["model"] == "gpt-5"
    assert first["prompt"] == second["prompt"] != third["prompt"]
    assert third["model"] == "several"
    if texts == "all":
        suffice.traces.redact(tmp_path / "live.db", tmp_path / "none")
        assert "brief" not in json.dumps(suffice.read(tmp_path / "none").origin.run)
