"""The viewer as a visitor meets it: keys, deep links, rules tried while typed, hostile texts, both themes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra 'serve' is missing")

from tests.browser.visits import CHECK, DESK, OPEN, PHONE
from tests.looked_at import HOSTILE, make_hostile, make_records
from tests.serving import running

from suffice.measures.measures import Measures
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Passage
from suffice.view.data import RecordView, ViewSettings
from suffice.view.viewer import Shown, viewer_app, write_bundle

pytestmark = pytest.mark.browser

VIEWS = (
    "",
    "?view=questions&policy=tasr",
    "?view=question&id=q001",
    "?view=question&id=q000",
    "?view=what-if&rule=answer_repeats",
    "?view=compare&a=tasr&b=fixed-3",
    "?view=live",
    "?view=promises",
)


@pytest.fixture(scope="module")
def view() -> RecordView:
    records = make_records(120)
    hostile = make_hostile(records[0])
    long = Passage(id="long", title="a megabyte", text="<b>" + "x" * 1_000_000)
    second = replace(hostile.rounds[1], passages=(long,))
    hostile = replace(hostile, rounds=(hostile.rounds[0], second, *hostile.rounds[2:]))
    settings = ViewSettings(policies=("tasr",), rules=("answer_repeats and round >= 2",))
    opened = RecordView(Measures(to_trace_set([hostile, *records[1:]])), settings)
    opened.work()
    return opened


@pytest.fixture(scope="module")
def address(view: RecordView) -> Iterator[str]:
    shown = Shown(view)
    with running(viewer_app(shown), lifespan="off") as port:
        yield f"http://127.0.0.1:{port}/"
        shown.ended = True


class Visitor:
    """A page with everything that went wrong on it or was asked elsewhere."""

    def __init__(self, chromium: Any, address: str, **context: Any) -> None:
        self.context = chromium.new_context(**context)
        self.page = self.context.new_page()
        self.page.set_default_timeout(10_000)
        self.trouble: list[str] = []
        self.page.on("console", lambda message: self.trouble.append(message.text))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda request: self.asked(request.url))
        self.address = address

    def asked(self, url: str) -> None:
        if not url.startswith((self.address, "data:")):
            self.trouble.append(f"asked for {url}")

    def go(self, query: str) -> Any:
        self.page.goto(self.address + query)
        self.page.locator("main h2").first.wait_for(state="attached")
        return self.page


@pytest.fixture
def visitor(chromium: Any, address: str) -> Iterator[Visitor]:
    visiting = Visitor(chromium, address, viewport=DESK)
    yield visiting
    assert visiting.trouble == []
    assert visiting.page.evaluate("window.hacked") is None
    visiting.context.close()


def test_a_visit_by_keys_alone(visitor: Visitor) -> None:
    page = visitor.go("?view=questions&policy=tasr")
    rows = page.locator(".rows a")
    rows.first.wait_for()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "f-text"
    page.keyboard.type("q01")
    page.locator(".found", has_text="10 questions of 120").wait_for()
    assert "text=q01" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert "q011" in page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    page.locator(".timeline").wait_for()
    assert "id=q011" in page.url
    assert page.locator(".timeline > li").count() == 3
    assert page.locator(".spark").count() >= 3
    page.keyboard.press("j")
    page.locator(".about", has_text="q012").wait_for()
    page.keyboard.press("Escape")
    page.locator(".rows a").first.wait_for()
    assert "text=q01" in page.url
    page.go_back()
    page.locator(".about", has_text="q012").wait_for()


def test_a_rule_is_tried_while_it_is_typed(visitor: Visitor) -> None:
    page = visitor.go("?view=what-if")
    page.locator("#rule").press_sequentially("answer_repeats and", delay=5)
    page.locator("#rule[aria-invalid=true]").wait_for()
    page.locator("#rule").press_sequentially(" round >= 2", delay=5)
    page.locator("#rule[aria-invalid=false]").wait_for()
    page.locator(".figures-of", has_text="this rule minus fixed-3").wait_for()
    assert page.locator("#rule-said").text_content().startswith("Worked out for")
    page.locator(".tried svg").wait_for()
    link = page.locator(".more-link a[href*='round']")  # of the whole rule, not of its first word
    link.wait_for()
    number = link.text_content().split()[1]
    link.click(delay=400)  # as long as a person's: nothing under the pointer may be replaced then
    page.locator(".found", has_text=f"{number} question").wait_for()
    assert "policy=what-if" in page.url


def test_hostile_texts_are_shown_as_text(visitor: Visitor) -> None:
    page = visitor.go("?view=question&id=q000")
    page.locator(".timeline").wait_for()
    assert page.locator(".asked").text_content().startswith(HOSTILE[:40])
    assert "[U+202E]" in page.locator(".asked").text_content()
    page.evaluate(OPEN)
    assert page.locator("img").count() == 0
    long = page.locator("blockquote", has_text="<b>xxx")
    assert "more characters are not shown" in long.text_content()
    assert page.evaluate("document.documentElement.scrollWidth") <= DESK["width"]


@pytest.mark.parametrize(
    ("size", "scheme", "views"),
    [
        pytest.param(DESK, "light", VIEWS[2:3], id="sample"),
        pytest.param(DESK, "light", VIEWS, id="desk-light", marks=pytest.mark.slow),
        pytest.param(DESK, "dark", VIEWS, id="desk-dark", marks=pytest.mark.slow),
        pytest.param(PHONE, "light", VIEWS, id="phone-light", marks=pytest.mark.slow),
        pytest.param(PHONE, "dark", VIEWS, id="phone-dark", marks=pytest.mark.slow),
    ],
)
def test_axe_finds_nothing_and_it_fits(
    chromium: Any, address: str, axe: str, size: dict[str, int], scheme: str, views: tuple[str, ...]
) -> None:
    visiting = Visitor(chromium, address, viewport=size, color_scheme=scheme)
    for query in views:
        page = visiting.go(query)
        page.wait_for_load_state()
        page.evaluate("new Promise((done) => setTimeout(done, 250))")
        page.evaluate(OPEN)
        page.evaluate(axe)
        found = page.evaluate(CHECK)["violations"]
        assert [(query, one["id"], one["nodes"][0]["html"]) for one in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= size["width"], query
    assert visiting.trouble == []
    visiting.context.close()


def test_a_graded_score_fills_its_cell(chromium: Any) -> None:
    """A score between 0 and 1 is neither right nor wrong, in the table and on the question's page."""
    opened = RecordView(Measures.of("example"), ViewSettings(policies=("fixed-2",)))
    opened.work()
    shown = Shown(opened)
    with running(viewer_app(shown), lifespan="off") as port:
        visiting = Visitor(chromium, f"http://127.0.0.1:{port}/", viewport=DESK)
        page = visiting.go("?view=questions&sort=score&order=desc")
        page.locator(".rows .cell i").first.wait_for(state="attached")
        assert "filled by its score" in page.locator(".found").text_content()
        assert "✗" not in page.locator(".rows").inner_text()
        page.locator(".rows a").first.click()
        page.locator(".timeline .chip").first.wait_for()
        assert page.locator(".chip.wrong, .chip.right").count() == 0
        assert visiting.trouble == []
        visiting.context.close()
        shown.ended = True


@pytest.mark.slow
def test_a_bundle_is_a_visit_without_our_server(
    chromium: Any, view: RecordView, tmp_path: Path
) -> None:
    from functools import partial
    from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    write_bundle(view, tmp_path / "site")
    handler = partial(Quiet, directory=str(tmp_path / "site"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        visiting = Visitor(chromium, f"http://127.0.0.1:{server.server_port}/", viewport=DESK)
        page = visiting.go("?view=questions&policy=tasr&outcome=wrong")
        page.locator(".rows a").first.click()
        page.locator(".timeline").wait_for()
        assert "no rule can be tried" in page.locator("#about").text_content()
        page.goto(visiting.address)
        page.locator("main svg").wait_for()
        assert visiting.trouble == []
        visiting.context.close()
        server.shutdown()
