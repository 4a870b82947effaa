"""``python -m studies.ab_rag``: several records, one list of prices, answers that hold gold."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from studies.ab_rag.__main__ import main
from studies.ab_rag.study import ABRagComparison, ABRagStudySettings, ab_rag_study, held_gold
from studies.tests.ab_rag import study_traces
from tests.builders import written_traces

from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Usage

QUICK = ("--bootstrap", "20", "--grid", "0.3,0.6")
SETTINGS = ABRagStudySettings(comparison=ABRagComparison(resamples=20), taus=(0.3, 0.6), static=1)


def spelled(answer: str) -> list[QuestionRecord]:
    """The study's questions, the wrong answer spelled so, every round of 100 and 10 tokens."""
    usage = Usage(llm_calls=1, prompt_tokens=100, cached_tokens=0, completion_tokens=10)
    return [
        replace(
            record,
            rounds=tuple(
                replace(one, answer=answer if one.answer == "Rome" else one.answer, usage=usage)
                for one in record.rounds
            ),
        )
        for record in study_traces(tune=False).records()
    ]


@pytest.mark.parametrize(
    ("answer", "gold", "held"),
    [
        ("Wichita, Kansas", ("Wichita",), "Wichita"),
        ("the  OSLO!", ("Rome", "Oslo"), "Oslo"),
        ("Osloer", ("Oslo",), None),
        ("I know", ("no",), None),
        ("no, never", ("no",), None),
        ("anything", ("the",), None),
    ],
)
def test_gold_is_held_as_whole_words(answer: str, gold: tuple[str, ...], held: str | None) -> None:
    assert held_gold(answer, gold) == held


def test_answers_that_hold_gold_are_those_of_em_0() -> None:
    both = [to_trace_set(spelled(answer)) for answer in ("Oslo in Norway", "Rome")]
    holding, others = (record.document for record in ab_rag_study(both, SETTINGS))
    for long in holding["long_answers"]:
        assert 0 < long["holding"] == long["wrong"] < long["labelled"] == 60
    assert [long["holding"] for long in others["long_answers"]] == [0, 0]
    em = holding["exact_match"]["ab-rag"].estimate
    assert em == pytest.approx(1 - holding["long_answers"][1]["wrong"] / 60)


def test_intervals_hold_the_replayed_scores() -> None:
    (record,) = ab_rag_study([study_traces()], SETTINGS)
    static, ours = record.policies
    assert (static.name, ours.name) == ("fixed-1", "ab-rag")
    for policy in record.policies:
        assert record.document["exact_match"][policy.name].estimate == pytest.approx(policy.em)
    gain = record.document["exact_match_gain"].estimate
    assert gain == pytest.approx((ours.em or 0) - (static.em or 0))
    swept = [one.em for one in record.swept.values()]
    bands = record.document["exact_match_swept"]
    assert [one.estimate for one in bands] == pytest.approx(swept)
    published, corrected = record.document["selective"]
    assert published["threshold"] == 0.6
    assert corrected["threshold"] == record.comparison.result.policies[1].policy.threshold  # type: ignore[union-attr]
    assert published["above"]["em"].estimate == 1.0
    assert published["below"]["em"].estimate == 0.0


def test_a_penalty_is_the_reward_turned_round() -> None:
    records = [
        replace(
            record,
            rounds=tuple(
                replace(one, signals={**one.signals, "rerank_variance_raw": float(index % 7)})
                for one in record.rounds
            ),
        )
        for index, record in enumerate(study_traces().records())
    ]
    (study,) = ab_rag_study([to_trace_set(records)], SETTINGS)
    reward, penalty = (
        next(one["auroc"].estimate for one in study.document["signals"] if one["form"] == name)
        for name in ("raw variance", "minus raw variance")
    )
    assert reward is not None
    assert penalty == pytest.approx(1 - reward)


def test_the_command_prints_csv_and_writes_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        records.append(str(written_traces(folder, spelled("Oslo in Norway"))))
    words = [*records, *QUICK, "--prices", "input=1,output=10"]
    out = str(tmp_path / "out")
    assert main([*words, "--format", "csv", "--out", out]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    costs = list(csv.DictReader(io.StringIO(blocks[0])))
    assert [row["policy"] for row in costs] == ["fixed-2", "ab-rag"] * 2
    # static retrieval is one call over the passages of two rounds
    assert float(costs[0]["usd"]) == pytest.approx((100 * 1 + 10 * 10) / 1e6)
    document = json.loads((tmp_path / "out" / "ab_rag.json").read_text("utf-8"))
    assert [len(one["long_answers"]) for one in document["records"]] == [2, 2]
