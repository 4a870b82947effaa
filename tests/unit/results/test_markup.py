from __future__ import annotations

import html
import json

import pytest

from suffice.results.markup import element, join, json_for_script, visible

HOSTILE = (
    "<script>window.hacked=1</script>",
    "</script><!--",
    "]]> & &amp; \"double\" 'single' `tick`",
    "a\u2028b\u2029c",
    "abc\u202edef\u2066ghi\u200b",
    "nul\x00bell\x07",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_and_attributes_are_escaped_and_come_back_whole(text: str) -> None:
    made = element("p", text, title=text)
    assert made.count("<") == 2
    assert made.count('"') == 2
    inner = made.partition(">")[2].removesuffix("</p>")
    assert html.unescape(inner) == visible(text)


def test_a_string_made_from_markup_is_text_again() -> None:
    bold = element("b", "x")
    assert join([bold]) == "<b>x</b>"
    assert join([f"{bold}"]) == "&lt;b&gt;x&lt;/b&gt;"
    assert join([bold + "<"]) == "&lt;b&gt;x&lt;/b&gt;&lt;"


@pytest.mark.parametrize("text", HOSTILE)
def test_json_in_a_script_round_trips_and_cannot_end_it(text: str) -> None:
    embedded = json_for_script({text: [text, None, 1.5]})
    assert not set(embedded) & set("<>&\u2028\u2029")
    assert json.loads(embedded) == {text: [text, None, 1.5]}


def test_visible_spells_out_what_hides_or_reorders_text_and_nothing_else() -> None:
    assert visible("abc\u202edef") == "abc[U+202E]def"
    assert visible("zero\u200bwidth\ufeff") == "zero[U+200B]width[U+FEFF]"
    assert visible("\ud800") == "[U+D800]"
    plain = "Ångström, 東京, עברית, naïve\n\ttab 🙂 👩‍🚀"
    assert visible(plain) == plain
