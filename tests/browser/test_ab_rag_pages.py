"""The pages of ``studies.ab_rag`` and ``studies.retrieval`` as a reader meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies.ab_rag.page import ab_rag_page
from studies.ab_rag.run import RecordsSettings, ab_rag_records
from studies.retrieval.page import retrieval_page
from studies.retrieval.run import retrieval_sets
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing
from tests.studies.ab_rag import study_traces

from studies.ab_rag.record import ABRagComparison, ABRagStudySettings
from studies.retrieval.recall import RetrievalSettings
from suffice.datasets.generated import generate
from suffice.retrieval.indexes import IndexMaker

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    asked = ABRagStudySettings(comparison=ABRagComparison(resamples=20), taus=(0.3, 0.6))
    records = ab_rag_records([study_traces(), study_traces()], RecordsSettings(study=asked))
    sets = retrieval_sets(
        [("generated", list(generate(12, seed=1)))],
        RetrievalSettings(resamples=20),
        IndexMaker(encoder=None),
    )
    folder = tmp_path_factory.mktemp("pages")
    written = {"ab_rag": ab_rag_page(records), "retrieval": retrieval_page(sets)}
    for name, text in written.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in written}


@pytest.mark.parametrize(("name", "charts"), [("ab_rag", 7), ("retrieval", 2)])
def test_the_charts_are_there_and_nothing_runs(
    chromium: Any, pages: dict[str, Path], name: str, charts: int
) -> None:
    visit = Visit(chromium, pages[name], viewport=DESK)
    assert visit.page.locator("svg").count() == charts
    assert visit.page.locator("img, script").count() == 0
    check_it_runs_nothing(visit, pages[name])
    visit.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ab_rag", "retrieval"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_they_fit_a_phone_and_pass_axe(
    chromium: Any, axe: str, pages: dict[str, Path], name: str, scheme: str
) -> None:
    check_it_fits_and_passes_axe(chromium, pages[name], axe, scheme)
