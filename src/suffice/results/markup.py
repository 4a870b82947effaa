"""HTML that is safe by construction: everything that is not markup is escaped."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Sequence

_VOID = frozenset({"br", "input", "link", "meta"})
# Characters that hide, reorder or end text: controls but tab and line feed, marks and overrides of
# writing direction, invisible joins and blanks, line separators, byte-order marks, lone surrogates, and
# copies of ASCII that show nothing.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\ufffe\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_UNSAFE_IN_SCRIPT = re.compile("[<>&\u2028\u2029]")


class Html(str):
    """Markup. Formatting it or adding to it gives a plain string, which will be escaped."""

    __slots__ = ()


def visible(text: str) -> str:
    r"""Return the text with invisible and direction-changing characters spelled out.

    >>> visible("abc\u202edef")
    'abc[U+202E]def'
    """
    return _INVISIBLE.sub(lambda match: f"[U+{ord(match.group()):04X}]", text.replace("\r\n", "\n"))


def shorten(text: str, most: int, ellipsis: str = "…") -> str:
    """Cut the text's middle so that at most ``most`` characters stay.

    >>> shorten("answer_stable and round >= 2", 16)
    'answer_s…nd >= 2'
    """
    if len(text) <= most:
        return text
    kept = max(0, most - len(ellipsis))
    head = (kept + 1) // 2
    return f"{text[:head]}{ellipsis}{text[len(text) - (kept - head) :]}"


def _escape(value: object) -> str:
    if isinstance(value, Html):
        return value
    return html.escape(visible(str(value)))


def join(parts: Iterable[object]) -> Html:
    """Join parts; escape those that are not markup."""
    return Html("".join(_escape(part) for part in parts))


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element; children and attribute values that are not markup are escaped."""
    opened = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        attribute = key.rstrip("_").replace("_", "-")
        opened.append(attribute if value is True else f'{attribute}="{_escape(value)}"')
    if name in _VOID:
        return Html(f"<{' '.join(opened)}>")
    return Html(f"<{' '.join(opened)}>{join(children)}</{name}>")


def _as_json_escape(match: re.Match[str]) -> str:
    escaped = json.dumps(match.group())[1:-1]
    return escaped if escaped.startswith("\\") else f"\\u{ord(escaped):04x}"


def json_escaped(text: str) -> str:
    r"""Return JSON with invisible and direction-changing characters in JSON's own escapes.

    >>> print(json_escaped('"abc\u202edef"'))
    "abc\u202edef"
    """
    return _INVISIBLE.sub(_as_json_escape, text)


def json_for_script(value: object) -> Html:
    """Return JSON that cannot end or confuse its ``<script>`` element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Html(_UNSAFE_IN_SCRIPT.sub(_as_json_escape, text))


def data_table(
    caption: str, head: Sequence[object], rows: Iterable[Sequence[object]], *, names: int = 1
) -> Html:
    """Return a table in a scrolling region; the first ``names`` cells of a row are its headers."""

    def cell(number: int, content: object, scope: str) -> Html:
        further = "name" if 0 < number < names else None
        return element("th", content, scope=scope, class_=further)

    header = element("tr", *(cell(number, content, "col") for number, content in enumerate(head)))
    body = join(
        element(
            "tr",
            *(cell(number, content, "row") for number, content in enumerate(row[:names])),
            *(element("td", content) for content in row[names:]),
        )
        for row in rows
    )
    table = element(
        "table", element("caption", caption), element("thead", header), element("tbody", body)
    )
    return element("div", table, class_="scroll", role="region", tabindex="0", aria_label=caption)
