"""A page that loads nothing: style and script stand in it, and its own security policy forbids any other."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from suffice._version import VERSION
from suffice.results.markup import Html, element


def asset(name: str) -> Html:
    """A file of this package, as it is."""
    return Html(files("suffice.report.page").joinpath(name).read_text(encoding="utf-8"))


def markup(name: str) -> Html:
    """A file of markup, without the breaks and spaces between its lines."""
    return Html("".join(line.strip() for line in asset(name).splitlines()))


def page(title: str, *content: object, script: Html) -> str:
    """The whole document in the report's style, with ``script`` at its end."""
    style = asset("page.css")
    security = (
        f"default-src 'none'; style-src {_hashed(style)}; script-src {_hashed(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=Html(security)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", style),
    )
    footer = element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere.")
    body = element("body", *content, footer, element("script", script))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


def _hashed(content: str) -> str:
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
