"""Watching a policy: what reaches which monitor, what is reported, going on from a state."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from suffice.contracts import Clusters
from suffice.errors import DataError, UsageError
from suffice.monitor.coverage import Arrivals, Arrived, Promise, Watch, promise_of
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.scoring import Match
from suffice.stats.conformal import Threshold


def policy(**fields: Any) -> MiCPPolicy:
    fitted = {
        "calibration_questions": 100,
        "first_round_scores": {"values": [0.0, 0.3, 0.5], "counts": [60, 25, 10]},
    }
    given = {
        "alpha": 0.1,
        "rounds": 2,
        "samples": 5,
        "stops": (Threshold(0.2),),
        "final": 0.2,
        "fitted_on": fitted,
    }
    return MiCPPolicy(**{**given, **fields})


def watch(policy: MiCPPolicy, answers: Iterable[Arrived]) -> Watch:
    watching = Watch(promise_of(policy))
    for arrived in answers:
        watching.take(arrived)
    return watching


def test_the_promise_of_a_policy() -> None:
    found = promise_of(policy(clusters=Clusters(by="embedding", cosine=0.8, encoder="e")))
    assert (found.alpha, found.n_calibration) == (0.1, 100)
    defined = [each for each in found.first_round_scores if not math.isnan(each)]
    assert defined == [0.0] * 60 + [0.3] * 25 + [0.5] * 10
    assert len(found.first_round_scores) == 100  # the five left are undefined
    assert found.shows_all is False
    assert promise_of(policy()).shows_all is True


@pytest.mark.parametrize(
    ("fitted", "column"),
    [
        ({}, "fitted_on.calibration_questions"),
        ({"calibration_questions": 0}, "fitted_on.calibration_questions"),
        ({"calibration_questions": 5, "first_round_scores": []}, None),
        (
            {
                "calibration_questions": 10**12,
                "first_round_scores": {"values": [0.0], "counts": [6]},
            },
            "counts",
        ),
        (
            {"calibration_questions": 5, "first_round_scores": {"values": [0.0], "counts": [6]}},
            "counts",
        ),
    ],
)
def test_policies_that_do_not_say_on_what(fitted: dict[str, Any], column: str | None) -> None:
    with pytest.raises(DataError) as caught:
        promise_of(policy(fitted_on=fitted))
    assert caught.value.column == column


def test_policies_that_promise_nothing() -> None:
    with pytest.raises(UsageError, match="promises no coverage"):
        promise_of(FixedPolicy(2))


@pytest.mark.parametrize(
    ("stop_on", "penalty", "score"),
    [("entropy", 0.0, 0.3), ("top-confidence", 0.0, -0.8), ("top-confidence", 0.1, -0.77)],
)
def test_the_score_is_what_was_calibrated(stop_on: str, penalty: float, score: float) -> None:
    promise = Promise(alpha=0.1, n_calibration=9, stop_on=stop_on, penalty=penalty)
    values = {"normalized_entropy": 0.3, "top_cluster_confidence": 0.8}
    assert promise.read({"reasons": [{"values": values}]}).score == pytest.approx(score)
    assert promise.read({"reasons": [{"values": {}}]}).score is None
    assert promise.read({"score": 0.25}).score == 0.25
    assert promise.read({}).score is None


def test_what_reaches_which_monitor() -> None:
    answers = [
        Arrived(),
        Arrived(covered=True),
        Arrived(covered=False, score=0.3),
        Arrived(undecided=True),
        Arrived(score=0.0),
        Arrived(score=math.nan),
    ]
    found = watch(policy(), answers)
    assert found.counts == {"answers": 6, "labelled": 3, "undecided": 1, "misses": 1}
    assert found.coverage == pytest.approx(2 / 3)
    assert {kind: one.seen for kind, one in found.monitors.items()} == {
        "coverage": 3,
        "exchangeability": 3,
    }
    assert not found.alarmed
    json.dumps(found.to_json(), allow_nan=False)


def test_the_interval_is_exact_and_holds_the_undecided() -> None:
    answers = [Arrived(covered=True)] * 8 + [Arrived(covered=False)] * 2
    low, high = watch(policy(), answers).interval or (0, 0)
    assert (round(low, 4), round(high, 4)) == (0.4439, 0.9748)  # Clopper and Pearson, 8 of 10
    unknown = [*answers[1:], Arrived(undecided=True)]
    lower, same = watch(policy(), unknown).interval or (0, 0)
    assert lower < low
    assert same == high
    assert watch(policy(), []).coverage is None
    assert watch(policy(), []).interval is None


def test_going_on_equals_going_through() -> None:
    stream = [Arrived(covered=n % 3 > 0, score=(0.0, 0.3, 0.9, math.nan)[n % 4]) for n in range(80)]
    promise = promise_of(policy())
    through, part = Watch(promise, seed=7), Watch(promise, seed=7)
    for each in stream:
        through.take(each)
    for number, each in enumerate(stream):
        if number % 25 == 0:
            state = json.loads(json.dumps(part.state(), allow_nan=False))
            part = Watch(promise, seed=7).resume(state)
        part.take(each)
    assert part.text() == through.text()
    assert part.to_json() == through.to_json()
    assert part.state() == through.state()
    assert through.alarmed


@pytest.mark.parametrize(
    ("change", "column"),
    [
        ({"suffice_watch": 2}, "suffice_watch"),
        ({"promise": "000000000000"}, "promise"),
        ({"level": 0.01}, "level"),
        ({"seed": 1}, "seed"),
        ({"answers": -1}, "answers"),
        ({"monitors": []}, None),
        ({"monitors": [{}, {}]}, "suffice_monitor"),
        ({"alarms": None}, None),
    ],
)
def test_a_spoiled_state_is_refused(change: dict[str, Any], column: str | None) -> None:
    begun = Watch(promise_of(policy()))
    begun.take(Arrived(covered=True))
    with pytest.raises(DataError) as caught:
        begun.resume({**begun.state(), **change})
    assert caught.value.column == column


def test_a_state_of_another_policy_is_refused() -> None:
    state = Watch(promise_of(policy())).state()
    Watch(promise_of(policy(notes=("a note decides nothing",)))).resume(state)
    for other in ({"match": Match(f1=0.5)}, {"final": 0.3}, {"stops": (Threshold(0.1),)}):
        with pytest.raises(DataError) as caught:
            Watch(promise_of(policy(**other))).resume(state)
        assert caught.value.column == "promise"


# --- answers as JSON lines ------------------------------------------------------------------------
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
    "bad", ["{", "[]", '{"score": NaN}', '{"covered": 1}', "[" * 100_000, '{"covered": true} {}']
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
