"""Two of the same command over one folder: one is told to wait, or both come to the same result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.faults.children import Child
from tests.faults.work import WORKS, Tried, Work, result

from suffice.live.watch import Watch
from suffice.trace.rounds.reader import read_traces

TOLD = ("another recorder", "exists already", "another study", "is at it")


@pytest.mark.slow
@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_two_at_once(
    work: Work, given: Path, clean: Callable[[Work], Any], tmp_path: Path, tried: Tried
) -> None:
    tried("the same command twice at once")
    whole = clean(work)
    children = [Child(work.line(given, tmp_path), given) for _ in range(2)]
    ended = [child.end() for child in children]
    assert 0 in {end.code for end in ended}, [end.err for end in ended]
    for end in ended:
        assert "Traceback" not in end.err
        if end.code:
            assert any(words in end.err for words in TOLD), end.err
    assert not list(tmp_path.rglob("*.tmp"))
    if work.name != "monitor":  # which goes on from where the other stood
        assert result(tmp_path) == whole.result


def watch_some(words: Sequence[str]) -> int:
    """Record 200 questions of the same ids as the other watcher does."""
    with Watch(record=words[0], max_rounds=2) as watch:
        for number in range(200):
            with watch.question("?", question_id=f"q{number}") as loop:
                while not loop.done:
                    loop.observe(answer=words[1], passages=["some words"])
    return 0


@pytest.mark.slow
def test_two_watchers_of_questions_with_the_same_ids(tmp_path: Path, tried: Tried) -> None:
    tried("questions of two watchers with the same ids", 400)
    folder = tmp_path / "traces"
    children = [Child([str(folder), name], tmp_path, run=watch_some) for name in ("Oslo", "Rome")]
    for child in children:
        ended = child.end()
        assert ended.code == 0, ended.err
    records = list(read_traces(folder).records())
    assert len(records) == 400
    assert len({record.question.id for record in records}) == 400
    answers = [round_.answer for record in records for round_ in record.rounds]
    assert {name: answers.count(name) for name in set(answers)} == {"Oslo": 400, "Rome": 400}
