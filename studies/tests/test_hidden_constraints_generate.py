"""The benchmark's sizes, its tokens in its documents, the dial, and the same bits for a seed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from studies.hidden_constraints.contradiction_head import stems
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings

GOLDEN = "ff87c3e55b2d77b65dcf4ba591ea102faf7ae104d4ad1e1aa5a83b402aab071e"
SEEDS = (42, 0, 1)


@pytest.fixture(scope="module", params=SEEDS)
def benchmark_of(request: pytest.FixtureRequest) -> Benchmark:
    return generate(BenchmarkSettings(seed=request.param))


def test_counts_and_depths(benchmark_of: Benchmark) -> None:
    tasks, small = benchmark_of.tasks, benchmark_of.subset("hard-small")
    assert (len(tasks), len(small), len(benchmark_of.documents)) == (50, 20, 450)
    assert np.mean([task.depth for task in tasks]) == pytest.approx(4.52)
    assert np.mean([task.depth for task in small]) == pytest.approx(3.7)
    assert max(task.depth for task in tasks) == 6
    assert max(task.depth for task in small) == 5


def test_everything_is_unique(benchmark_of: Benchmark) -> None:
    tasks, documents = benchmark_of.tasks, benchmark_of.documents
    for values in (
        [task.id for task in tasks],
        [task.constraint.token for task in tasks],
        [(task.goal, task.context) for task in tasks],
        [document.id for document in documents],
        [document.text for document in documents],
    ):
        assert len(set(values)) == len(values)
    assert len({task.constraint.requirement for task in tasks}) >= 25


def test_a_token_is_verbatim_in_its_documents_and_nowhere_else(benchmark_of: Benchmark) -> None:
    for task in benchmark_of.tasks:
        token = task.constraint.token
        assert re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+_\d{3}", token)
        assert token.endswith(task.id.removeprefix("task"))
        carriers = {
            document.id
            for document in benchmark_of.documents
            if token in f"{document.title} {document.text}"
        }
        assert carriers == set(task.document_ids)
        assert 1 <= len(task.document_ids) == len(carriers) <= 3
        others = [task.query, task.constraint.requirement, *task.outline]
        assert not any(token in text for text in others)
        assert not set(stems(token.replace("_", " "))) & set(
            stems(task.query)
        )  # nor a form of its words


def test_the_same_seed_gives_the_same_bits() -> None:
    script = (
        "import hashlib, json; from dataclasses import asdict;"
        "from studies.hidden_constraints.corpus.generate import generate;"
        "print(hashlib.sha256(json.dumps(asdict(generate())).encode()).hexdigest())"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONHASHSEED": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == GOLDEN


def test_the_dial_turns_the_wording_of_constraint_documents_alone() -> None:
    settings = BenchmarkSettings(seed=5, tasks=12, hard_small=5, documents=100)
    far, near = (generate(replace(settings, gap=gap)) for gap in (1.0, 0.0))
    assert far.tasks == near.tasks
    changed = {
        before.id
        for before, now in zip(far.documents, near.documents, strict=True)
        if before.text != now.text
    }
    carry = {name for task in far.tasks for name in task.document_ids}
    assert carry <= changed
    assert len(changed) <= len(carry) + 2 * len(far.tasks)
