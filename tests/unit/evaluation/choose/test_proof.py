"""Paths that no label has a part in, and what is proven along them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
import scipy.stats
from tests.choice_population import reaching

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import Promise
from suffice.evaluation.choose.proof import (
    COINS,
    FIRST_COINS,
    OwnPath,
    Path,
    PathTests,
    Step,
    paths_of,
    prove,
    walk,
    walk_again,
)
from suffice.evaluation.choose.sample_size import POWER
from suffice.evaluation.settings import LOSSES, ChoiceSettings
from suffice.measures.measures import Measures
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.trace_set import TraceSet, unit_keys


def along(
    traces: TraceSet, paths: list[Path] | None = None, *, cost: str = "rounds", **given: object
) -> PathTests:
    record = Measures.of(traces).by("f1")
    settings = ChoiceSettings(cost=cost, resamples=5)
    return PathTests(record, record, settings, paths or [*paths_of(record, cost, **given)])  # type: ignore[arg-type]


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
            assert isinstance(policy, Rule)
            stops = np.minimum(measures.wanted_rounds(policy), 5)
            if "coin()" not in policy.rule:
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
        first, last = np.full(400, 3), stops(path, len(FIRST_COINS) - 1)
        for number, share in enumerate(FIRST_COINS):
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
        bets = [
            of.half.p_values(
                of.losses(path, promise(0.05).bounds[0]), "signed", 0.05, 0.02, whole=False
            )
            for of in (together, alone)
        ]
        np.testing.assert_allclose(bets[0], bets[1])
        np.testing.assert_allclose(together.costs(path), alone.costs(path))


@pytest.mark.parametrize(("loss", "pilot"), [(0.003, 250), (0.005, 100)])
def test_as_many_questions_as_were_named_prove_it_about_as_often_as_was_said(
    loss: float, pilot: int
) -> None:
    population = to_trace_set(reaching(3000, reached=(0.5, 0.8, 0.81), seed=5))
    everyone = Measures.of(population).by("f1")
    everyone.scores()
    named, generator = [], np.random.default_rng(1)

    def sample(size: int) -> PathTests:
        part = everyone.take(np.isin(np.arange(3000), generator.permutation(3000)[:size]))
        paths = [Path("fixed", (Step("round >= 2", "after round 2"),))]
        return PathTests(part, part, ChoiceSettings(cost="rounds"), paths)

    for _ in range(11):
        needed = sample(pilot).needed(promise(loss).bounds, 0.05)
        assert needed is not None
        assert (needed.floor or 0) <= (needed.low or 10**9) <= (needed.high or 10**9)
        named += [needed.high or 10**9]
    wanted = int(np.median(named))
    proven = [prove(sample(wanted), None, [promise(loss)])[0].rejected > 0 for _ in range(60)]
    assert np.mean(proven) >= POWER - 0.2
    fewer = [prove(sample(wanted // 3), None, [promise(loss)])[0].rejected > 0 for _ in range(60)]
    assert np.mean(fewer) < POWER


def test_a_record_of_groups_needs_more_questions_than_it_has() -> None:
    records = [
        replace(one, question=replace(one.question, group=f"session {number // 3}"))
        for number, one in enumerate(reaching(120, reached=(0.5, 0.8, 0.81), seed=5))
    ]
    found = along(to_trace_set(records))
    assert len(found.half) == 40
    sizes = [found.needed(promise(loss).bounds, 0.001) for loss in (0.005, 0.01, 0.02)]
    highs = [size.high for size in sizes if size is not None and size.high is not None]
    assert highs
    assert all(high > 120 for high in highs)


def test_a_path_is_walked_again_to_a_policy_of_it_alone() -> None:
    found = along(to_trace_set(reaching(200, reached=(0.5, 0.8, 0.85))))
    asked = promise(0.3)
    for rule in ("answer_repeats", "round >= 2", "round >= 1", "coin() < 0.25 and round >= 2"):
        again = walk_again(found, rule, asked, 0.05)
        assert again is not None
        proven, p = again
        assert proven == (rule != "round >= 1")
        assert 0.0 <= p <= 1.0
    assert walk_again(found, "answer_token_margin > 3", asked, 0.05) is None


@pytest.mark.parametrize("graded", [True, False])
def test_no_verdict_hangs_on_the_spelling_of_ids(graded: bool) -> None:
    records = reaching(160, reached=(0.4, 0.7, 0.74))
    if graded:
        records = [
            replace(
                one,
                scores={
                    t: 0.5 * (r.answer == "Oslo") + 0.1 * t for t, r in enumerate(one.rounds, 1)
                },
            )
            for one in records
        ]
    told = []
    for spelling in range(20):
        renamed = [
            replace(one, question=replace(one.question, id=f"{spelling}-{one.question.id}"))
            for one in records
        ]
        record = Measures.of(to_trace_set(renamed)).by("score" if graded else "f1")
        settings = ChoiceSettings(cost="rounds", metric=record.metric.name)
        tests = PathTests(record, record, settings, [*paths_of(record, "rounds")])
        rows = prove(tests, None, [promise(loss) for loss in LOSSES])
        told.append([None if row.proven is None else row.proven.title for row in rows])
    assert len([one for one in told[0] if one]) >= 3
    changed = sum(
        one != first for titles in told for one, first in zip(titles, told[0], strict=True)
    )
    assert changed <= 20 * len(LOSSES) / 50


def test_without_gold_answers_no_label_is_asked_for() -> None:
    record = Measures.of(to_trace_set(reaching(40))).by("agreement")
    found = PathTests(record, record, ChoiceSettings(cost="rounds"), [*paths_of(record, "rounds")])
    (row,) = prove(found, None, [promise(0.001)])
    assert row.proven is None
    assert "label" not in row.more


def rejected_by_hand(
    record: Measures, tests: PathTests, losses: Sequence[float]
) -> list[list[int]]:
    """How many hypotheses of every path are rejected, a list for each allowed loss."""
    scores = record.scores().compared
    ends = record.traces.last_rounds.tolist()
    keys = [f"{key:.0f}" for key in unit_keys(record.traces).tolist()]
    full = [float(scores[row, end - 1]) for row, end in enumerate(ends)]
    paths: list[list[tuple[list[float], float, bool]]] = []  # losses, share of the bound, tossed
    for path in range(len(tests.names)):
        lost: list[tuple[list[float], float, bool]] = []
        before = [0.0] * len(keys)
        whole = [
            number
            for number in range(len(tests.costs(path)))
            if "coin()" not in tests.step(path, number).rule
        ]
        for place, number in enumerate(whole):
            policy = tests.candidate(tests.step(path, number)).policy.policy
            assert policy is not None
            stops = np.minimum(record.wanted_rounds(policy), ends).tolist()
            after = [full[row] - float(scores[row, stop - 1]) for row, stop in enumerate(stops)]
            for coin in COINS if place else FIRST_COINS:
                if not place or coin == 1.0:
                    lost.append((after, 1.0 if place else coin, False))
                else:
                    mixed = zip(before, after, strict=True)
                    lost.append(([(1 - coin) * b + coin * a for b, a in mixed], 1.0, True))
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
            while done[loss, path] < len(paths[path]):
                lost_, part, tossed = paths[path][done[loss, path]]
                level = first[loss, path]
                if _p_value(lost_, loss / part, level, keys, tossed=tossed) > share:
                    break
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


def _p_value(
    lost: Sequence[float], loss: float, level: float, keys: Sequence[str], *, tossed: bool
) -> float:
    if not tossed:
        return exactly(lost.count(1.0), lost.count(-1.0), len(lost), loss, level)
    capitals = []
    for order in range(200):
        rows = sorted(range(len(keys)), key=lambda row: _lot(f"order {order}", keys[row]))
        capital, total, squares, limit = 1.0, 0.0, 0.6, (loss + 1) / 2
        for seen, row in enumerate(rows):
            value = (lost[row] + 1) / 2
            missing = max(math.log(2 / level / capital), 0.0)
            stake = math.sqrt(2 * missing * (seen + 20) / (squares * (len(keys) - seen)))
            capital *= 1 + min(stake, 0.98 / (1 - limit)) * (limit - value)
            total += value
            squares += (value - total / (seen + 1)) ** 2
        capitals.append(capital)
    student = scipy.stats.ttest_1samp(lost, loss, alternative="less").pvalue
    return max(1 / max(sum(capitals) / len(capitals), 1.0), float(student))


@cache
def exactly(lost: int, gained: int, n: int, limit: float, level: float) -> float:
    """The test of Tango's statistic over a table of all outcomes, in its interval of changed answers."""
    if limit >= 1.0:
        return 0.0
    a, b = np.indices((n + 1, n + 1))
    possible = a + b <= n

    def statistic(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        found = np.empty(a.shape)
        for at in np.ndindex(a.shape):
            lose, gain = int(a[at]), int(b[at])
            # the likeliest q with P(1) = q + limit and P(-1) = q
            linear = 2 * (n - lose) * limit - (1 - limit) * (lose + gain)
            root = math.sqrt(linear**2 + 8 * n * gain * limit * (1 - limit))
            q = (root - linear) / (4 * n)
            error = math.sqrt((2 * q + limit - limit**2) / n)
            found[at] = ((lose - gain) / n - limit) / error
        return found

    far = (
        statistic(np.minimum(a, n - b), b) <= statistic(np.array([lost]), np.array([gained])) + 1e-9
    )
    changed = scipy.stats.binomtest(lost + gained, n)
    low, high = changed.proportion_ci(1 - level / 100, method="exact")
    shares = np.linspace(max(low, limit), high, 80) if high > limit else np.array([])
    chances = [
        scipy.stats.multinomial.pmf(
            np.stack([a, b, n - a - b], axis=-1)[possible & far],
            n,
            [(d + limit) / 2, (d - limit) / 2, 1 - d],
        ).sum()
        for d in shares
    ]
    return min(max(chances, default=0.0) + level / 100, 1.0)


def _lot(key: str, name: str) -> float:
    digest = hashlib.sha256(f"{key}:{name}".encode()).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / 2.0**53
