from __future__ import annotations

from tests.reports import build_report, oslo_records

from suffice.report.section import label, marked, short_name

RECORDS = oslo_records()


def test_fixed_budgets_get_their_number_and_others_letters() -> None:
    data = build_report(RECORDS, ["fixed-2", "fixed-2", "oracle-em"], ["round >= 2", "round >= 1"])
    found = marked(data.result)
    assert [each.mark for each in found] == ["2", "A", "B", "C", "D"]
    assert [each.family for each in found] == ["fixed", "fixed", "oracle", "adaptive", "adaptive"]
    assert [each.baseline for each in found] == [True, False, False, False, False]


def test_long_names_are_cut_in_the_middle_and_escaped() -> None:
    rule = "round < 3 and " * 10 + "round >= 1"
    found = marked(build_report(RECORDS, ["fixed-1"], [rule]).result)[1]
    assert len(short_name(found)) == 40
    assert "&lt;" in label(found)
    assert rule.partition(" and ")[0] in short_name(found)
