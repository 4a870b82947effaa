"""Guarantees in words: what is promised, what is not."""

from __future__ import annotations

from tests.html_reader import Page
from tests.reports import gathered

from suffice.evaluation.choose.bounds import allowed_in_words
from suffice.report.promises import guarantees_section


def test_falling_back_promises_nothing() -> None:
    fell = {**gathered().parts["guarantees"][0], "fell_back": True, "questions_needed": 900}
    section = guarantees_section([fell], ())
    assert "nothing certified" in str(section.finding)
    html = section.html()
    assert "<dd>900</dd>" in html
    assert "With probability" not in html
    assert "It holds" not in html


def test_several_bounds_are_all_said() -> None:
    terms = {"measured": 0.02}
    bounds = (
        {"of": "signed", "at_most": 0.02, **terms},
        {"of": "wrong-stop", "at_most": 0.05, **terms},
    )
    several = dict(
        gathered().parts["guarantees"][0],
        bounds=bounds, max_loss=0.02, cost_label="calls", cost_counted_to=9.0, cost_above=2.0,
        min_rounds=2.0,
    )  # fmt: skip
    several["allowed"] = allowed_in_words(several)
    section = guarantees_section([several], ())
    html = section.html()
    for said in (
        "loses at most 2 F1 points and turns right into wrong on at most 5% of the questions.",
        "<dt>Wrong stops</dt><dd>measured 2.0%",
        "round</dt><dd>2</dd>",
    ):
        assert said in html
    assert "of the questions, at confidence 50%" in str(section.finding)
    evil = {**several, "bounds": ({**bounds[0], "of": "<img src=x>", "at_most": None},)}
    evil["allowed"] = allowed_in_words(evil)
    assert "img" not in Page.of(guarantees_section([evil], ()).html()).names
