"""What fits read of a record by columns equals what one question after the other gives, bit for bit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.numbers.conformal.order_statistics import NEVER
from suffice.numbers.units import lots
from suffice.policies.micp.policy import Clusters, MiCPPolicy
from suffice.policies.micp.relevance_filter import Relevance
from suffice.policies.micp.relevance_fit import Relevances, unrecorded_finds
from suffice.policies.micp.samples import read_samples
from suffice.policies.stop_rag.states import REWARDS, read_rewards, texts_of_traces, texts_of_view
from suffice.scoring import Match
from suffice.signals.columns import questions as by_question
from suffice.signals.samples import CLUSTERINGS, Clustering
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold, LoopView, Passage, Question, QuestionRecord, Round
from suffice.trace.rounds.table import TraceSet

ROUNDS = 3


SAID = (
    "",
    "A",
    "a",
    "The Oslo",
    "oslo.",
    "Oslo city",
    "naïve",
    "İstanbul",
    "yes",
    "no yes",
    "\x85",
)
_texts = st.sampled_from(SAID)
_scores = st.one_of(st.none(), st.sampled_from((0.5, -1.0, 3.0, 3.25)))
_passages = st.lists(
    st.builds(
        Passage,
        id=st.sampled_from(("1", "2", "")),
        title=_texts,
        text=st.one_of(st.none(), _texts),
        score=_scores,
        rerank_score=_scores,
    ),
    max_size=3,
).map(tuple)


@st.composite
def sampled(draw: st.DrawFn) -> Round:
    """A round, its samples clustered by a meaning that need not follow the words."""
    samples = draw(st.one_of(st.none(), st.lists(_texts, max_size=5).map(tuple)))
    firsts: list[int] = []
    for position in range(len(samples or ())):
        firsts.append(draw(st.sampled_from([*dict.fromkeys(firsts), position])))
    return Round(
        answer="",
        query=draw(st.one_of(st.none(), _texts)),
        passages=draw(st.one_of(st.none(), _passages)),
        refound=draw(st.one_of(st.none(), _passages)),
        samples=samples,
        sample_clusters=None if samples is None else tuple(firsts),
        signals=draw(st.sampled_from(({}, {"normalized_entropy": 0.5}))),
    )


@st.composite
def traces(draw: st.DrawFn) -> TraceSet:
    rounds = draw(st.lists(st.lists(sampled(), min_size=1, max_size=4), min_size=1, max_size=3))
    golds = st.builds(
        Gold,
        answers=st.lists(_texts, max_size=3).map(tuple),
        passage_ids=st.lists(st.sampled_from(("1", "2", "9", "")), max_size=3).map(tuple),
    )
    return to_trace_set(
        [
            QuestionRecord(
                question=Question(id=f"q{number}", text=f"{number}?"),
                gold=draw(golds),
                rounds=tuple(of_question),
            )
            for number, of_question in enumerate(rounds)
        ]
    )


def in_blocks_of(questions: int) -> pytest.MonkeyPatch:
    patch = pytest.MonkeyPatch()
    patch.setattr(by_question, "AT_ONCE", questions)
    return patch


def best_right(policy: MiCPPolicy, finished: Round, gold: Sequence[str]) -> float:
    """The confidence of the most confident cluster that is right, one cluster after the other."""
    right = [
        confidence
        for cluster, confidence in policy.confidences(finished)
        if any(policy.match(member, gold) for member in cluster.members if member)
    ]
    return max(right, default=-math.inf)


@given(
    recorded=traces(),
    penalty=st.sampled_from((0.0, 0.3)),
    least=st.sampled_from((None, 0.5, 1.0)),
    by=st.sampled_from(CLUSTERINGS),
    at_once=st.integers(1, 3),
)
@settings(max_examples=examples(25), deadline=None)
def test_confidence_of_right_clusters(
    recorded: TraceSet, penalty: float, least: float | None, by: Clustering, at_once: int
) -> None:
    assume(recorded.has("samples"))
    draft = MiCPPolicy(
        alpha=0.1,
        rounds=ROUNDS,
        samples=5,
        stops=(NEVER,) * (ROUNDS - 1),
        final=-math.inf,
        penalty=penalty,
        match=Match(f1=least),
        clusters=Clusters(by=by),
    )
    patch = in_blocks_of(at_once)
    found = read_samples(recorded, draft)
    patch.undo()
    for index, record in enumerate(recorded.records()):
        best = -math.inf
        for number in range(ROUNDS):
            if number < len(record.rounds):
                right = best_right(draft, record.rounds[number], record.gold.answers)
                best = max(best, right)
            assert found.best_gold[index, number] == best
            assert (
                found.draws[:, number][index]
                == lots(f"{draft.seed}:{number + 1}", [f"q{index}"])[0]
            )


@given(recorded=traces(), at_once=st.integers(1, 3))
@settings(max_examples=examples(25), deadline=None)
def test_rewards_and_states(recorded: TraceSet, at_once: int) -> None:
    read = list(recorded.records())
    patch = in_blocks_of(at_once)
    if any(record.gold.answers and all(one.samples for one in record.rounds) for record in read):
        for score in REWARDS.values():
            values = read_rewards(recorded, score).values
            for index, record in enumerate(read):
                for number, one in enumerate(record.rounds):
                    expected = math.nan
                    if one.samples and record.gold.answers:
                        scores = [score(sample, record.gold.answers) for sample in one.samples]
                        expected = math.fsum(scores) / len(scores)
                    np.testing.assert_equal(values[index, number], expected)
    if recorded.has("passages"):
        views = [LoopView(record.question.text, record.rounds) for record in read]
        assert list(texts_of_traces(recorded)) == list(map(texts_of_view, views))
    patch.undo()


@given(
    recorded=traces(),
    name=st.sampled_from(("score", "rerank_score")),
    at_once=st.integers(1, 3),
)
@settings(max_examples=examples(25), deadline=None)
def test_best_relevance_of_passages(recorded: TraceSet, name: Relevance, at_once: int) -> None:
    def value(passage: Passage) -> float:
        stated = getattr(passage, name)
        return -math.inf if stated is None else float(stated)

    gold, shown, unrecorded = [], [], 0
    for index, record in enumerate(recorded.records()):
        best: Counter[str] = Counter()
        found = [(*(one.passages or ()), *(one.refound or ())) for one in record.rounds]
        for passage in chain.from_iterable(found):
            best[passage.id] = max(value(passage), best.get(passage.id, -math.inf))  # type: ignore[assignment]
        wanted = dict.fromkeys(record.gold.passage_ids)
        gold += [(index, best[one]) for one in wanted if one in best]
        shown += [(index, best[one.id]) for each in record.rounds for one in each.passages or ()]
        queries = {one.query for one in record.rounds} - {None}
        untold = any(one.refound is None for one in record.rounds[1:])
        unrecorded += len(queries) > 1 and untold
    assert unrecorded_finds(recorded) == unrecorded
    patch = in_blocks_of(at_once)
    held = Relevances.read(recorded, name)
    patch.undo()
    assert list(zip(held.gold_question.tolist(), held.gold.tolist(), strict=True)) == gold
    assert list(zip(held.shown_question.tolist(), held.shown.tolist(), strict=True)) == shown
