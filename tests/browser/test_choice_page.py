"""The page of a choice: its first screen on a phone, in the dark, for everybody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.browser.visits import CHECK, DESK, PHONE, Visit, check_it_runs_nothing

from suffice.cli.commands.replay import write_choice
from suffice.evaluation.choose.procedure import choose
from suffice.evaluation.replay.results import BY_SIGNALS
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.measures import Measures

pytestmark = pytest.mark.browser


def test_what_to_do_is_read_first_on_a_dark_phone(
    chromium: Any, choice_page: Path, axe: str
) -> None:
    visit = Visit(chromium, choice_page, viewport=PHONE, color_scheme="dark")
    shown = visit.page
    first = shown.locator("h1").bounding_box()
    assert first["y"] + first["height"] < PHONE["height"] / 2
    heads = shown.locator(".verdict.four h2").all_text_contents()
    assert heads[:2] == ["Do more rounds help?", BY_SIGNALS]
    assert len(heads) == 6
    assert shown.locator(".verdict.run code").count() >= 3
    check_it_runs_nothing(visit, choice_page)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    shown.evaluate(axe)
    # what is below the first screen is the report's, and checked there
    violations = shown.evaluate(CHECK.replace("run(", "run('body > header', "))["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in violations] == []
    visit.context.close()


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is chosen for the shipped record, whose scores are graded."""
    folder = tmp_path_factory.mktemp("graded")
    measures = Measures.of("example")
    write_choice(choose(measures, ChoiceSettings(family="fixed", resamples=20)), measures, folder)
    return folder / "index.html"


def test_questions_that_score_otherwise_are_a_click_away(chromium: Any, graded: Path) -> None:
    said = json.loads((graded.parent / "choice.json").read_text())["early_stops"]
    visit = Visit(chromium, graded, viewport=DESK)
    links = visit.page.locator("a[data-outcome]")
    told = {which: said[which]["count"] for which in ("lower", "higher") if said[which]["count"]}
    assert links.count() == len(told) > 0
    for link, count in zip(links.all(), told.values(), strict=True):
        link.click()
        assert visit.page.locator("#found").text_content().startswith(f"{count} of 250 questions")
    cells = visit.page.locator("#question-list .cell")
    assert cells.filter(has_text="✗").count() == cells.filter(has_text="✓").count() == 0
    assert cells.locator("i").count() > 0
    check_it_runs_nothing(visit, graded)
    visit.context.close()


OUTSIDE = """() => [...document.querySelectorAll('svg')].flatMap((svg) => {
    const frame = svg.getBoundingClientRect();
    return [...svg.querySelectorAll('line, polyline, circle, polygon, rect, text')].filter((each) => {
        const box = each.getBoundingClientRect();
        return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1
            || box.bottom > frame.bottom + 1;
    }).map((each) => `${svg.getAttribute('aria-label')}: ${each.outerHTML}`);
})"""
CUT = """() => [...document.querySelectorAll('.beside .scroll, .comparison .scroll')].flatMap((scroll) => {
    const end = scroll.getBoundingClientRect().right + 1;
    return [...scroll.querySelectorAll('th, td')].filter((cell) => cell.getBoundingClientRect().right > end)
        .map((cell) => cell.textContent);
})"""


@pytest.mark.parametrize(
    ("width", "media"), [(1280, "screen"), (1100, "screen"), (768, "screen"), (718, "print")]
)
def test_nothing_is_cut_or_drawn_outside_its_frame(
    chromium: Any, graded: Path, choice_page: Path, width: int, media: str
) -> None:
    """718 pixels are a sheet of A4 between Chromium's margins."""
    for page in (graded, choice_page):
        visit = Visit(chromium, page, viewport={"width": width, "height": 900})
        visit.page.emulate_media(media=media)
        visit.page.evaluate("scrollTo(0, document.body.scrollHeight)")
        assert visit.page.evaluate(OUTSIDE) == []
        if width != 768:  # there wide tables scroll
            assert visit.page.evaluate(CUT) == []
        (change,) = visit.page.locator(".beside th", has_text="change").all()
        box = change.bounding_box()
        assert box["x"] + box["width"] <= width
        visit.context.close()
