"""The page of ``bench stop-rag`` as a reader meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from tests.answer_sets import HOSTILE
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing
from tests.studies.stop_rag import ALONE, study_traces

from studies.stop_rag.run import stop_rag_study
from studies.stop_rag.show import stop_rag_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = replace(stop_rag_study(study_traces(), ALONE), notes=(HOSTILE,))
    path = tmp_path_factory.mktemp("study") / "stop_rag.html"
    path.write_text(stop_rag_page(found), encoding="utf-8")
    return path


def test_it_loads_and_runs_nothing(chromium: Any, study: Path) -> None:
    visit = Visit(chromium, study, viewport=DESK)
    assert visit.page.locator("svg").count() == 2
    assert visit.page.locator("img, script").count() == 0
    assert visit.page.locator("li").inner_text().startswith("<script>")
    check_it_runs_nothing(visit, study)
    visit.context.close()


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_it_fits_a_phone_and_passes_axe(chromium: Any, axe: str, study: Path, scheme: str) -> None:
    check_it_fits_and_passes_axe(chromium, study, axe, scheme)
