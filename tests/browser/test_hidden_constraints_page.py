"""The page of ``bench hidden-constraints`` as a reader meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.answer_sets import HOSTILE
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing
from tests.studies.hidden_constraints import made_study

from studies.hidden_constraints.page import hidden_constraints_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "hidden_constraints.html"
    made = replace(made_study(), notes=(HOSTILE,), model=HOSTILE)
    path.write_text(hidden_constraints_page(made), encoding="utf-8")
    return path


def test_it_loads_and_runs_nothing(chromium: Any, study: Path) -> None:
    visit = Visit(chromium, study, viewport=DESK)
    assert visit.page.locator("svg").count() == 20
    assert visit.page.locator("img, script").count() == 0
    assert visit.page.locator("li").inner_text().startswith("<script>")
    check_it_runs_nothing(visit, study)
    visit.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_passes_axe(chromium: Any, axe: str, study: Path, scheme: str) -> None:
    check_it_fits_and_passes_axe(chromium, study, axe, scheme)
