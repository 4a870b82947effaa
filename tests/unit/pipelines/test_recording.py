"""From a data set and a model to a trace set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError, UsageError
from suffice.pipelines.cumulative import CumulativeSettings
from suffice.pipelines.recorder import RecordSummary
from suffice.pipelines.recording import Recording, record_examples
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.reader import read_traces

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


def test_pooled_shows_passages_of_other_questions(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    record(tmp_path / "t", corpus="pooled")
    own = {each.question.id: {p.id for p in each.passages} for each in EXAMPLES}
    traces = read_traces(tmp_path / "t")
    shown = {
        r.question.id: {p.id for x in r.rounds for p in x.passages or ()} for r in traces.records()
    }
    assert any(shown[name] - own[name] for name in shown)
    assert (tmp_path / "t" / "index").is_dir()
    assert record(tmp_path / "t", corpus="pooled").before == 10  # with the stored index


def test_the_pool_does_not_change_with_the_number_of_questions(tmp_path: Path) -> None:
    pytest.importorskip("bm25s")
    record(tmp_path / "t", EXAMPLES[:3], corpus="pooled", pool=EXAMPLES)
    grown = record(tmp_path / "t", EXAMPLES[:5], corpus="pooled", pool=EXAMPLES)
    assert (grown.before, grown.recorded) == (3, 2)
    with pytest.raises(UsageError, match="corpus_fingerprint was"):
        record(tmp_path / "t", EXAMPLES[:7], corpus="pooled")


def test_an_error_names_the_file_of_the_examples(tmp_path: Path) -> None:
    broken = [replace(EXAMPLES[0], passages=())]
    with pytest.raises(DataError, match=r"^dev\.json, row 0, column passages"):
        record(tmp_path / "t", broken, source="dev.json")


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


def test_what_is_off_is_not_stated_so_that_older_recordings_go_on(tmp_path: Path) -> None:
    record(tmp_path / "t", EXAMPLES[:2])
    run = read_traces(tmp_path / "t").origin.run
    assert not {"closed_book", "judge"} & set(run)
    with pytest.raises(UsageError, match="judge was None, now True"):
        record(tmp_path / "t", settings=CumulativeSettings(rounds=2, judge=True))


def test_a_question_whose_closed_book_fails_is_tried_again(tmp_path: Path) -> None:
    text = EXAMPLES[1].question.text
    settings = CumulativeSettings(rounds=1, closed_book=True)
    recording = Recording(dataset="generated", settings=settings)
    broken = ScriptedModel(
        failures=Failures(containing=(f"Zundert\nConfidence: 2\n\nQuestion: {text}",))
    )
    first = record_examples(EXAMPLES[:3], broken, tmp_path / "t", recording, lambda _: None)
    assert (first.recorded, first.failed) == (2, 1)
    again = record_examples(
        EXAMPLES[:3], ScriptedModel(), tmp_path / "t", recording, lambda _: None
    )
    assert (again.recorded, again.failed) == (1, 0)
    assert read_traces(tmp_path / "t").closed_book.num_rows == 3
