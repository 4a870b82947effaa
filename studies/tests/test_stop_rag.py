"""The paper's tables over several records: figures are those of each record's own evaluation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra 'learn' is missing")

from studies.stop_rag.__main__ import main
from studies.stop_rag.study import named, record_study, stop_rag_study
from studies.tests.stop_rag import ALONE, ROUNDS, study_records

from suffice.errors import UsageError
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.live.privacy import redact_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_traces

QUICK = ["--variants", "signals", "--min-steps", "20", "--epochs", "0.1", "--bootstrap", "50"]


def opened(paths: list[str]) -> list[TraceSet]:
    return [read_traces(path) for path in paths]


def written(
    folder: Path, name: str, records: list[QuestionRecord] | None = None, **run: object
) -> str:
    path = folder / f"{name}.parquet"
    write_traces(study_records() if records is None else records, path, run=run)
    return str(path)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """Two data sets by one pipeline, and one of them by another, where nobody was asked to stop."""
    return [
        written(tmp_path, "a", dataset="hotpotqa", pipeline="iterative", prompt="answer-first"),
        written(
            tmp_path, "b", study_records(world="two-hop"), dataset="musique", pipeline="iterative"
        ),
        written(tmp_path, "c", study_records(asked=False), dataset="musique", pipeline="chain"),
    ]


def test_every_figure_is_that_of_the_records_own_evaluation(paths: list[str]) -> None:
    found = stop_rag_study(opened(paths), ALONE)
    table = found.named("table 1")
    data = table.data()
    assert [*zip(data["pipeline"], data["method"], strict=True)] == [
        ("iterative", "all rounds"),
        ("iterative", "best fixed number"),
        ("iterative", "+ LLM-Stop"),
        ("iterative", "+ Stop-RAG on signals"),
        ("chain", "all rounds"),
        ("chain", "best fixed number"),
        ("chain", "+ Stop-RAG on signals"),
    ]
    steps = found.named("table 2").data()
    for dataset, path, first in (("hotpotqa", paths[0], 0), ("musique", paths[1], 0)):
        alone = record_study(read_traces(path), ALONE)
        names = (f"fixed-{ROUNDS}", alone.document["best_fixed"], "llm-stop", "signals")
        for row, name in enumerate(names, start=first):
            contender = alone.contender(name)
            assert contender is not None
            for figure in ("em", "f1", "acc"):
                assert data[f"{dataset}_{figure}"][row] == pytest.approx(contender.mean(figure))
                low, high = (data[f"{dataset}_{figure}_{end}"][row] for end in ("low", "high"))
                assert isinstance(low, float)
                assert isinstance(high, float)
                assert low <= data[f"{dataset}_{figure}"][row] <= high  # type: ignore[operator]
            assert steps[f"{dataset}_steps"][row] == pytest.approx(contender.mean("mean_rounds"))
            assert steps[f"{dataset}_recall"][row] == pytest.approx(contender.mean("recall"))
    assert data["hotpotqa_f1"][4:] == [None] * 3  # no record of it by the chain
    assert any(value != steps["musique_steps"][0] for value in steps["musique_steps"])


def test_of_a_redacted_record_its_own_scores_are_compared(tmp_path: Path) -> None:
    """The F1 of its answers is what it was before, and what needs texts is unknown."""
    whole = written(tmp_path, "whole", dataset="hotpotqa", pipeline="iterative")
    hidden = tmp_path / "hidden.parquet"
    redact_traces(whole, hidden)
    found = record_study(read_traces(hidden), replace(ALONE, variants=("q-lambda", "signals")))
    before = record_study(read_traces(whole), ALONE).contender(f"fixed-{ROUNDS}")
    assert before is not None
    for name in ("f1", "em"):
        figure = found.figure("full_budget", name)
        assert figure is not None
        assert figure.estimate == pytest.approx(before.mean(name))
    assert found.figure("full_budget", "acc") is None
    assert found.contender("q-lambda") is None
    assert [lack for lack in found.document["lacks"] if lack.startswith("texts")]
    replayed = compare(
        read_traces(hidden), ComparisonSettings(policies=("fixed-1",), resamples=5)
    ).result.policies[0]
    fixed = found.contender("fixed-1")
    assert fixed is not None
    assert np.mean([run.mean("f1") for run in fixed.runs]) == pytest.approx(replayed.f1)


def test_records_are_told_apart_by_data_set_pipeline_and_final_answer(tmp_path: Path) -> None:
    stated: dict[str, Any] = {"dataset": "hotpotqa", "pipeline": "iterative"}
    short = written(tmp_path, "short", **stated, prompt="answer-first")
    thought = written(tmp_path, "thought", **stated, prompt="ircot+no-confidence")
    unnamed = written(tmp_path, "mine")
    assert named(read_traces(short)) == ("hotpotqa", "iterative")
    assert named(read_traces(thought)) == ("hotpotqa", "iterative ircot")
    assert named(read_traces(unnamed)) == ("mine", "unnamed")
    with pytest.raises(UsageError, match="suffice traces merge"):
        stop_rag_study(opened([short, thought, short]), ALONE)


def test_the_command_prints_tables_and_json(
    paths: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*paths[:2], *QUICK, "--seeds", "1", "--out", str(tmp_path / "out")]
    assert main([*asked, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [record["dataset"] for record in document["records"]] == ["hotpotqa", "musique"]
    assert len(document["tables"]["table 1"]["musique_f1_low"]) == 4
    assert (tmp_path / "out" / "musique-iterative" / "signals-42" / "policy.json").exists()
    assert main(asked) == 0
    shown = capsys.readouterr()
    assert "Stop-RAG on signals" in shown.out
    assert "found" in shown.out  # trained before
    assert main([str(tmp_path / "none.parquet")]) == 2
