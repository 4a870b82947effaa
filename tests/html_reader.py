"""What stands in a page of HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "input", "img"}


@dataclass
class Page(HTMLParser):
    """The parsed document: every start tag, the tables by caption, the scripts and styles."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    raw: dict[str, str] = field(default_factory=dict)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self._cell: list[str] | None = None
        self._rows: list[list[str]] = []
        self._caption = ""

    @classmethod
    def of(cls, text: str) -> Page:
        """A page, or a part of one."""
        page = cls()
        page.feed(text)
        page.close()
        assert page.open == [], "every element is closed in order"
        return page

    @property
    def names(self) -> set[str]:
        """Of the elements."""
        return {name for name, _ in self.tags}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self._rows = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th", "caption"):
            self._cell = []
        elif tag in ("small", "br") and self._cell is not None:
            self._cell.append(" ")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        if self._cell is not None and tag in ("td", "th", "caption"):
            content, self._cell = " ".join("".join(self._cell).split()), None
            if tag == "caption":
                self._caption = content
            else:
                self._rows[-1].append(content)
        if tag == "table":
            self.tables[self._caption] = self._rows

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self._cell.append(data)
        if self.open and self.open[-1] in ("script", "style"):
            kind = dict(self.tags[-1][1]).get("type") or self.open[-1]
            self.raw[kind] = self.raw.get(kind, "") + data
