"""Questions of the user's own: formats, columns, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.datasets.registry import load, read_questions


@pytest.mark.parametrize(
    "name", ["q.csv", "q.csv.gz", "q.tsv", "q.jsonl", "q.JSONL", "q.json", "q.parquet"]
)
def test_every_format_gives_the_same(tmp_path: Path, name: str) -> None:
    examples = read_questions(written(tmp_path / name), MAP)
    assert [each.question.id for each in examples] == ["007", "008", "009"]
    assert [each.question.text for each in examples] == ["Who, ever?", "What?", "When?"]
    assert [each.question.type for each in examples] == ["who", None, None]
    assert [each.gold.answers for each in examples] == [("Ann", "Bo"), ('a "C"',), ()]
    assert not any(each.passages for each in examples)
    assert load(str(tmp_path / name), columns=MAP, limit=2) == examples[:2]
