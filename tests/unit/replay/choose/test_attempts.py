"""Certificates of one record are counted in their folder; what earlier ones spent is not spent again."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import DataError, UsageError
from suffice.replay.choose.attempts import LEDGER, Attempt, spend
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.rows import record_sha256
from suffice.trace.rounds.table import TraceSet


def record(*, answer: str = "a", gold: str = "a", count: int = 3) -> TraceSet:
    made = [make_record(f"q{n}", [answer, "b"], gold=[gold]) for n in range(count)]
    return to_trace_set(made)


def asked(folder: Path, number: int, **given: Any) -> Attempt:
    return spend(folder, record(), {"question": number}, **{"confidence": 0.95, **given})


def test_the_first_takes_all_and_asking_again_costs_nothing(tmp_path: Path) -> None:
    first = asked(tmp_path / "new", 1)
    assert (first.level, first.earlier, first.said) == (1 - 0.95, 0, "")
    for _ in range(3):
        again = asked(tmp_path / "new", 1)
        assert (again.again, again.level, again.earlier) == (True, first.level, 0)
    assert len(_attempts(tmp_path / "new")) == 1
    other = spend(tmp_path / "new", record(answer="c"), {}, confidence=0.95)
    assert other.earlier == 0  # another record


def _attempts(folder: Path) -> list[dict[str, Any]]:
    (entry,) = json.loads((folder / LEDGER).read_text())["records"].values()
    attempts: list[dict[str, Any]] = entry["attempts"]
    return attempts


def test_another_question_gets_what_is_left_or_is_refused(tmp_path: Path) -> None:
    asked(tmp_path, 1)
    with pytest.raises(UsageError, match=r"for 1 certificate with .* --confidence 0.9; or record"):
        asked(tmp_path, 2)
    assert len(_attempts(tmp_path)) == 1  # what is refused is not counted
    wider = asked(tmp_path, 2, confidence=0.9)
    assert wider.level == pytest.approx(0.05)
    assert wider.said.startswith("this record has been used for 1 certificate with other settings")
    assert asked(tmp_path, 1).earlier == 0  # as it was then
    assert asked(tmp_path, 2, confidence=0.9).level == wider.level
    assert sum(one["level"] for one in _attempts(tmp_path)) <= 0.1 + 1e-9


def test_planned_attempts_share_equally(tmp_path: Path) -> None:
    levels = [asked(tmp_path, number, attempts=4).level for number in range(4)]
    assert levels == pytest.approx([0.0125] * 4)
    with pytest.raises(UsageError, match="used for 4 certificates"):
        asked(tmp_path, 4, attempts=4)


def test_two_at_once_do_not_both_take_all(tmp_path: Path) -> None:
    def one(number: int) -> bool:
        try:
            asked(tmp_path, number)
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(16))) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "cannot be read"),
        ("[]", "must be an object"),
        ('{"records": {}}', "version number"),
        ('{"suffice_certificates": 9, "records": {}}', "newer than 1"),
        ('{"suffice_certificates": 1, "records": []}', "must map records"),
        (
            '{"suffice_certificates": 1, "records": {"a": {"attempts": [{"level": -1}]}}}',
            "must map",
        ),
    ],
)
def test_a_count_that_cannot_be_read_is_not_begun_anew(
    text: str, said: str, tmp_path: Path
) -> None:
    (tmp_path / LEDGER).write_text(text)
    with pytest.raises(DataError, match=said):
        asked(tmp_path, 1)
    assert (tmp_path / LEDGER).read_text() == text


def test_what_tells_a_record() -> None:
    """Not its labels, nor which others lay beside it; its questions and answers."""
    mine = record_sha256(record())
    assert record_sha256(record(gold="z")) == mine
    assert record_sha256(record(count=5).only_questions(["q0", "q1", "q2"])) == mine
    for other in (record(answer="c"), record(count=4)):
        assert record_sha256(other) != mine
    blank = make_record("q0", ["", "b"], gold=["a"])
    unanswered = replace(blank, rounds=(replace(blank.rounds[0], answer=None), blank.rounds[1]))
    assert record_sha256(to_trace_set([unanswered])) != record_sha256(to_trace_set([blank]))
