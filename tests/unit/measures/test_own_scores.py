"""Records whose users score their rounds themselves, without a gold answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.commands import run_json

from suffice.errors import UsageError
from suffice.evaluation.choose.search import search
from suffice.evaluation.diagnose.report_data import report_data
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings, SearchSettings
from suffice.interface import choose
from suffice.measures.measures import Measures
from suffice.report.page import render_report
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.records import Gold, QuestionRecord
from suffice.trace.rounds.writer import write_traces

SCORES = ((0.0, 0.5, 1.0), (0.25, 1.0, 0.5))


def scored(count: int = 40, *, gold: bool = False) -> list[QuestionRecord]:
    """Scores by turns as above; ``own`` tells the round's score but for the first question of four."""
    records = []
    for number, record in enumerate(random_records(count)):
        scores = SCORES[number // 2 % 2]
        told = (0.0, 0.0, 0.0) if number % 8 < 2 else scores
        records.append(
            replace(
                record,
                gold=record.gold if gold else Gold(),
                rounds=tuple(
                    replace(finished, signals={"own": value})
                    for finished, value in zip(record.rounds, told, strict=True)
                ),
                scores=dict(enumerate(scores, start=1)),
            )
        )
    return records


def mean_at(records: Sequence[QuestionRecord], stops: Sequence[int]) -> float:
    return float(np.mean([r.scores[stop] for r, stop in zip(records, stops, strict=True)]))


@pytest.fixture(scope="module")
def records() -> list[QuestionRecord]:
    return scored()


def test_a_score_stands_where_no_question_has_gold_answers(records: list[QuestionRecord]) -> None:
    own = Measures(to_trace_set(records)).by(None)
    assert own.metric.name == "score"
    outcomes = own.scores()
    np.testing.assert_array_equal(outcomes.f1[2], SCORES[1])
    np.testing.assert_array_equal(outcomes.em[2], [0, 1, 0])  # whether it is 1
    np.testing.assert_array_equal(outcomes.acc[0], [0, 1, 1])  # whether it is above 0
    assert outcomes.labelled.all()
    assert own.only_split("tune").metric == own.metric
    with_gold = Measures(to_trace_set(scored(gold=True)))
    assert with_gold.by(None).metric.name == "f1"
    asked = with_gold.by("score")
    np.testing.assert_array_equal(asked.scores().f1, outcomes.f1)
    # gold answers are still there to be asked for
    np.testing.assert_array_equal(asked.by("em").scores().em, with_gold.scores().em)
    unscored = [replace(record, scores={}) for record in records]
    assert Measures(to_trace_set(unscored)).by(None).metric.name == "agreement"


def test_a_question_without_scores_counts_in_costs_alone(records: list[QuestionRecord]) -> None:
    partly = [replace(records[0], scores={}), replace(records[2], scores={3: 0.5}), *records[3:]]
    own = Measures(to_trace_set(partly)).by(None)
    assert own.scores().labelled.tolist() == [False, *[True] * (len(partly) - 1)]
    assert "no score: 1 of 39 questions, counted in costs, not in scores" in own.notes(None)
    found = compare(own, ComparisonSettings(policies=("fixed-1", "fixed-3"))).result
    one, full = found.policies
    assert (one.score, full.score is None) == (None, False)
    (note,) = [note for note in found.notes if note.startswith("no score is known")]
    assert "fixed-1 (1): in so many of 19 questions with scores of their own" in note
    assert "write a score of every round (column 'score')" in note
    with pytest.raises(UsageError, match="rounds without a score, the first: round 1 of question"):
        search(own, SearchSettings(signals=("own",)))


def test_replay_and_report_go_by_it(records: list[QuestionRecord]) -> None:
    settings = ComparisonSettings(policies=("fixed-1", "fixed-3"), rules=("own >= 1",))
    comparison = compare(to_trace_set(records), settings)
    result = comparison.result
    evaluated = [record for record in records if record.question.split == "eval"]
    for policy in result.policies:
        assert policy.score == pytest.approx(mean_at(evaluated, policy.stops.tolist()))
        assert policy.interval is not None
    entry = result.to_json()["policies"][2]
    assert entry["score"] == result.policies[2].score
    assert entry["score_1"] == result.policies[2].em
    assert (entry["f1"], entry["em"], entry["acc"]) == (None, None, None)
    assert {"delta_score", "retained_score", "score_interval"} <= entry.keys()
    assert result.policies[0].retained == pytest.approx(
        mean_at(evaluated, [1] * 20) / mean_at(evaluated, [3] * 20)
    )
    text = result.table.text(200)
    assert "no gold answer was read" in text
    assert "EM" not in text.split("Note")[0]
    assert "hotpotqa" not in text
    page = render_report(report_data(to_trace_set(evaluated), result))
    assert "score, by the record&#x27;s own scores" in page
    with pytest.raises(UsageError, match="leave it out"):
        compare(to_trace_set(records), ComparisonSettings(policies=("oracle-f1",), strict=True))


def test_what_chooses_goes_by_it(records: list[QuestionRecord]) -> None:
    traces = to_trace_set(records)
    tune = [record for record in records if record.question.split == "tune"]
    found = search(traces, SearchSettings(signals=("own",)))
    (rule,) = found.rules
    assert found.objective == "score"
    stops = [2 if record.rounds[1].signals["own"] >= 1 else 3 for record in tune]
    assert rule.tune_score == pytest.approx(mean_at(tune, stops))
    choice = choose(traces, rule="own >= ?", grid=(0.5, 1.0), max_loss=0.4, resamples=2)
    assert {"own >= 0.5", "own >= 1"} <= {one.candidate.policy.name for one in choice.ranked}
    assert choice.metric.name == "score"


@pytest.mark.parametrize("name", ["loopgain_w4", "loopgain_w5"])
def test_a_public_record_of_scores(name: str, data_folder: Path) -> None:
    """Null answers but in the last round, and scores throughout."""
    own = Measures.of(data_folder / "traces" / f"{name}.parquet").by(None)
    assert own.metric.name == "score"
    means = own.scores_throughout("this").compared.mean(axis=0)
    first, last = {"loopgain_w4": (0.75, 0.77), "loopgain_w5": (0.777, 0.351)}[name]
    assert means[[0, -1]] == pytest.approx([first, last], abs=0.001)


def test_missing_answers_are_a_note_beside_scores_that_need_none(tmp_path: Path) -> None:
    """One count, no banner and nothing to buy; EM and F1 still warn."""
    path = tmp_path / "record.parquet"
    write_traces(
        [
            replace(one, rounds=tuple(replace(each, answer=None) for each in one.rounds))
            for one in scored(gold=True)
        ],
        path,
    )
    found = run_json("replay", path, "--metric", "score", "--policy", "fixed-1", "--split", "all")
    assert found["banners"] == []
    (said,) = [note for note in found["notes"] if "120" in note]
    assert "no answer in 120 of 120 rounds" in said
    page = tmp_path / "report.html"
    run_json("report", path, "--metric", "score", "--out", page)
    assert "NO ANSWER" not in page.read_text()
    asked = run_json("replay", path, "--metric", "em", "--policy", "fixed-1", "--split", "all")
    assert any("suffice probe" in banner for banner in asked["banners"])
