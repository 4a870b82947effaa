"""Networks of Stop-RAG's evaluation are kept, found again, and never mixed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from studies.stop_rag.fits import fit_variants
from studies.tests.stop_rag import ALONE, study_traces


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
