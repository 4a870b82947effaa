"""Answer sets in the report, the explorer and the comparison table."""

from __future__ import annotations

from dataclasses import replace

from studies.tests.micp import sampled_records
from tests.answer_sets import POLICY, RECORDS, told
from tests.html_reader import Page

from suffice.policies.micp.relevance_filter import RelevanceFilter
from suffice.report.explorer import explorer
from suffice.report.promises import answer_sets_section
from suffice.report.section import marked


def test_the_table_holds_what_the_sets_are_worth() -> None:
    data = told(RECORDS)
    section = answer_sets_section(data.result, marked(data.result))
    assert section is not None
    ((head, row),) = Page.of(section.html()).tables.values()
    assert len(head) == len(row) == 7
    assert row[0] == "Asets"
    assert row[1] == "0.80"
    assert row[2].startswith("0.75 [")
    assert row[3].startswith("1.5 [")  # 1, 1, 3 and 1 members
    assert row[4] == "0.50"
    assert row[6] == "2.00 of 3"
    assert str(section.finding) == "sets: 75.0% covered, 80% promised; 1.50 answers a set"
    assert POLICY.facts.summary.replace("<", "&lt;").replace(">", "&gt;") in section.html()
    assert POLICY.facts.promise[1:].replace('"', "&quot;").replace("'", "&#x27;") in section.html()
    assert "a note &lt;b&gt;" in section.html()


def test_what_the_filter_keeps_is_shown() -> None:
    kept = RelevanceFilter(
        threshold=0.0, relevance="score", alpha=0.1, preset="corrected", values=9
    )
    policy = replace(POLICY, filter=kept, samples=5)
    data = told(sampled_records(40), policy)
    sets = data.result.policies[1].sets
    assert sets is not None
    assert sets.retention is not None
    section = answer_sets_section(data.result, marked(data.result))
    assert section is not None
    ((_, row),) = Page.of(section.html()).tables.values()
    found = sets.retention
    shares = [f"{each or 0.0:.2f}" for each in (found.passages, found.all, found.shown)]
    assert row[-4:] == [*shares, str(found.questions)]
    own = data.result.named("answer sets").data()
    assert own["right_kept"] == [found.passages]
    assert own["all_right_kept"] == [found.all]
    assert own["shown_kept"] == [found.shown]


def test_the_explorer_holds_every_set() -> None:
    data = told(RECORDS)
    document, _ = explorer(data, marked(data.result))
    stops = {each[0]: each[5] for each in document["questions"]}
    assert [len(each) for each in stops["early"]] == [3, 5]
    found = {name: each[1][3:] for name, each in stops.items()}
    assert found == {
        "early": [[["Oslo", 1, 1]], False],
        "wrong": [[["Rome", 1, 1]], False],
        "late": [[["Oslo", 0.5, 2], ["Rome", 0.5, 2]], True],
        "never": [[], True],
    }
