"""The site shows every page, and the prose check finds what it looks for."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tools.prose import DOCS, is_stub, misses

ROOT = Path(__file__).parents[2]


def pages(entries: list[Any]) -> Iterator[str]:
    for entry in entries:
        (held,) = entry.values()
        yield from [held] if isinstance(held, str) else pages(held)


def test_every_page_stands_in_the_navigation_once() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    shown = sorted(pages(project["nav"]))
    written = sorted(
        str(page.relative_to(DOCS))
        for page in DOCS.rglob("*.md")
        if "design" not in page.parts and not is_stub(page.read_text("utf-8"))
    )
    assert shown == written


def test_the_site_loads_nothing_from_elsewhere() -> None:
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    assert project["theme"]["font"] is False
    assert all(":" not in each["path"] for each in project["extra"]["polyfills"])
    assert all((DOCS / each["path"]).exists() for each in project["extra"]["polyfills"])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (" ".join(["word"] * 20) + ".", 0),
        (" ".join(["word"] * 21) + ".", 1),
        ("One. " * 30, 0),
        ("```\n" + "word " * 30 + "\n```", 0),
        ("| " + "word " * 30 + " |", 0),
        ("- " + "word " * 12 + "\n- " + "word " * 12, 0),
        ("The licence.", 1),
    ],
)
def test_long_sentences_and_banned_words_are_found(text: str, found: int) -> None:
    assert len(list(misses(text))) == found
