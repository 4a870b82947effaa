"""Paths that no label has a part in, and what is proven along them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from tests.choice_population import reaching

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import Promise
from suffice.evaluation.choose.candidates import LATEST
from suffice.evaluation.choose.proof import (
    COINS,
    POWER,
    Along,
    OwnPath,
    Path,
    Step,
    paths_of,
    prove,
    walk,
)
from suffice.evaluation.settings import LOSSES, ChoiceSettings
from suffice.measures.measures import Measures
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.trace_set import TraceSet


def along(
    traces: TraceSet, paths: list[Path] | None = None, *, cost: str = "rounds", **given: object
) -> Along:
    record = Measures.of(traces).by("f1")
    settings = ChoiceSettings(cost=cost, resamples=5)
    return Along(record, settings, paths or [*paths_of(record, cost, **given)], LATEST)  # type: ignore[arg-type]


def promise(loss: float) -> Promise:
    return Promise(max_loss=loss)


# --- paths -----------------------------------------------------------------------------------------
def test_labels_have_no_part_in_paths() -> None:
    records = reaching(60)
    for answer in ("Oslo", "other 0", "nothing"):
        relabelled = [replace(record, gold=Gold(answers=(answer,))) for record in records]
        of = Measures.of(to_trace_set(relabelled))
        others = Measures.of(to_trace_set(records))
        assert [*paths_of(of, "rounds")] == [*paths_of(others, "rounds")]


def test_every_policy_of_a_path_stops_no_question_later_than_the_one_before() -> None:
    traces = to_trace_set(reaching(80, reached=(0.2, 0.5, 0.7, 0.9, 0.0)))
    found = along(traces)
    assert set(found.names) == {"fixed", "agreement", "confidence", "novelty"}
    measures = Measures.of(traces)
    for path in range(len(found.names)):
        before = np.full(80, 5)
        for number in range(len(found.costs(path))):
            policy = found.candidate(found.step(path, number)).policy.policy
            assert policy is not None
            stops = np.minimum(measures.wanted_rounds(policy), 5)
            if number % len(COINS) == len(COINS) - 1:
                assert (stops <= before).all()
                assert (stops < before).any()
                before = stops


def test_a_coin_gives_one_of_two_neighbours_and_its_share() -> None:
    traces = to_trace_set(reaching(400))
    found = along(traces)
    measures = Measures.of(traces)

    def stops(path: int, number: int) -> np.ndarray:
        policy = found.candidate(found.step(path, number)).policy.policy
        assert policy is not None
        return np.minimum(measures.wanted_rounds(policy), 3)

    for path in range(len(found.names)):
        first, last = np.full(400, 3), stops(path, 3)
        for number, share in enumerate(COINS):
            mixed = stops(path, number)
            differ = first != last
            assert np.isin(mixed, (first, last)).all() or share == 1.0
            assert ((mixed == first) | (mixed == last)).all()
            drawn = float((mixed == last)[differ].mean())
            assert drawn == pytest.approx(share, abs=0.12)


def test_a_path_of_ones_own_stands_beside_the_others_and_must_stop_ever_sooner() -> None:
    records = reaching(40)
    own = OwnPath("answer_token_margin > x", (9.0, 4.0, 1.0))
    found = along(to_trace_set(records), own=[own])
    assert found.names[-1] == "own path 1"
    with pytest.raises(UsageError, match="answer_token_margin > 4"):
        along(to_trace_set(records), own=[OwnPath("answer_token_margin > x", (1.0, 4.0))])
    for text in ("answer_token_margin > 3", "x > x", "unheard_of > x"):
        with pytest.raises(UsageError):
            along(to_trace_set(records), own=[OwnPath(text, (1.0,))])


def test_min_rounds_holds_every_policy_of_every_path() -> None:
    traces = to_trace_set(reaching(60, reached=(0.2, 0.5, 0.7, 0.9)))
    found = along(traces, min_rounds=3)
    for path in range(len(found.names)):
        for number in range(len(found.costs(path))):
            policy = found.candidate(found.step(path, number)).policy.policy
            assert policy is not None
            assert Measures.of(traces).wanted_rounds(policy).min() >= 3


# --- the walk --------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(40))
def test_what_a_walk_rejects_does_not_hang_on_the_order_of_its_paths(seed: int) -> None:
    generator = np.random.default_rng(seed)
    paths = [generator.random(int(generator.integers(1, 4))) ** 3 for _ in range(4)]
    gives = [True, True, True, False]
    shares = [0.2, 0.1, 0.05, 0.05]
    found = walk(paths, shares, gives)
    for order in permutations(range(4)):
        again = walk(
            [paths[n] for n in order], [shares[n] for n in order], [gives[n] for n in order]
        )
        assert [found[n] for n in order] == [*again]


# --- proofs ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(3))
def test_proofs_equal_their_slow_twin(seed: int) -> None:
    """Paths, questions, orders and bets one after the other, in plain Python."""
    traces = to_trace_set(reaching(90, reached=(0.5, 0.8, 0.85), seed=seed))
    found = along(traces)
    promises = [promise(loss) for loss in LOSSES]
    rows = prove(found, None, promises)
    by_hand = rejected_by_hand(Measures.of(traces), found, LOSSES)
    assert [row.rejected for row in rows] == [sum(of_promise) for of_promise in by_hand]


def test_copies_of_questions_prove_nothing_more() -> None:
    """Five copies of each, under ids of their own: one text is one unit."""
    records = reaching(120, reached=(0.5, 0.8, 0.85))
    copies = [
        replace(record, question=replace(record.question, id=f"{record.question.id}{copy}"))
        for record in records
        for copy in ("", "-b", "-c", "-d", "-e")
    ]
    alone, together = along(to_trace_set(records)), along(to_trace_set(copies))
    assert len(together.half) == len(alone.half) == 120
    for path in range(len(alone.names)):
        np.testing.assert_allclose(
            together.p_values(path, promise(0.05).bounds, 0.02),
            alone.p_values(path, promise(0.05).bounds, 0.02),
        )
        np.testing.assert_allclose(together.costs(path), alone.costs(path))


@pytest.mark.parametrize(("loss", "pilot"), [(0.03, 300), (0.04, 120)])
def test_as_many_questions_as_were_named_prove_it_about_as_often_as_was_said(
    loss: float, pilot: int
) -> None:
    population = to_trace_set(reaching(3000, reached=(0.5, 0.8, 0.81), seed=5))
    everyone = Measures.of(population).by("f1")
    everyone.scores()
    named, generator = [], np.random.default_rng(1)

    def sample(size: int) -> Along:
        part = everyone.take(np.isin(np.arange(3000), generator.permutation(3000)[:size]))
        paths = [Path("fixed", (Step("round >= 2", "after round 2"),))]
        return Along(part, ChoiceSettings(cost="rounds"), paths, LATEST)

    for _ in range(11):
        needed = sample(pilot).needed(promise(loss).bounds, 0.05)
        named += [] if needed is None else [needed]
    wanted = int(np.median(named))
    proven = [
        prove(sample(wanted), None, [promise(loss)])[0].rejected == len(COINS) for _ in range(60)
    ]
    assert POWER - 0.25 <= np.mean(proven) <= POWER + 0.19


def test_a_record_of_groups_needs_more_questions_than_it_has() -> None:
    records = [
        replace(one, question=replace(one.question, group=f"session {number // 3}"))
        for number, one in enumerate(reaching(120, reached=(0.5, 0.8, 0.81), seed=5))
    ]
    found = along(to_trace_set(records))
    assert len(found.half) == 40
    needed = [found.needed(promise(loss).bounds, 0.05) for loss in (0.02, 0.05, 0.1, 0.2)]
    assert [one for one in needed if one is not None]
    assert all(one is None or one > 120 for one in needed)


def test_without_gold_answers_no_label_is_asked_for() -> None:
    record = Measures.of(to_trace_set(reaching(40))).by("agreement")
    found = Along(record, ChoiceSettings(cost="rounds"), [*paths_of(record, "rounds")], LATEST)
    (row,) = prove(found, None, [promise(0.05)])
    assert "label" not in row.more


def rejected_by_hand(record: Measures, along: Along, losses: Sequence[float]) -> list[list[int]]:
    """How many hypotheses of every path are rejected, a list for each allowed loss."""
    scores = record.scores().compared
    ends = record.traces.last_rounds.tolist()
    ids = [*record.traces.question_ids]
    full = [float(scores[row, end - 1]) for row, end in enumerate(ends)]
    paths = []
    for path in range(len(along.names)):
        lost, before = [], [0.0] * len(ids)
        for number in range(len(along.costs(path)) // len(COINS)):
            policy = along.candidate(along.step(path, number * 4 + 3)).policy.policy
            assert policy is not None
            stops = np.minimum(record.wanted_rounds(policy), ends).tolist()
            after = [full[row] - float(scores[row, stop - 1]) for row, stop in enumerate(stops)]
            lost += [
                [(1 - coin) * b + coin * a for b, a in zip(before, after, strict=True)]
                for coin in COINS
            ]
            before = after
        paths.append(lost)
    shares = {}
    for loss in losses:
        of_loss = 0.05 * (0.4 if loss == 0.02 else 0.6 / 4)
        for path in range(len(paths)):
            shares[loss, path] = of_loss / len(paths)
    first = dict(shares)
    done = dict.fromkeys(shares, 0)
    while True:
        for (loss, path), share in [*shares.items()]:
            lost = paths[path]
            while done[loss, path] < len(lost) and (
                _p_value(lost[done[loss, path]], loss, first[loss, path], ids) <= share
            ):
                done[loss, path] += 1
        ended = [
            at for at in shares if done[at] == len(paths[at[1]]) and shares[at] > 0 and paths[at[1]]
        ]
        left = [at for at in shares if done[at] < len(paths[at[1]])]
        if not ended or not left:
            return [[done[loss, path] for path in range(len(paths))] for loss in losses]
        for at in left:
            shares[at] += shares[ended[0]] / len(left)
        shares[ended[0]] = 0.0


def _p_value(lost: Sequence[float], loss: float, level: float, ids: Sequence[str]) -> float:
    capitals, best = [], 1.0
    for order in range(10):
        rows = sorted(range(len(ids)), key=lambda row: _lot(f"order {order}", ids[row]))
        capital, total, squares, limit = 1.0, 0.0, 0.6, (loss + 1) / 2
        for seen, row in enumerate(rows):
            value = (lost[row] + 1) / 2
            missing = max(math.log(2 / level / capital), 0.0)
            stake = math.sqrt(2 * missing * (seen + 20) / (squares * (len(ids) - seen)))
            capital *= 1 + min(stake, 0.98 / (1 - limit)) * (limit - value)
            total += value
            squares += (value - total / (seen + 1)) ** 2
        capitals.append(capital)
        best = max(best, sum(capitals) / len(capitals))
    return 1 / best


def _lot(key: str, name: str) -> float:
    digest = hashlib.sha256(f"{key}:{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53
