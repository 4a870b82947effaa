"""Answer sets in the report as a reader meets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.answer_sets import AGREE, HOSTILE, RECORDS, drawn, told
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing

from suffice.report.page import render_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def with_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    evil = drawn("a-evil", (HOSTILE,) * 4, AGREE, AGREE)
    path = tmp_path_factory.mktemp("sets") / "report.html"
    path.write_text(render_report(told([evil, *RECORDS])), encoding="utf-8")
    return path


def test_the_explorer_shows_sets_as_text(chromium: Any, with_sets: Path) -> None:
    visit = Visit(chromium, with_sets, viewport=DESK)
    page = visit.page
    assert page.locator("#detail .answer-set li").first.inner_text() == f"{HOSTILE} 1, round 1"
    assert page.locator("img").count() == 0
    page.locator("#question-list button", has_text="What is never?").click()
    assert page.locator("#detail .answer-set li").all_inner_texts() == ["Can't Answer"]
    page.locator("#question-list button", has_text="What is late?").click()
    assert page.locator("#detail .answer-set li").all_inner_texts() == [
        "Oslo 0.5, round 2",
        "Rome 0.5, round 2",
        "Can't Answer",
    ]
    check_it_runs_nothing(visit, with_sets)
    visit.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_phone_and_passes_axe(
    chromium: Any, axe: str, with_sets: Path, scheme: str
) -> None:
    check_it_fits_and_passes_axe(chromium, with_sets, axe, scheme)
