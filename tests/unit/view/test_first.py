"""The questions that stand first in a record, read before its others."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces
from suffice.view import first
from suffice.view.first import first_questions


def test_they_are_as_they_stand_in_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "r.parquet"
    write_traces([make_record(f"q{n}", ("a", "b", "c")) for n in range(8)], file)
    assert first_questions(file) is None  # small
    monkeypatch.setattr(first, "_SMALL", 0)
    every, shares = first_questions(file), list[float]()
    assert every is not None
    assert every.question_ids == read_traces(file).question_ids
    monkeypatch.setattr(first, "_ROWS", 8)  # two whole questions and most of a third
    some = first_questions(file)
    assert some is not None
    assert some.question_ids == ("q0", "q1")
    assert [record.rounds for record in some.records()] == [
        record.rounds for record in [*read_traces(file).records()][:2]
    ]
    read_traces(file, lazily_above=0, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    (tmp_path / "torn.parquet").write_bytes(b"torn")
    assert first_questions(tmp_path / "torn.parquet") is None
