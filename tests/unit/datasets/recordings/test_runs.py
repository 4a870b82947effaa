"""Runs of agents become records: a trajectory, spans, a log of evaluations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from suffice.datasets.recordings.registry import import_traces
from suffice.errors import DataError
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, QuestionRecord, Token

HERE = Path(__file__).parent


def imported(path: Path, kind: str, folder: Path) -> list[QuestionRecord]:
    import_traces(path, folder / "out.parquet", format=kind)
    return list(read_traces(folder / "out.parquet").records())


def changed(name: str, folder: Path, change: Callable[[Any], Any]) -> Path:
    """A sample with something else in it."""
    document = json.loads((HERE / name).read_text())
    path = folder / name
    path.write_text(json.dumps(change(document) or document))
    return path


# --- ATIF -------------------------------------------------------------------------------------------
def test_steps_of_a_trajectory_are_rounds(tmp_path: Path) -> None:
    (record,) = imported(HERE / "atif.json", "atif", tmp_path)
    assert (record.question.id, record.question.text) == ("run-1", "Who founded the observatory?")
    first, second = record.rounds
    assert (first.answer, second.answer, record.stopped_by) == (None, "Ada", "end")
    assert (first.query, second.query) == ("observatory founder", "Oslo observatory")
    assert first.passages == (
        Passage(id="d1", text="It was built.", score=0.5),
        Passage(id="d2", text="In Oslo.", score=0.25),
    )
    assert second.passages == (Passage(id="d3", text="Ada did.", score=0.5),)
    assert second.refound == (Passage(id="d2", score=0.75),)
    assert second.tokens == (Token("", -0.25), Token("", -0.5))
    usage = second.usage
    assert (usage.llm_calls, usage.answer_calls, usage.retrievals) == (2, 1, 1)
    assert (usage.prompt_tokens, usage.answer_prompt_tokens, usage.latency_s) == (500, 300, 2.0)
    assert first.usage.cached_tokens == 50
    assert first.signals == {"cost_usd": 0.001}


def _asked_again(document: Any) -> Any:
    steps = document["steps"]
    document["steps"] = [*steps, *steps, {**steps[1], "is_copied_context": True}]
    return [document]


def test_a_trajectory_with_several_questions_and_one_that_was_cut(tmp_path: Path) -> None:
    path = changed("atif.json", tmp_path, _asked_again)
    first, second = imported(path, "atif", tmp_path)
    assert (first.question.id, second.question.id) == ("run-1", "run-1#2")
    assert first.rounds == second.rounds
    cut = changed("atif.json", tmp_path, lambda it: it["steps"].pop() and None)
    (record,) = imported(cut, "atif", tmp_path / "cut")
    assert ([round_.answer for round_ in record.rounds], record.stopped_by) == ([None, None], None)


BAD_ATIF: list[tuple[Callable[[Any], Any], str]] = [
    (
        lambda it: it.update(schema_version="2"),
        "column schema_version: is no trajectory of ATIF-v1.x",
    ),
    (lambda it: it["steps"].clear(), "column steps: has no step of the agent"),
    (
        lambda it: it["steps"][1].update(source="model"),
        r"steps\[1\].source: must be system, user or",
    ),
    (
        lambda it: it["steps"][1]["metrics"].update(prompt_tokens=-1),
        r"steps\[1\].metrics.prompt_tokens: must be a whole number from 0, found -1",
    ),
    (
        lambda it: it["steps"][3]["metrics"].update(logprobs=["a"]),
        r"steps\[3\].metrics.logprobs: must be a list of numbers",
    ),
    (
        lambda it: it["steps"][1].update(observation=[1]),
        r"steps\[1\].observation: must be an object",
    ),
    (lambda it: it["steps"][1].update(timestamp="noon"), r"steps\[1\].timestamp: must be a moment"),
]


@pytest.mark.parametrize(("change", "message"), BAD_ATIF)
def test_what_is_wrong_in_a_trajectory_is_said(
    tmp_path: Path, change: Callable[[Any], Any], message: str
) -> None:
    path = changed("atif.json", tmp_path, lambda it: change(it) and None)
    with pytest.raises(DataError, match=message) as error:
        imported(path, "atif", tmp_path)
    assert "atif.json, row 0" in str(error.value)
