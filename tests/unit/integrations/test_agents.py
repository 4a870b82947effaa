"""What the adapters of agents share."""

from __future__ import annotations

from dataclasses import dataclass

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
