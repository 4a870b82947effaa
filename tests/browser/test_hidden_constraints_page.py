"""The page of ``bench hidden-constraints`` as a reader meets it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.browser.test_micp_pages import CHECK, OPEN, SEEN
from tests.browser.test_report import DESK, PHONE, Visit
from tests.studies.hidden_constraints import made_study
from tests.unit.report.sections.test_answer_sets import HOSTILE

from suffice.bench.hidden_constraints.page import hidden_constraints_page

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("study") / "hidden_constraints.html"
    made = replace(made_study(), notes=(HOSTILE,), model=HOSTILE)
    path.write_text(hidden_constraints_page(made), encoding="utf-8")
    return path


def test_it_loads_and_runs_nothing(chromium: Any, study: Path) -> None:
    visit = Visit(chromium, study, viewport=DESK)
    assert visit.page.locator("svg").count() == 18
    assert visit.page.locator("img, script").count() == 0
    assert visit.page.locator("li").inner_text().startswith("<script>")
    assert visit.page.evaluate("window.hacked") is None
    assert visit.trouble == []
    assert visit.requests == [study.as_uri()]
    visit.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_passes_axe(chromium: Any, axe: str, study: Path, scheme: str) -> None:
    for size in (PHONE, DESK):
        visit = Visit(chromium, study, viewport=size, color_scheme=scheme)
        visit.page.evaluate(OPEN)
        assert visit.page.evaluate(SEEN) <= size["width"]
        visit.page.evaluate(axe)
        found = visit.page.evaluate(CHECK)["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        visit.context.close()
