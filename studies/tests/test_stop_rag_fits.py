"""Networks of Stop-RAG's evaluation are kept, found again, and never mixed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from studies.stop_rag.fits import fit_variants
from studies.tests.stop_rag import ALONE, QUICK, study_records, study_traces

from suffice.errors import DataError
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord


def other_answers(records: list[QuestionRecord]) -> list[QuestionRecord]:
    first = records[0]
    rounds = (replace(first.rounds[0], samples=("other",) * 8), *first.rounds[1:])
    return [replace(first, rounds=rounds), *records[1:]]


@pytest.mark.parametrize(
    ("options", "change", "said"),
    [
        ({"preset": "published"}, None, "preset was"),
        ({"f1_kind": "hotpotqa"}, None, 'reward was "f1", now "f1-hotpotqa"'),
        ({"signals": replace(QUICK, min_steps=31)}, None, "min_steps was 30, now 31"),
        ({"signals": replace(QUICK, inputs=("overlap",))}, None, "inputs was null"),
        ({}, other_answers, "questions was"),
    ],
)
def test_policies_of_another_study_are_refused(
    tmp_path: Path,
    options: dict[str, Any],
    change: Callable[[list[QuestionRecord]], list[QuestionRecord]] | None,
    said: str,
) -> None:
    settings = replace(ALONE, seeds=1, folder=tmp_path)
    fit_variants(study_traces(), settings)
    made = study_records()
    traces = to_trace_set(made if change is None else change(made))
    with pytest.raises(DataError, match=said) as refused:
        fit_variants(traces, replace(settings, **options))
    assert "signals-42" in str(refused.value)


def test_questions_that_are_only_scored_may_change(tmp_path: Path) -> None:
    settings = replace(ALONE, seeds=1, folder=tmp_path)
    fit_variants(study_traces(30, 24), settings)
    (found,) = fit_variants(study_traces(30, 10), settings)
    assert found.loaded


class KilledError(Exception):
    """The power fails."""


def test_a_study_that_was_killed_goes_on(tmp_path: Path) -> None:
    settings = replace(ALONE, folder=tmp_path)
    whole = fit_variants(study_traces(), ALONE)

    def kill(name: str) -> Callable[[Any], None]:
        def watch(now: Any) -> None:
            if name == "signals, seed 43" and now.done == 20:
                raise KilledError

        return watch

    with pytest.raises(KilledError):
        fit_variants(study_traces(), settings, kill)
    steps: list[int] = []
    again = fit_variants(study_traces(), settings, lambda _: lambda now: steps.append(now.done))
    assert [fitted.loaded for fitted in again] == [True, False]
    assert steps[-1] == 30
    assert [fitted.policy.threshold for fitted in again] == [
        fitted.policy.threshold for fitted in whole
    ]
