"""The pages of the studies as a reader meets them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from studies.ab_rag.page import ab_rag_page
from studies.ab_rag.study import ABRagComparison, ABRagStudySettings, ab_rag_study
from studies.hidden_constraints.page import hidden_constraints_page
from studies.micp.page import micp_page
from studies.micp.results import MiCPStudySettings
from studies.micp.study import micp_study
from studies.retrieval.page import retrieval_page
from studies.retrieval.results import RetrievalStudy
from studies.retrieval.study import RetrievalSettings, data_set_recall
from studies.stop_rag.page import stop_rag_page
from studies.stop_rag.results import StopRAGStudy
from studies.stop_rag.study import record_study
from studies.tests.ab_rag import study_traces as ab_rag_traces
from studies.tests.hidden_constraints import made_study
from studies.tests.micp import sampled_records
from studies.tests.stop_rag import ALONE, study_traces
from tests.answer_sets import HOSTILE
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing

from suffice.datasets.generated import generate
from suffice.policies.micp.settings import MiCPSettings
from suffice.retrieval.indexes import IndexMaker
from suffice.testing.traces import to_trace_set

pytestmark = pytest.mark.browser


def ab_rag() -> str:
    asked = ABRagStudySettings(comparison=ABRagComparison(resamples=20), taus=(0.3, 0.6))
    return ab_rag_page(ab_rag_study([ab_rag_traces(), ab_rag_traces()], asked))


def retrieval() -> str:
    examples = list(generate(12, seed=1))
    found = data_set_recall(examples, RetrievalSettings(resamples=20), IndexMaker(encoder=None))
    return retrieval_page(RetrievalStudy(sets=(("generated", replace(found, notes=(HOSTILE,))),)))


def micp() -> str:
    settings = MiCPStudySettings(alphas=(0.1, 0.3), fit=MiCPSettings(steps=2))
    found = micp_study([to_trace_set(sampled_records(60))], settings)
    return micp_page(replace(found, traces=(replace(found.traces[0], notes=(HOSTILE,)),)))


def stop_rag() -> str:
    found = replace(record_study(study_traces(), ALONE), notes=(HOSTILE,))
    return stop_rag_page(StopRAGStudy(records=(found,), refused={}))


def hidden_constraints() -> str:
    return hidden_constraints_page(replace(made_study(), notes=(HOSTILE,), model=HOSTILE))


MADE = {
    "ab_rag": (ab_rag, 7),
    "retrieval": (retrieval, 2),
    "micp": (micp, 3),
    "stop_rag": (stop_rag, 2),
    "hidden_constraints": (hidden_constraints, 20),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    for name, (make, _) in MADE.items():
        (folder / f"{name}.html").write_text(make(), encoding="utf-8")
    return {name: folder / f"{name}.html" for name in MADE}


@pytest.mark.parametrize("name", MADE)
def test_the_charts_are_there_and_nothing_runs(
    chromium: Any, pages: dict[str, Path], name: str
) -> None:
    visit = Visit(chromium, pages[name], viewport=DESK)
    assert visit.page.locator("svg").count() == MADE[name][1]
    assert visit.page.locator("img, script").count() == 0
    check_it_runs_nothing(visit, pages[name])
    visit.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_they_fit_a_phone_and_pass_axe(
    chromium: Any, axe: str, pages: dict[str, Path], name: str, scheme: str
) -> None:
    check_it_fits_and_passes_axe(chromium, pages[name], axe, scheme)
