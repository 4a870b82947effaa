"""The report as a reader meets it: nothing loaded, nothing run, usable by keyboard, readable anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browser.visits import CHECK, DESK, OPEN, PHONE, Visit

pytestmark = pytest.mark.browser
SERIOUS = ("serious", "critical")


@pytest.fixture
def visit(chromium: Any, report: Path) -> Iterator[Visit]:
    visited = Visit(chromium, report, viewport=DESK)
    yield visited
    assert visited.trouble == []
    assert visited.requests == [report.as_uri()]
    assert visited.page.evaluate("window.hacked") is None
    visited.context.close()


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


def buttons(page: Any) -> Any:
    return page.locator("#question-list button")


def test_hostile_texts_are_shown_as_text(visit: Visit) -> None:
    page = visit.page
    heading = page.locator("#detail h3").text_content()
    assert heading.startswith("<script>window.hacked=1</script></script><!-- <img src=x")
    assert "[U+202E]" in heading
    page.locator("#detail .round summary").first.click()
    shown = page.locator("#detail blockquote").first
    assert shown.is_visible()
    assert "<script>window.hacked=1</script>" in shown.inner_text()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2


def test_a_script_in_the_page_would_be_refused(visit: Visit) -> None:
    visit.page.evaluate(
        "() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
        " document.body.append(s); }"
    )
    assert len(visit.trouble) == 1
    assert "Content Security Policy" in visit.trouble.pop()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_needs_no_sideways_scroll(chromium: Any, report: Path, scheme: str) -> None:
    page = Visit(chromium, report, viewport=PHONE, color_scheme=scheme).page
    page.evaluate(OPEN)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = page.evaluate(
        """[...document.querySelectorAll('body *')].filter((each) => {
            const box = each.getBoundingClientRect();
            return box.right > 391 && box.width > 1 && !each.closest('.scroll, svg, .skip, .quiet');
        }).map((each) => each.tagName + '.' + each.className)"""
    )
    assert wide == []
    page.context.close()


def test_the_explorer_works_by_keyboard(visit: Visit) -> None:
    page = visit.page
    page.locator("#by-order").focus()
    page.keyboard.press("Tab")
    first = buttons(page).first
    assert first.evaluate("each => each === document.activeElement")
    assert first.evaluate("each => getComputedStyle(each).outlineStyle") == "solid"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    assert "What is q001?" in focused(page)
    page.keyboard.press("Enter")
    assert focused(page) == "What is q001?"
    assert buttons(page).nth(1).get_attribute("aria-current") == "true"
    page.keyboard.press("Tab")
    assert focused(page) == "Previous question"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert focused(page) == "Next question"
    assert page.locator("#detail h3").text_content() == "What is q002?"


def test_a_link_to_a_section_unfolds_it(visit: Visit, chromium: Any, report: Path) -> None:
    page = visit.page
    page.locator("nav a", has_text="Signals").focus()
    page.keyboard.press("Enter")
    assert page.locator("#signals svg").first.is_visible()
    page.locator("#signals > details > summary").click()
    assert page.locator("#signals svg").first.is_hidden()
    page.locator("nav a", has_text="Signals").click()
    assert page.locator("#signals svg").first.is_visible()
    other = Visit(chromium, report, viewport=DESK).page
    other.goto(f"{report.as_uri()}#costs")
    assert other.locator("#costs table").is_visible()
    other.context.close()


def test_paging_by_keyboard_and_stepping_past_a_page(visit: Visit) -> None:
    page = visit.page
    page.locator("#page-on").focus()
    page.keyboard.press("Enter")
    assert page.locator("#page").text_content() == "Page 2 of 20"
    assert "What is q025?" in focused(page)
    page.locator("#page-back").click()
    buttons(page).last.click()
    page.locator("#question-on").click()
    assert page.locator("#detail h3").text_content() == "What is q025?"
    assert page.locator("#page").text_content() == "Page 2 of 20"
    assert page.locator("[aria-current=true]").count() == 1


OUTCOMES: dict[str, set[int]] = {
    # by number modulo five: right from round 1, from 2, from 3, never, in round 1 only
    "right at its stop": {0, 1},
    "wrong at its stop": {2, 3, 4},
    "stops before right": {2},
    "goes past right": {4},
    "scores higher than the baseline": set(),
    "scores lower than the baseline": {2},
    "never right": {3},
    "no gold answer": set(),
}


def test_filters_keep_the_questions_they_name(visit: Visit) -> None:
    page = visit.page
    page.locator("#by-policy").select_option(index=1)  # fixed-2, against fixed-3
    for outcome, kinds in OUTCOMES.items():
        page.locator("#by-outcome").select_option(outcome)
        said = page.locator("#found").text_content()
        assert said.startswith(f"{100 * len(kinds)} of 500 questions."), outcome
        shown = [text for text in buttons(page).all_text_contents() if text.startswith("What")]
        assert {int(text[9:12]) % 5 for text in shown} == kinds, outcome


def test_search_and_type_narrow_the_list(visit: Visit) -> None:
    page = visit.page
    page.locator("#find").fill("Q12 what")
    assert page.locator("#found").text_content().startswith("10 of 500")
    page.locator("#find").fill("")
    page.locator("#by-type").select_option("strange")
    assert buttons(page).count() == 1
    page.locator("#find").fill("nowhere")
    assert page.locator("#found").text_content().startswith("0 of 500")
    assert page.locator("#question-list").is_hidden()


def test_without_javascript_all_but_the_explorer_is_there(chromium: Any, report: Path) -> None:
    page = Visit(chromium, report, viewport=DESK, java_script_enabled=False).page
    assert page.locator("noscript p").is_visible()
    assert page.locator("#explorer").is_hidden()
    assert page.locator("#theme").is_hidden()
    assert page.locator("svg").first.is_visible()
    page.locator("#signals summary").first.click()
    assert page.locator("#signals svg").first.is_visible()
    assert page.locator(".comparison:not(.looping) tbody tr").count() == 9
    page.context.close()


def test_paper_shows_the_numbers_and_not_the_controls(visit: Visit) -> None:
    page = visit.page
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("figure details .scroll").first.is_visible()
    assert page.locator(".filters").is_hidden()
    assert page.locator("details:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details[open]").count() == page.locator(".fold[open]").count() == 5


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [
        pytest.param(DESK, "light", id="desk-light"),
        pytest.param(PHONE, "dark", id="phone-dark", marks=pytest.mark.slow),
        pytest.param(DESK, "dark", id="desk-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", id="phone-light", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_serious(
    chromium: Any, report: Path, axe: str, scheme: str, viewport: dict[str, int]
) -> None:
    page = Visit(chromium, report, viewport=viewport, color_scheme=scheme).page
    page.evaluate(OPEN)
    page.evaluate(axe)
    serious = [one for one in page.evaluate(CHECK)["violations"] if one["impact"] in SERIOUS]
    assert [(one["id"], one["nodes"][0]["html"]) for one in serious] == []
    page.context.close()


def test_labels_do_not_overlap_in_the_charts(visit: Visit) -> None:
    visit.page.evaluate(OPEN)
    overlaps = visit.page.evaluate(
        """[...document.querySelectorAll('svg')].flatMap((svg) => {
            const boxes = [...svg.querySelectorAll('text')]
                .map((each) => [each, each.getBoundingClientRect()]);
            const hits = [];
            boxes.forEach(([one, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
                const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
                const high = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
                if (wide > 1 && high > 4) hits.push(one.textContent + ' / ' + other.textContent);
            }));
            return hits;
        })"""
    )
    assert overlaps == []


def test_the_verdict_is_on_the_first_screen_and_unfolded_tables_are_whole(visit: Visit) -> None:
    page = visit.page
    box = page.locator(".verdict").bounding_box()
    assert box["y"] + box["height"] <= DESK["height"]
    page.evaluate(OPEN)
    cut = page.evaluate(
        """[...document.querySelectorAll('figure .scroll, .comparison .scroll')]
            .filter((each) => each.scrollWidth > each.clientWidth + 1)
            .map((each) => each.getAttribute('aria-label'))"""
    )
    assert cut == []
