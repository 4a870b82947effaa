"""Answers in use as JSON lines: what covers, what is unknown, what is refused."""

from __future__ import annotations

import io
import math
from dataclasses import replace
from typing import Any

import pytest

from suffice.errors import DataError
from suffice.monitor.coverage import Arrivals, Promise

PROMISE = Promise(alpha=0.1, n_calibration=9)
GOLD = {"gold_answers": ["The Tempest", "Tempest (play)"]}


def held(*answers: str, cannot_answer: bool = False) -> dict[str, Any]:
    members = [{"answer": each, "confidence": 0.5, "round": 1} for each in answers]
    return {"answer_set": {"answers": members, "cannot_answer": cannot_answer}}


@pytest.mark.parametrize(
    ("document", "covered", "undecided"),
    [
        ({}, None, False),
        ({"covered": True}, True, False),
        ({"covered": False, **GOLD, **held("tempest")}, False, False),  # stated comes first
        ({"covered": None}, None, False),
        ({"covered": None, **GOLD, **held("tempest!")}, True, False),
        ({**GOLD, **held("Hamlet", "a tempest")}, True, False),
        ({**GOLD, **held("Hamlet")}, False, False),
        ({**GOLD, **held()}, False, False),
        ({**GOLD, **held("Hamlet"), "samples": ["Lear"]}, False, False),
        ({"gold_answers": [], **held("Hamlet")}, None, False),
        # only samples tell whether "Can't Answer" is right
        ({**GOLD, **held("Hamlet", cannot_answer=True)}, None, True),
        ({**GOLD, **held("Hamlet", cannot_answer=True), "covered": True}, True, False),
        ({**GOLD, **held("Hamlet", cannot_answer=True), "samples": ["Lear"]}, True, False),
        ({**GOLD, **held(cannot_answer=True), "samples": []}, True, False),
        ({**GOLD, **held(cannot_answer=True), "samples": [["Lear"], ["tempest"]]}, False, False),
        ({**GOLD, **held("Tempest", cannot_answer=True)}, True, False),
    ],
)
def test_covered(document: dict[str, Any], covered: bool | None, undecided: bool) -> None:
    found = PROMISE.read(document)
    assert (found.covered, found.undecided) == (covered, undecided)


@pytest.mark.parametrize(
    ("more", "covered", "undecided"),
    [
        (held("the play Tempest"), None, True),
        ({**held("the play Tempest"), "samples": ["the play Tempest", "Tempest"]}, None, True),
        ({**held("Hamlet"), "samples": ["Hamlet"]}, False, False),
        ({**held(cannot_answer=True), "samples": ["Hamlet"]}, True, False),
        (held("Tempest"), True, False),
    ],
)
def test_clusters_by_meaning_may_hide_a_right_sample(
    more: dict[str, Any], covered: bool | None, undecided: bool
) -> None:
    found = replace(PROMISE, shows_all=False).read({**GOLD, **more})
    assert (found.covered, found.undecided) == (covered, undecided)


def test_scores() -> None:
    assert PROMISE.read({"reasons": []}).score is None
    assert PROMISE.read({"score": 0.5, "reasons": "not read"}).score == 0.5
    undefined = PROMISE.read({"score": None}).score
    assert undefined is not None
    assert math.isnan(undefined)
    reasons = [{"round": 1, "values": {"normalized_entropy": 0.3, "lot": None}}, {"round": 2}]
    assert PROMISE.read({"reasons": reasons}).score == 0.3


@pytest.mark.parametrize(
    ("document", "column"),
    [
        ([], None),
        ({"covered": 1}, "covered"),
        ({"gold_answers": "Ada"}, "gold_answers"),
        ({"gold_answers": [1]}, "gold_answers"),
        (GOLD, "answer_set"),
        ({**GOLD, "answer_set": None}, "answer_set"),
        ({**GOLD, "answer_set": {"answers": "Ada"}}, "answer_set.answers"),
        ({**GOLD, "answer_set": {"answers": [{}]}}, "answer_set.answers"),
        ({**GOLD, "answer_set": {"answers": []}}, "answer_set.cannot_answer"),
        ({**GOLD, **held(cannot_answer=True), "samples": "Ada"}, "samples"),
        ({**GOLD, **held(cannot_answer=True), "samples": [["Ada"], "Bo"]}, "samples"),
        ({"score": "0.5"}, "score"),
        ({"score": True}, "score"),
        ({"score": 1e999}, "score"),
        ({"score": 10**400}, "score"),
        ({"reasons": {}}, "reasons"),
        ({"reasons": [{"values": 1}]}, "reasons"),
        ({"reasons": [{"values": {"a": "b"}}]}, "reasons[0].values.a"),
    ],
)
def test_malformed(document: Any, column: str | None) -> None:
    with pytest.raises(DataError) as caught:
        PROMISE.read(document)
    assert caught.value.column == column


def lines(*texts: str) -> io.BytesIO:
    return io.BytesIO("\n".join(texts).encode())


def test_a_stream_of_lines() -> None:
    stream = lines('\ufeff{"covered": true}', "", "  ", '{"covered": false, "note": "Zoë"}', "")
    assert [each.covered for each in Arrivals(stream, "a.jsonl", PROMISE)] == [True, False]


@pytest.mark.parametrize(
    "bad",
    ["{", "[]", '{"score": NaN}', '{"covered": 1}', "[" * 100_000, '{"covered": true} {}'],
)
def test_a_bad_line_is_named_or_skipped(bad: str) -> None:
    texts = ['{"covered": true}', "", bad, '{"covered": false}']
    with pytest.raises(DataError, match=r"^a\.jsonl.*: line 3: "):
        list(Arrivals(lines(*texts), "a.jsonl", PROMISE))
    found = Arrivals(lines(*texts), "a.jsonl", PROMISE, skip_invalid=True)
    assert [each.covered for each in found] == [True, False]
    assert found.skipped == 1
    assert found.first_skipped is not None
    assert "line 3" in found.first_skipped
