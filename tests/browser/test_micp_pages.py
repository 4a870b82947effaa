"""Answer sets in the report, and the page of ``bench micp``, as a reader meets them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.answer_sets import AGREE, HOSTILE, RECORDS, drawn, told
from tests.browser.visits import DESK, Visit, check_it_fits_and_passes_axe, check_it_runs_nothing
from tests.studies.micp import sampled_records

from studies.micp.results import MiCPStudySettings
from studies.micp.run import micp_study
from studies.micp.show import micp_page
from suffice.policies.micp.settings import MiCPSettings
from suffice.report.page.report import render_report
from suffice.testing.traces import to_trace_set

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def with_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    evil = drawn("a-evil", (HOSTILE,) * 4, AGREE, AGREE)
    path = tmp_path_factory.mktemp("sets") / "report.html"
    path.write_text(render_report(told([evil, *RECORDS])), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = micp_study(
        [to_trace_set(sampled_records(60))],
        MiCPStudySettings(alphas=(0.1, 0.3), fit=MiCPSettings(steps=2)),
    )
    named = replace(found.traces[0], notes=(HOSTILE,))
    path = tmp_path_factory.mktemp("study") / "micp.html"
    path.write_text(micp_page(replace(found, traces=(named,))), encoding="utf-8")
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


def test_the_evaluation_loads_and_runs_nothing(chromium: Any, study: Path) -> None:
    visit = Visit(chromium, study, viewport=DESK)
    assert visit.page.locator("svg").count() == 3
    assert visit.page.locator("img, script").count() == 0
    visit.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        " document.body.append(s); }"
    )
    assert visit.page.evaluate("window.hacked") is None
    assert len(visit.trouble) == 1
    assert visit.requests == [study.as_uri()]
    visit.context.close()


@pytest.mark.slow
@pytest.mark.parametrize("page_name", ["with_sets", "study"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_fit_a_phone_and_pass_axe(
    chromium: Any, axe: str, request: pytest.FixtureRequest, page_name: str, scheme: str
) -> None:
    check_it_fits_and_passes_axe(chromium, request.getfixturevalue(page_name), axe, scheme)
