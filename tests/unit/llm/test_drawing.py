from __future__ import annotations

import numpy as np
import pytest

from suffice.llm.drawing import Candidates, Cutoffs, draw, kept, likeliest, uniform

PLAIN = Cutoffs(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def test_the_likeliest_are_those_of_a_sort() -> None:
    rng = np.random.default_rng(0)
    for size, count in ((7, 3), (30_000, 40), (262_144, 40), (600, 600), (5, 9)):
        for logits in (rng.normal(size=size), rng.integers(0, 4, size=size)):
            values = logits.astype(np.float32)
            best = likeliest(values, count)
            order = np.argsort(-values, kind="stable")[:count]
            assert best.tokens.tolist() == order.tolist()
            whole = values.astype(np.float64) - np.log(np.exp(values.astype(np.float64)).sum())
            assert best.logprobs == pytest.approx(whole[order], abs=1e-5)


def test_tokens_that_cannot_come_are_no_candidates() -> None:
    logits = np.full(30_000, -np.inf, dtype=np.float32)
    assert len(likeliest(logits, 40).tokens) == 0
    logits[[7, 29_999]] = 1, 2
    assert likeliest(logits, 40).tokens.tolist() == [29_999, 7]


def test_cutoffs_in_the_order_of_llama_cpp() -> None:
    given = Candidates(np.arange(5, dtype=np.int32), np.log([0.5, 0.3, 0.15, 0.04, 0.01]))
    for cutoffs, left in (
        (PLAIN, 5),
        (Cutoffs(temperature=1, top_k=2, top_p=1, min_p=0), 2),
        (Cutoffs(temperature=1, top_k=0, top_p=0.79, min_p=0), 2),
        (Cutoffs(temperature=1, top_k=0, top_p=0.81, min_p=0), 3),
        (Cutoffs(temperature=1, top_k=2, top_p=0.6, min_p=0), 1),  # 0.5 / 0.8 is enough
        (Cutoffs(temperature=1, top_k=0, top_p=1, min_p=0.29), 3),
        (Cutoffs(temperature=1, top_k=0, top_p=0, min_p=1), 1),
    ):
        assert len(kept(given, cutoffs).tokens) == left


def test_draws_come_as_often_as_they_are_likely() -> None:
    shares = np.array([0.5, 0.25, 0.15, 0.1])
    given = Candidates(np.array([9, 3, 77, 200_000], dtype=np.int32), np.log(shares))
    for temperature in (1.0, 0.5):
        cutoffs = Cutoffs(temperature=temperature, top_k=0, top_p=1, min_p=0)
        expected = shares ** (1 / temperature) / (shares ** (1 / temperature)).sum()
        draws = 600
        for seeds, places in ((range(draws), [3] * draws), ([3] * draws, range(draws))):
            counts = np.bincount(
                [draw(given, cutoffs, seed=s, place=p) for s, p in zip(seeds, places, strict=True)],
                minlength=4,
            )
            assert ((counts - draws * expected) ** 2 / (draws * expected)).sum() < 16.3  # p = 0.001


def test_a_draw_depends_on_tokens_and_not_on_their_order() -> None:
    tokens = np.array([5, 6, 7, 8], dtype=np.int32)
    numbers = uniform(tokens, seed=1, place=2)
    assert uniform(tokens[::-1], seed=1, place=2).tolist() == numbers[::-1].tolist()
    assert (
        len({*numbers, *uniform(tokens, seed=2, place=1), *uniform(tokens, seed=2, place=2)}) == 12
    )
    many = uniform(np.arange(100_000, dtype=np.int32), seed=0, place=0)
    assert 0 < many.min() < 1e-4 < 1 - 1e-4 < many.max() < 1
    assert np.histogram(many, 10)[0].tolist() == pytest.approx([10_000] * 10, rel=0.04)


def test_temperature_0_takes_the_likeliest() -> None:
    given = Candidates(np.array([4, 2], dtype=np.int32), np.log([0.6, 0.4]))
    cutoffs = Cutoffs(temperature=0, top_k=40, top_p=0.9, min_p=0.05)
    assert {draw(given, cutoffs, seed=seed, place=0) for seed in range(50)} == {0}
