"""From a data set and a model to a trace set, and its splits: exact shares in every prefix."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.hashing_encoder import HashingEncoder

from suffice.datasets.known_datasets import load
from suffice.errors import DataError, UsageError
from suffice.loops.ranked import CumulativeSettings
from suffice.loops.record.dataset_run import Recording, record_examples
from suffice.loops.record.session import RecordSummary
from suffice.signals.asking.meaning_clusters import cluster_samples, cluster_traces, clustered_by
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.reader import read_traces

EXAMPLES = load("generated", limit=10)


def record(out: Path, examples: object = EXAMPLES, **changes: object) -> RecordSummary:
    recording = replace(
        Recording(dataset="generated", settings=CumulativeSettings(rounds=2)),
        **changes,  # type: ignore[arg-type]
    )
    return record_examples(examples, ScriptedModel(), out, recording, lambda _: None)  # type: ignore[arg-type]


def test_gold_split_and_provenance_travel(tmp_path: Path) -> None:
    assert record(tmp_path / "t").recorded == 10
    traces = read_traces(tmp_path / "t")
    assert traces.splits == {"eval": 6, "tune": 4}
    assert traces.origin.run["dataset"] == "generated"
    assert traces.origin.run["rounds"] == 2
    by_id = {each.question.id: each for each in EXAMPLES}
    for found in traces.records():
        assert found.gold == by_id[found.question.id].gold
        assert found.question.type == by_id[found.question.id].question.type


def test_a_question_without_passages_is_named_before_anything_runs(tmp_path: Path) -> None:
    broken = [*EXAMPLES[:3], replace(EXAMPLES[3], passages=()), *EXAMPLES[4:]]
    with pytest.raises(DataError, match=r"row 3, column passages: .*has no passages") as refused:
        record(tmp_path / "t", broken)
    assert EXAMPLES[3].question.id in str(refused.value)
    assert not (tmp_path / "t").exists()
    assert record(tmp_path / "t", broken, skip_invalid=True).recorded == 9
    with pytest.raises(UsageError, match="no question to record"):
        record(tmp_path / "u", broken[3:4], skip_invalid=True)


def test_the_pool_does_not_change_with_the_number_of_questions(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    record(tmp_path / "t", EXAMPLES[:3], corpus="pooled", pool=EXAMPLES)
    grown = record(tmp_path / "t", EXAMPLES[:5], corpus="pooled", pool=EXAMPLES)
    assert (grown.before, grown.recorded) == (3, 2)
    with pytest.raises(UsageError, match="corpus_fingerprint was"):
        record(tmp_path / "t", EXAMPLES[:7], corpus="pooled")


def test_round_0_is_recorded_beside_the_rounds_and_resumed(tmp_path: Path) -> None:
    settings = CumulativeSettings(rounds=2, closed_book=True)
    assert record(tmp_path / "t", EXAMPLES[:4], settings=settings).recorded == 4
    again = record(tmp_path / "t", settings=settings)
    assert (again.before, again.recorded) == (4, 6)
    traces = read_traces(tmp_path / "t")
    assert (traces.n_rounds, traces.closed_book.num_rows) == (2, 10)
    assert traces.origin.run["closed_book"] is True
    for found in traces.records():
        assert len(found.rounds) == 2
        assert found.closed_book is not None
        assert found.closed_book.passages == ()
        assert found.closed_book.usage.llm_calls == 1
    with pytest.raises(UsageError, match="closed_book was True, now None"):
        record(tmp_path / "t")


def test_samples_are_clustered_as_they_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    settings = CumulativeSettings(rounds=2, samples=4, cluster_cosine=0.6)
    encoder = HashingEncoder()
    record(tmp_path / "t", settings=settings, encoder=encoder)
    traces = read_traces(tmp_path / "t")
    stated = {"encoder": encoder.name, "cosine": 0.6}
    assert traces.origin.run["cluster_cosine"] == 0.6
    assert clustered_by(traces) == stated
    assert "evidence_consistency" in traces.signal_names
    rounds = [each for found in traces.records() for each in found.rounds]
    for each in rounds:
        want = cluster_samples(each.samples or (), encoder, cosine=0.6)
        assert each.sample_clusters == want
    assert any(len(set(each.sample_clusters or ())) > 1 for each in rounds)
    # afterwards, from a recording without them, the same
    record(tmp_path / "u", settings=replace(settings, cluster_cosine=None))
    later = cluster_traces(read_traces(tmp_path / "u"), encoder, 0.6).traces
    columns = ["question_id", "round", "samples", "sample_clusters"]
    assert later.table.select(columns) == traces.table.select(columns)
    assert later.origin.run["sample_clusters"] == stated
    with pytest.raises(UsageError, match=r"cluster_cosine was 0\.6, now 0\.7"):
        record(tmp_path / "t", settings=replace(settings, cluster_cosine=0.7), encoder=encoder)
