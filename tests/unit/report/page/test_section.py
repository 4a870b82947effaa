"""A section folds by itself, without a script."""

from __future__ import annotations

from dataclasses import replace

from suffice.report.page.section import Chart, Section, Shown, stacked
from suffice.results.markup import Html, element

SHOWN = Shown(finding="a < b", blocks=[element("p", "c")])


def test_a_section_says_what_it_found_when_folded() -> None:
    section = Section(name="x", heading="X", show=lambda _: SHOWN)
    assert section.html(SHOWN) == (
        '<section id="x" class="more"><details class="fold"><summary><h2>X</h2> '
        '<span class="finding">a &lt; b</span></summary><p>c</p></details></section>'
    )


def test_an_opened_section() -> None:
    section = Section(name="x", heading="X", show=lambda _: SHOWN, opened=True)
    assert section.html(SHOWN).startswith('<section id="x"><details class="fold" open>')


def test_charts_in_a_row_stand_side_by_side() -> None:
    chart = Chart(heading="A", pictures=[Html("<svg></svg>")], caption="b", table=Html("<p>"))
    figure = (
        "<figure><h3>A</h3><svg></svg><figcaption>b</figcaption>"
        "<details><summary>Numbers: A</summary><p></details></figure>"
    )
    assert chart.html() == figure
    text = element("p", "c")
    assert stacked([text, chart, chart, text]) == (
        f'<p>c</p><div class="figures">{figure}{figure}</div><p>c</p>'
    )
    wide = stacked([replace(chart, panels=True)])
    assert wide.startswith('<figure class="wide"><h3>A</h3><div class="panels"><svg>')
