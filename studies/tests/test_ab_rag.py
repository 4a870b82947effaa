"""``python -m studies.ab_rag``: several records, one price list, answers that hold gold."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies.ab_rag.study import (
    STUDY,
    ABRagComparison,
    ABRagStudySettings,
    ab_rag_study,
    held_gold,
    read_price_list,
)
from studies.tests.ab_rag import study_traces
from tests.builders import written_traces

from suffice.costs.prices import parse_prices
from suffice.errors import DataError, UsageError
from suffice.replay.settings import ComparisonSettings
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.table import TraceSet

QUICK = ("--bootstrap", "20", "--grid", "0.3,0.6")


def spelled(answer: str) -> TraceSet:
    """The study's questions, the wrong answer spelled so, every round of 100 and 10 tokens."""
    base = study_traces(tune=False)
    return to_trace_set([_with(record, answer) for record in base.records()])


def _with(record: QuestionRecord, answer: str) -> QuestionRecord:
    usage = Usage(llm_calls=1, prompt_tokens=100, cached_tokens=0, completion_tokens=10)
    rounds = tuple(
        replace(round_, answer=answer if round_.answer == "Rome" else round_.answer, usage=usage)
        for round_ in record.rounds
    )
    return replace(record, rounds=rounds)


def settings(**stated: Any) -> ABRagStudySettings:
    comparison = ABRagComparison(resamples=20)
    return ABRagStudySettings(comparison=comparison, taus=(0.3, 0.6), **stated)


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
    both = ab_rag_study([spelled("Oslo in Norway"), spelled("Rome")], settings(examples=2))
    holding, others = (record.document for record in both)
    for long in holding["long_answers"]:
        assert 0 < long["holding"] == long["wrong"] < long["labelled"] == 60
        assert [one["answer"] for one in long["examples"]] == ["Oslo in Norway"] * 2
    assert [long["holding"] for long in others["long_answers"]] == [0, 0]
    em = holding["exact_match"]["ab-rag"].estimate
    assert em == pytest.approx(1 - holding["long_answers"][1]["wrong"] / 60)


def test_intervals_hold_the_replayed_scores() -> None:
    (record,) = ab_rag_study([study_traces()], settings(static=1))
    static, ours = record.policies
    assert (static.name, ours.name) == ("fixed-1", "ab-rag")
    for policy in record.policies:
        assert record.document["exact_match"][policy.name].estimate == pytest.approx(policy.em)
    gain = record.document["exact_match_gain"].estimate
    assert gain == pytest.approx((ours.em or 0) - (static.em or 0))
    swept = [one.em for one in record.swept.values()]
    bands = record.document["exact_match_swept"]
    assert [one.estimate for one in bands] == pytest.approx(swept)


def test_loops_say_what_went_on() -> None:
    (record,) = ab_rag_study([study_traces()], settings(examples=4))
    loops = record.document["loops"]
    assert len(loops) == 4
    confidence = loops[0]["confidence"]
    assert len(loops[0]["answers"]) == len(confidence) > 1
    assert (loops[0]["first_em"], loops[0]["last_em"]) == (0.0, 1.0)
    assert all(value < 0.6 for value in confidence[:-1] if value is not None)


def test_one_price_list_prices_every_record(tmp_path: Path) -> None:
    """Dollars are tokens times rates; a record that the list does not name has none."""
    path = tmp_path / "prices.toml"
    path.write_text('["small"]\ninput = 1\noutput = 10\n', encoding="utf-8")
    listed = read_price_list(str(path))
    assert listed.of("record", "small") == parse_prices("input=1,output=10")
    assert listed.of("record", "other") is None
    both = [
        replace(traces, origin=replace(traces.origin, run={"model": model}))
        for traces, model in ((spelled("Rome"), "small"), (spelled("Rome"), "other"))
    ]
    named, unnamed = (one.policies for one in ab_rag_study(both, settings(prices=listed)))
    static, ours = named
    # static is one call over the passages of two rounds
    assert static.costs["usd"] == pytest.approx((100 * 1 + 10 * 10) / 1e6)
    assert ours.costs["usd"] == pytest.approx(ours.mean_rounds * (100 * 1 + 10 * 10) / 1e6)
    assert [policy.costs["usd"] for policy in unnamed] == [None, None]
    assert read_price_list("input=1,output=2").of("anything") == parse_prices("input=1,output=2")


