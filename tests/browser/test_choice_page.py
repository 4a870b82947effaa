"""The page of a choice: its first screen on a phone, in the dark, for everybody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.browser.visits import CHECK, PHONE, Visit, check_it_runs_nothing

from suffice.evaluation.replay.results import BY_SIGNALS

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
    assert len(heads) == 5
    assert shown.locator(".verdict.run code").count() >= 3
    check_it_runs_nothing(visit, choice_page)
    assert shown.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    shown.evaluate(axe)
    # what is below the first screen is the report's, and checked there
    violations = shown.evaluate(CHECK.replace("run(", "run('body > header', "))["violations"]
    assert [(one["id"], one["nodes"][0]["html"]) for one in violations] == []
    visit.context.close()
