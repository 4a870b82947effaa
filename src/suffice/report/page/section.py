"""A part of the page that folds: its heading and, in one line, what it found."""

from __future__ import annotations

from dataclasses import dataclass

from suffice.numbers.intervals.bootstrap import Interval
from suffice.results.formats import bracket
from suffice.results.markup import Html, element, join


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, what stands beside it when folded, and the content; ``opened`` at first."""

    name: str
    heading: str
    finding: object
    content: Html
    opened: bool = False

    def html(self) -> Html:
        """The section; the browser folds it, no script is needed."""
        summary = element(
            "summary",
            element("h2", self.heading),
            " ",
            element("span", self.finding, class_="finding"),
        )
        fold = element("details", summary, self.content, class_="fold", open=self.opened)
        return element("section", fold, id=self.name, class_=None if self.opened else "more")


def folded(summary: object, *content: object) -> Html:
    """Something inside a section that is folded at first."""
    return element("details", element("summary", summary), *content)


def plain(*content: object) -> Html:
    """A paragraph that explains."""
    return element("p", *content, class_="plain")


def two_lines(first: str, second: str) -> Html:
    """The head of a narrow column."""
    return join([first, element("br"), second])


def with_interval(shown: str, interval: Interval | None) -> Html:
    """A figure in percent with its interval, small, in brackets."""
    if interval is None:
        return join([shown])
    return join([shown, " ", element("small", bracket(interval))])
