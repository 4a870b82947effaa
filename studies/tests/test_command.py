"""What every study's command does alike."""

from __future__ import annotations

import csv
import io

import pytest
from studies.ab_rag.study import STUDY as AB_RAG
from studies.command import Study
from studies.hidden_constraints.study import STUDY as HIDDEN_CONSTRAINTS
from studies.micp.populations import STUDY as POPULATIONS
from studies.micp.study import STUDY as MICP
from studies.retrieval.__main__ import STUDY as RETRIEVAL
from studies.stop_rag.study import STUDY as STOP_RAG
from studies.training.__main__ import main as train
from studies.training.contradiction import STUDY as CONTRADICTION
from studies.training.reranker import STUDY as RERANKER

from suffice.cli.main import main
from suffice.cli.parser import field_options

STUDIES = (
    AB_RAG,
    HIDDEN_CONSTRAINTS,
    POPULATIONS,
    MICP,
    RETRIEVAL,
    STOP_RAG,
    CONTRADICTION,
    RERANKER,
)
FEW = ("--dataset", "generated", "--limit", "4", "--encoder", "none", "--bootstrap", "5")


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_field_that_is_an_option_is_offered(study: Study) -> None:
    flags = {option.flag for option in study.offered()}
    for group in study.options:
        if group.only is None:
            for option in field_options(group.settings, nested=False, without=group.without):
                assert option.flag in flags


def test_a_table_is_printed_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert RETRIEVAL.main([*FEW, "--format", "csv"]) == 0
    first = capsys.readouterr().out.split("\n\n")[0]
    rows = list(csv.DictReader(io.StringIO(first)))
    assert [row["retriever"] for row in rows] == ["bm25", "tfidf"]


@pytest.mark.parametrize(
    "words",
    [
        ["--dataset", "hotpotqa"],
        ["--dataset", "generated", "--reranker", "nowhere"],
        ["--dataset", "generated", "--pool", "3", "--retrievers", "bm25"],
        [],
    ],
)
def test_wrong_usage_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert RETRIEVAL.main(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1


def test_the_command_line_says_where_the_studies_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "micp"]) == 2
    assert "python -m studies." in capsys.readouterr().err
    assert train([]) == 2
