"""A page opened in Chromium, and what every page of ours must be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

OPEN = "for (const each of document.querySelectorAll('details')) each.open = true"
CHECK = "axe.run({runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa']})"
PHONE = {"width": 390, "height": 844}
DESK = {"width": 1280, "height": 900}


class Visit:
    """An open report with everything that went wrong or over the wire."""

    def __init__(self, chromium: Any, report: Path, **context: Any) -> None:
        self.context = chromium.new_context(**context)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.trouble: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.goto(report.as_uri())


def check_it_runs_nothing(visit: Visit, page: Path) -> None:
    """Neither loads nor runs anything but itself, and leaves texts as texts."""
    assert visit.page.evaluate("window.hacked") is None
    assert visit.trouble == []
    assert visit.requests == [page.as_uri()]


def check_it_fits_and_passes_axe(chromium: Any, page: Path, axe: str, scheme: str) -> None:
    """With everything unfolded, on a phone and on a desk."""
    for size in (PHONE, DESK):
        visit = Visit(chromium, page, viewport=size, color_scheme=scheme)
        visit.page.evaluate(OPEN)
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= size["width"]
        visit.page.evaluate(axe)
        found = visit.page.evaluate(CHECK)["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []
        visit.context.close()
