"""Settings that cannot be, subsets, what an agent sees, and the written form."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import DEFAULT_GAP, BenchmarkSettings
from suffice.errors import UsageError

SMALL = BenchmarkSettings(seed=3, tasks=8, hard_small=3, documents=60)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": -1}, r"seed must be between 0 and 2\*\*63 - 1, found -1"),
        ({"seed": 2**63}, "seed must be between"),
        ({"seed": 1.5}, "seed must be a whole number, found 1.5"),
        ({"tasks": True}, "tasks must be a whole number, found True"),
        ({"tasks": 0, "hard_small": 0}, "tasks must be at least 1, found 0"),
        ({"hard_small": -1}, r"hard_small must be between 0 and tasks \(50\), found -1"),
        ({"hard_small": 51}, r"hard_small must be between 0 and tasks \(50\), found 51"),
        ({"documents": 299}, "299 documents are too few for 50 tasks; ask for at least 300"),
        ({"gap": -0.01}, r"gap must be a number in \[0, 1\], found -0.01"),
        ({"gap": 1.01}, "gap must be a number in"),
        ({"gap": float("nan")}, "gap must be a number in"),
        ({"gap": True}, "gap must be a number in"),
        ({"gap": "0.5"}, "gap must be a number in"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BenchmarkSettings(**changes)


def test_the_edges_of_the_settings_are_allowed() -> None:
    for gap in (0, 1, 0.0, 1.0):
        generate(BenchmarkSettings(seed=2**63 - 1, tasks=1, hard_small=1, documents=6, gap=gap))
    assert generate(BenchmarkSettings(seed=0, tasks=2, hard_small=0, documents=12)).tasks


def test_the_published_sizes_are_the_default() -> None:
    settings = BenchmarkSettings()
    assert (settings.seed, settings.tasks, settings.hard_small) == (42, 50, 20)
    assert (settings.documents, settings.gap) == (450, DEFAULT_GAP)


def test_subsets() -> None:
    benchmark = generate(SMALL)
    assert benchmark.subset("hard") == benchmark.tasks
    small = benchmark.subset("hard-small")
    assert len(small) == 3
    assert all(task.small for task in small)
    with pytest.raises(UsageError, match="no subset 'easy'; name 'hard' or 'hard-small'"):
        benchmark.subset("easy")  # type: ignore[arg-type]


def test_an_agent_sees_goal_context_and_depth() -> None:
    for task in generate(SMALL).tasks:
        assert asdict(task.visible) == {
            "id": task.id,
            "goal": task.goal,
            "context": task.context,
            "total_steps": task.depth,
        }
        assert task.gold.constraints == (task.constraint.token,)
        assert task.gold.passage_ids == task.document_ids
        assert task.query == f"{task.goal} {task.context}"


def test_written_files_hold_everything(tmp_path: Path) -> None:
    benchmark = generate(SMALL)
    benchmark.write(tmp_path / "new" / "folder")
    rows = {
        name: [
            json.loads(line)
            for line in (tmp_path / "new" / "folder" / f"{name}.jsonl")
            .read_text(encoding="utf-8")
            .splitlines()
        ]
        for name in ("tasks", "documents")
    }
    assert [row["id"] for row in rows["tasks"]] == [task.id for task in benchmark.tasks]
    assert [row["constraint"]["token"] for row in rows["tasks"]] == [
        task.constraint.token for task in benchmark.tasks
    ]
    assert [(row["id"], row["title"], row["text"]) for row in rows["documents"]] == [
        (document.id, document.title, document.text) for document in benchmark.documents
    ]
