"""A section folds by itself, without a script."""

from __future__ import annotations

from suffice.numbers.intervals.bootstrap import Interval
from suffice.report.page.section import Section, folded, with_interval
from suffice.results.markup import element


def test_a_section_says_what_it_found_when_folded() -> None:
    section = Section(name="x", heading="X", finding="a < b", content=element("p", "c"))
    assert section.html() == (
        '<section id="x" class="more"><details class="fold"><summary><h2>X</h2> '
        '<span class="finding">a &lt; b</span></summary><p>c</p></details></section>'
    )


def test_an_opened_section() -> None:
    section = Section(name="x", heading="X", finding="", content=element("p"), opened=True)
    assert section.html().startswith('<section id="x"><details class="fold" open>')


def test_pieces() -> None:
    assert folded("<s>", "t") == "<details><summary>&lt;s&gt;</summary>t</details>"
    assert with_interval("1.0", None) == "1.0"
    interval = Interval(estimate=0.5, low=0.25, high=0.75)
    assert with_interval("50.0", interval) == "50.0 <small>[25.0, 75.0]</small>"
