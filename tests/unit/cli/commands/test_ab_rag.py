"""``fit ab-rag`` and ``replay --policy ab-rag``."""

from __future__ import annotations

from pathlib import Path

import pytest
from studies.tests.ab_rag import study_traces
from tests.builders import written_traces
from tests.commands import refused, run, run_json


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), study_traces().records()))


def test_the_f1_of_a_threshold_is_stated_and_refused_where_none_is_chosen(
    record: str, tmp_path: Path
) -> None:
    fit = ("fit", "ab-rag", record, "--out", str(tmp_path / "p.json"))
    for kind in ("squad", "hotpotqa"):
        fitted = run_json(*fit, "--f1", kind)
        assert fitted["policy"]["fitted_on"]["f1_kind"] == kind
    given = run_json(*fit, "--threshold", "0.5")
    assert "f1_kind" not in given["policy"]["fitted_on"]
    for more, message in (
        (("--threshold", "0.5"), "a threshold is chosen by, and one is given"),
        (("--preset", "published"), "leave f1 out"),
    ):
        refused(run(*fit, "--f1", "squad", *more), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "ab-rag", "--calibrator", "platt"], "leave calibrator out"),
        (["fit", "ab-rag", "--certainty", "token_probability"], "needs column tokens"),
        (
            ["fit", "ab-rag", "--preset", "published", "--support", "answer_in_evidence"],
            "leave support out",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    record: str, tmp_path: Path, arguments: list[str], message: str
) -> None:
    command, method, *options = arguments
    out = ["--out", str(tmp_path / "p.json")]
    refused(run(command, method, record, *options, *out), message)
