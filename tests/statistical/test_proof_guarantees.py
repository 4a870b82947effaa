"""Proofs under what people do: label a part of a log, group questions, leave rounds unanswered, look again.

In every population the true loss is a hair above what is promised, so every proof is false. Of the draws at
most the promised error may prove.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path as File

import numpy as np
import pyarrow as pa
import pytest
from tests.certifying import most_allowed
from tests.cut_population import PROFILES, ROUNDS, Log, Population

from suffice.errors import UsageError
from suffice.evaluation.choose.bounds import Half, Promise
from suffice.evaluation.choose.candidates import (
    betting_orders,
    labelled_only,
    refuse_wrong_exploration,
    without_gaps,
)
from suffice.evaluation.choose.proof import Path, PathTests, Step, paths_of, prove, walk_again
from suffice.evaluation.settings import LOSSES, ChoiceSettings
from suffice.measures.measures import Measures
from suffice.stats.p_values import signed_p_values
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet

DRAWS, FAST, LINE = 2000, 20, 0.05
ABOVE = LINE + 0.0005
_SETTINGS = ChoiceSettings(metric="score", cost="rounds")
_FIXED = Path("fixed", tuple(Step(f"round >= {k}", f"after round {k}") for k in (4, 3, 2, 1)))
Broken = Callable[[int], bool]


def proves(measures: Measures, settings: ChoiceSettings = _SETTINGS) -> bool:
    """Whether ``choose`` would prove anything of the fixed budgets, which all lose more than the line.

    A coin beside the full budget loses its share of that, so only the last coin is false.
    """
    refuse_wrong_exploration(measures)
    complete, _ = without_gaps(measures, "choosing", settings.f1_kind)
    labelled, _ = labelled_only(complete, settings)
    tests = PathTests(complete, labelled, settings, [_FIXED])
    (row,) = prove(tests, None, [Promise(max_loss=LINE)])
    return row.rejected >= 8


def share(broken: Broken, draws: int) -> float:
    return float(np.mean([broken(draw) for draw in range(draws)]))


def of_scores(scores: np.ndarray, rows: np.ndarray) -> TraceSet:
    """A whole record of some profiles with these scores, (n_profiles, ROUNDS)."""
    paid = np.tile(np.arange(1.0, ROUNDS + 1), (len(scores), 1))
    ends = np.full(len(scores), ROUNDS, np.int16)
    return Log(Population(scores=scores, paid=paid, sure=scores), ends, None).record(rows, 0)


def changed(rows: np.ndarray, total: float, random: np.random.Generator) -> np.ndarray:
    """Scores of all profiles: of some ``rows`` stopping loses, of half as many it gains, ``total`` in all."""
    scores = np.tile((random.random(PROFILES) < 0.5)[:, None], ROUNDS).astype(np.float64)
    net = round(total * PROFILES)
    rows = random.permutation(rows)
    lose, gain = rows[: 2 * net], rows[2 * net : 3 * net]
    scores[lose], scores[lose, -1] = 0.0, 1.0
    scores[gain], scores[gain, -1] = 1.0, 0.0
    return scores


# --- logs of a live policy of which a part is labeled ----------------------------------------------
def logged(stopped: bool) -> Population:
    """A live policy stops half of the questions; all that stopping loses is lost there, or elsewhere."""
    random = np.random.default_rng(9)
    early = np.arange(PROFILES) < PROFILES // 2
    sure = np.where(early[:, None], 2.0, -2.0) + 0.01 * random.standard_normal((PROFILES, ROUNDS))
    return Population(
        scores=changed(np.flatnonzero(early == stopped), ABOVE, random),
        paid=np.tile(np.arange(1.0, ROUNDS + 1), (PROFILES, 1)),
        sure=sure.astype(np.float32).astype(np.float64),
    )


def labelled_by_arm(traces: TraceSet, rates: tuple[float, float, float], seed: int) -> TraceSet:
    """Keep scores of explored, cut and other questions at these rates."""
    cut = np.array([end == "policy" for end in traces.of_last_rounds("stopped_by")])
    stopped = np.nan_to_num(traces.stored_signal("policy_stop")[0]).any(axis=1)
    arm = np.where(cut, 1, np.where(stopped, 0, 2))
    known = np.random.default_rng([3, seed]).random(len(arm)) < np.array(rates)[arm]
    rows = np.repeat(known, traces.last_rounds)
    scores = pa.array(traces.table.column("score").to_numpy(), mask=~rows, type=pa.float32())
    at = traces.table.column_names.index("score")
    return replace(traces, table=traces.table.set_column(at, "score", scores))


POPULATIONS = {stopped: logged(stopped) for stopped in (True, False)}
ADVISED = (1.0, 0.0, 1.0)
"""Label rates of explored, cut and other questions where only those that ran on are labeled."""
RATES = [
    *((1.0, 1.0, 1.0), ADVISED, (1.0, 0.0, 0.3), (1.0, 0.1, 1.0)),
    *((0.5, 1.0, 1.0), (0.5, 0.9, 1.0), (1.0, 0.3, 0.5)),
]


def of_log(
    draw: int, *, rates: tuple[float, float, float], size: int, explore: float, stopped: bool
) -> bool:
    drawn = POPULATIONS[stopped]
    rows = np.random.default_rng([1, draw]).integers(0, PROFILES, size)
    record = Log(drawn, drawn.stops(0.6), explore).record(rows, draw)
    try:
        return proves(Measures.of(labelled_by_arm(record, rates, draw)).by("score"))
    except UsageError:  # in one draw of a hundred the share of explored questions looks wrong
        return False


@pytest.mark.parametrize("rates", [ADVISED, (0.5, 1.0, 1.0)])
def test_a_fast_sample_of_logs_labelled_in_part(rates: tuple[float, float, float]) -> None:
    asked = partial(of_log, rates=rates, size=800, explore=0.2, stopped=True)
    assert share(asked, FAST) <= most_allowed(0.05, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [True, False])
@pytest.mark.parametrize(
    ("rates", "size"),
    [*((rates, 800) for rates in RATES), (ADVISED, 2000), ((0.5, 1.0, 1.0), 2000)],
)
def test_logs_labelled_in_part(rates: tuple[float, float, float], stopped: bool, size: int) -> None:
    asked = partial(of_log, rates=rates, size=size, explore=0.2, stopped=stopped)
    assert share(asked, DRAWS) <= most_allowed(0.05, DRAWS)


def of_strata(
    draw: int,
    *,
    strata: list[tuple[float, float, float]],
    size: int,
    rates: tuple[float, float, float],
) -> bool:
    """A log whose policy stops nine in ten; of each stratum (share, propensity, loss), labeled by arm."""
    random, records = np.random.default_rng([7, draw]), []
    for number in range(size):
        _, propensity, loss = strata[random.choice(len(strata), p=[share for share, *_ in strata])]
        stopped, explored = random.random() < 0.9, random.random() < propensity
        loses, right = stopped and random.random() < loss / 0.9, random.random() < 0.5
        answers = ["Bo"] * 4 + ["Ada"] if loses else ["Ada" if right else "Bo"] * 5
        cut = stopped and not explored
        known = random.random() < rates[1 if cut else 0 if stopped else 2]
        record = make_record(
            f"q{number:04d}",
            answers[: 1 if cut else 5],
            gold=["Ada"] if known else [],
            signals=[{"policy_stop": float(stopped)} for _ in range(1 if cut else 5)],
        )
        record = replace(record, stopped_by="policy" if cut else None, propensity=propensity)
        records.append(record)
    asked = replace(_SETTINGS, metric="em")
    try:
        return proves(Measures.of(to_trace_set(records)).by("em"), asked)
    except UsageError:
        return False


@pytest.mark.parametrize(
    ("strata", "size", "rates"),
    [
        (
            [(0.92, 0.5, 0.0), (0.08, 0.05, 0.9)],
            400,
            (1.0, 1.0, 1.0),
        ),  # often none of .05 is explored
        ([(1.0, 0.02, 0.3)], 100, (1.0, 1.0, 1.0)),
        ([(0.5, 0.5, 0.0), (0.5, 0.1, 0.12)], 800, ADVISED),
    ],
)
def test_logs_explored_at_several_rates(
    strata: list[tuple[float, float, float]], size: int, rates: tuple[float, float, float]
) -> None:
    asked = partial(of_strata, strata=strata, size=size, rates=rates)
    assert share(asked, FAST) <= most_allowed(0.05, FAST)


def test_a_log_is_refused_whose_exploration_or_labels_cannot_be_used() -> None:
    drawn = POPULATIONS[True]
    rows = np.random.default_rng(1).integers(0, PROFILES, 800)
    record = Log(drawn, drawn.stops(0.6), 0.1).record(rows, 1)
    for rates in ((0.0, 1.0, 1.0), (1.0, 1.0, 0.0)):
        with pytest.raises(UsageError, match="label"):
            proves(Measures.of(labelled_by_arm(record, rates, 1)).by("score"))
    at = record.table.column_names.index("propensity")
    stated = pa.array(np.full(record.table.num_rows, 0.3), pa.float32())
    wrong = replace(record, table=record.table.set_column(at, "propensity", stated))
    with pytest.raises(UsageError, match="NOT AS PROMISED"):
        proves(Measures.of(wrong).by("score"))


# --- questions in groups of unequal size -----------------------------------------------------------
def grouped(draw: int, *, largest: int, groups: int, singles: int) -> Half:
    """A group loses or gains as one; large groups lose more than the line, single questions less."""
    random = np.random.default_rng([2, draw])
    sizes = np.where(np.arange(groups + singles) < groups, largest, 1)
    part = groups * largest / sizes.sum()  # of the questions
    loss = ABOVE / part
    chance = np.where(sizes > 1, loss + 0.1, 0.1)  # of a loss; of a gain it is 0.1
    throw = random.random(len(sizes))
    of_unit = np.where(throw < chance, 1.0, np.where(throw > 0.9, -1.0, 0.0))
    units = np.repeat(np.arange(len(sizes)), sizes)
    scores = np.full((len(units), 2), 0.5)
    scores[:, 0] -= of_unit[units] / 2
    scores[:, 1] += of_unit[units] / 2
    return Half(
        stops=np.array([np.ones(len(units)), np.full(len(units), 2)], np.int16),
        scores=scores,
        last=np.full(len(units), 2, np.int16),
        costs=np.array([1.0, 2.0]),
        units=units,
        orders=betting_orders(random.random(len(units)) * 2**50, units),
    )


def of_groups(draw: int, *, largest: int, groups: int, singles: int) -> bool:
    half = grouped(draw, largest=largest, groups=groups, singles=singles)
    losses = half.losses(np.array([0]), "signed")
    return bool(half.p_values(losses, "signed", LINE, 0.05)[0] <= 0.05)


GROUPS = [(30, 20, 600), (10, 60, 600), (3, 300, 100), (100, 5, 500)]


@pytest.mark.parametrize(("largest", "groups", "singles"), GROUPS)
def test_a_fast_sample_of_groups(largest: int, groups: int, singles: int) -> None:
    asked = partial(of_groups, largest=largest, groups=groups, singles=singles)
    assert share(asked, FAST) <= most_allowed(0.05, FAST)


@pytest.mark.slow
@pytest.mark.parametrize(("largest", "groups", "singles"), GROUPS)
def test_groups_of_unequal_size(largest: int, groups: int, singles: int) -> None:
    asked = partial(of_groups, largest=largest, groups=groups, singles=singles)
    assert share(asked, DRAWS) <= most_allowed(0.05, DRAWS)


# --- rounds without an answer ----------------------------------------------------------------------
def unanswered(draw: int, *, size: int = 300) -> bool:
    """Rounds are left unanswered only where going on helps: what is left looks as if it did not."""
    random = np.random.default_rng([4, draw])
    scores = changed(np.arange(PROFILES), ABOVE, random)
    rows = random.integers(0, PROFILES, size)
    record = of_scores(scores, rows)
    helped = (scores[rows, -1] > scores[rows, 0])[:, None] & (np.arange(ROUNDS) == 0)
    at = record.table.column_names.index("score")
    lacking = pa.array(scores[rows].ravel(), mask=helped.ravel(), type=pa.float32())
    record = replace(record, table=record.table.set_column(at, "score", lacking))
    return proves(Measures.of(record).by("score"))


def test_a_fast_sample_of_unanswered_rounds() -> None:
    assert share(unanswered, FAST) <= most_allowed(0.05, FAST)


@pytest.mark.slow
def test_unanswered_rounds() -> None:
    assert share(unanswered, DRAWS) <= most_allowed(0.05, DRAWS)


# --- a record that grows, and is chosen on at several sizes -----------------------------------------
SIZES = (60, 100, 150, 250, 400, 600)


def looked_at_again(draw: int, *, anytime: bool) -> bool:
    """Whether any look at a growing record proves the one policy."""
    random = np.random.default_rng([5, draw])
    losses = random.choice([1.0, -1.0, 0.0], SIZES[-1], p=[ABOVE + 0.03, 0.03, 1 - ABOVE - 0.06])
    found = []
    for size in SIZES:
        scores = np.stack([np.zeros(size), losses[:size]], axis=1)
        half = Half(
            stops=np.array([np.ones(size), np.full(size, 2)], np.int16),
            scores=scores,
            last=np.full(size, 2, np.int16),
            costs=np.array([1.0, 2.0]),
            orders=np.arange(size)[None, :],
            anytime=anytime,
        )
        found.append(half.p_values(losses[:size, None], "signed", LINE, 0.05)[0] <= 0.05)
    return any(found)


def test_a_fast_sample_of_looks() -> None:
    asked = partial(looked_at_again, anytime=True)
    assert share(asked, FAST) <= most_allowed(0.05, FAST)


@pytest.mark.slow
def test_a_growing_record_may_be_looked_at_in_the_order_of_recording_only() -> None:
    anytime = share(partial(looked_at_again, anytime=True), DRAWS)
    assert anytime <= most_allowed(0.05, DRAWS)
    once = share(partial(looked_at_again, anytime=False), DRAWS)
    assert once > most_allowed(0.05, DRAWS)  # what docs/choosing.md warns of


# --- scores of 0 and 1 -----------------------------------------------------------------------------
@pytest.mark.parametrize("line", [0.01, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("extra", [0.0, 0.005, 0.05, 0.3])
def test_the_exact_test_holds_its_level_and_wastes_little(line: float, extra: float) -> None:
    """By the multinomial law itself, at 100 questions: no draws."""
    n, level = 100, 0.05
    lost, gained = np.indices((n + 1, n + 1)).reshape(2, -1)
    possible = lost + gained <= n
    lost, gained = lost[possible], gained[possible]
    chances = _chances(n, lost, gained, line + extra / 2, extra / 2)
    likely = chances > 1e-9
    told = np.zeros((n, int(likely.sum())))
    for column, (a, b) in enumerate(zip(lost[likely], gained[likely], strict=True)):
        told[:a, column], told[a : a + b, column] = 1.0, -1.0
    found = signed_p_values(told, line, delta=level) <= level
    assert chances[likely][found].sum() <= level + 1e-6
    if extra == 0.05 and line == 0.05:
        assert chances[likely][found].sum() > 0.6 * level


def _chances(n: int, lost: np.ndarray, gained: np.ndarray, p: float, q: float) -> np.ndarray:
    from scipy.stats import multinomial

    counts = np.stack([lost, gained, n - lost - gained], axis=1)
    return np.asarray(multinomial.pmf(counts, n, [p, q, 1.0 - p - q]))


# --- a changed loop --------------------------------------------------------------------------------
def carried(draw: int, *, alike: float, size: int = 300) -> bool:
    """The luckiest of a path's policies on one record, walked to on another of the same questions."""
    random = np.random.default_rng([6, draw])
    first = random.random((size, 4)) < ABOVE
    again = np.where(random.random((size, 4)) < alike, first, random.random((size, 4)) < ABOVE)

    luckiest = 1 + int(first.sum(axis=0).argmin())
    scores = np.concatenate([1.0 - again, np.ones((size, 1))], axis=1)
    record = Measures.of(of_scores(scores, np.arange(size))).by("score")
    tests = PathTests(record, record, _SETTINGS, [_FIXED])
    found = walk_again(tests, f"round >= {luckiest}", Promise(max_loss=LINE), 0.05)
    return found is not None and found[0]