@pytest.mark.parametrize(
    ("text", "error", "named"),
    [
        ("= 3", DataError, "TOML"),
        ("", DataError, "prices"),
        ("small = 3", DataError, "small"),
        ("[small]\ninput = 1", DataError, "output"),
        ("[small]\ninput = 1\noutput = 1\nouput = 2", DataError, "ouput"),
    ],
)
def test_a_price_list_is_refused_by_name(
    text: str, error: type[Exception], named: str, tmp_path: Path
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(error, match=named):
        read_price_list(str(path))
    with pytest.raises(UsageError, match=r"none\.toml"):
        read_price_list(str(tmp_path / "none.toml"))


def test_the_command_prints_csv_and_writes_the_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = []
    for number in range(2):
        folder = tmp_path / str(number)
        folder.mkdir()
        records.append(str(written_traces(folder, spelled("Oslo in Norway").records())))
    words = [*records, *QUICK, "--examples", "1", "--prices", "input=1,output=2"]
    out = str(tmp_path / "out")
    assert STUDY.main([*words, "--format", "csv", "--out", out]) == 0
    blocks = capsys.readouterr().out.split("\n\n")
    costs = list(csv.DictReader(io.StringIO(blocks[0])))
    assert [row["policy"] for row in costs] == ["fixed-2", "ab-rag"] * 2
    assert all(float(row["usd"]) > 0 for row in costs)
    (examples,) = [block for block in blocks if ",question,gold,answer\n" in block]
    assert len(list(csv.DictReader(io.StringIO(examples)))) == 2
    document = json.loads((tmp_path / "out" / "ab_rag.json").read_text("utf-8"))
    assert [len(one["long_answers"]) for one in document["records"]] == [2, 2]


def test_a_record_that_was_cut_or_lacks_the_signals_is_refused() -> None:
    """Answers past a cut are unknown; leaving those questions out would choose among them."""
    cut = [
        replace(record, rounds=record.rounds[:1], stopped_by="policy", propensity=0.4)
        if number % 3
        else replace(record, propensity=0.4)
        for number, record in enumerate(study_traces(tune=False).records())
    ]
    for records in (cut, [make_record("a", ["Oslo"], gold=["Oslo"])]):
        with pytest.raises(UsageError):
            ab_rag_study([to_trace_set(records)], settings())


def test_a_record_without_gold_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = [
        replace(record, gold=replace(record.gold, answers=()))
        for record in study_traces(tune=False).records()
    ]
    path = str(written_traces(tmp_path, bare))
    assert STUDY.main([path, *QUICK]) == 2
    assert "gold" in capsys.readouterr().err


# --- one record -----------------------------------------------------------------------------
SETTINGS = ABRagStudySettings(comparison=ComparisonSettings(resamples=50), taus=(0.3, 0.6, 0.7))


def test_each_policy_is_split_at_its_own_threshold() -> None:
    (study,) = ab_rag_study([study_traces()], SETTINGS)
    published, corrected = study.document["selective"]
    assert published["threshold"] == 0.6
    assert corrected["threshold"] == study.comparison.result.policies[1].policy.threshold  # type: ignore[union-attr]
    assert published["above"]["em"].estimate == 1.0
    assert published["below"]["em"].estimate == 0.0


def test_a_penalty_is_the_reward_turned_round() -> None:
    base = study_traces()
    records = [
        replace(
            record,
            rounds=tuple(
                replace(round_, signals={**round_.signals, "rerank_variance_raw": float(index % 7)})
                for round_ in record.rounds
            ),
        )
        for index, record in enumerate(base.records())
    ]
    (study,) = ab_rag_study([to_trace_set(records)], SETTINGS)
    reward, penalty = (
        next(one["auroc"].estimate for one in study.document["signals"] if one["form"] == name)
        for name in ("raw variance", "minus raw variance")
    )
    assert reward is not None
    assert penalty == pytest.approx(1 - reward)