def test_a_fast_sample_of_changed_loops() -> None:
    assert share(partial(carried, alike=0.9), FAST) <= most_allowed(0.05, FAST)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [0.5, 0.9, 1.0])
def test_changed_loops(alike: float) -> None:
    assert share(partial(carried, alike=alike), DRAWS) <= most_allowed(0.05, DRAWS)


# --- how the questions are named ---------------------------------------------------------------------
def titles(record: TraceSet, metric: str, spelling: str) -> list[str | None]:
    """What is proven at every bound if all ids begin with ``spelling``."""
    at = record.table.column_names.index("question_id")
    ids = pa.compute.binary_join_element_wise(spelling, record.table.column(at), "")
    renamed = replace(record, table=record.table.set_column(at, "question_id", ids))
    measures = Measures.of(renamed).by(metric)
    labelled = measures.take(measures.scores().labelled)
    settings = ChoiceSettings(metric=metric, cost="rounds")
    tests = PathTests(labelled, labelled, settings, [*paths_of(labelled, "rounds")])
    rows = prove(tests, None, [Promise(max_loss=loss) for loss in LOSSES])
    return [None if row.proven is None else row.proven.title for row in rows]


def verdicts_changed(record: TraceSet, metric: str, spellings: int) -> float:
    told = [titles(record, metric, "-" * count) for count in range(spellings + 1)]
    return float(
        np.mean([one != first for of in told[1:] for one, first in zip(of, told[0], strict=True)])
    )


def test_no_verdict_on_the_example_hangs_on_its_ids() -> None:
    assert verdicts_changed(read_traces("example"), "score", 2) == 0.0


@pytest.mark.slow
def test_one_verdict_in_fifty_hangs_on_ids_at_most(data_folder: File) -> None:
    """Records without texts, whose coins and orders can only hang on ids, and one with texts."""
    traces = data_folder / "traces"
    cases: list[tuple[str, str]] = [
        *(("routes_llama8b_dev", "em"), ("routes_llama8b_dev", "f1"), ("gsm8k_tiers", "em")),
        *(("abrag_hotpotqa_ollama", "em"), ("irag_gpt4o", "score"), ("loopgain_w1", "score")),
        ("hotpotqa_qwen1.5b", "em"),
    ]
    changed = [
        verdicts_changed(read_traces(traces / f"{name}.parquet"), metric, 20)
        for name, metric in cases
    ]
    assert np.mean(changed) <= 1 / 50, changed
