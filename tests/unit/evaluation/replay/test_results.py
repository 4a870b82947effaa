"""A replay as people read it."""

from __future__ import annotations

from dataclasses import replace

from tests.reports import build_report, oslo_records

from suffice.evaluation.replay.frontier import AgainstFixed
from suffice.evaluation.replay.results import BY_SIGNALS
from suffice.stats.intervals import Interval
from suffice.trace.rounds.records import Gold


def cells(table: str, name: str) -> list[str]:
    return (
        next(line for line in table.splitlines() if line.startswith(name))
        .removeprefix(name)
        .split()
    )


def test_every_figure_is_the_results() -> None:
    names = ["fixed-1", "fixed-3", "tasr", "oracle-f1"]
    result = build_report(oslo_records(), names, cost="llm_calls").result
    table = result.table.text(200)
    for each in result.policies[1:]:
        assert each.em is not None
        assert each.f1 is not None
        assert each.acc is not None
        assert each.delta is not None
        assert each.frontier_gain is not None
        assert each.retained is not None
        delta, gain = each.delta, each.frontier_gain
        expected = [f"{100 * value:.1f}" for value in (each.em, each.f1, each.acc)]
        expected += [f"{each.mean_rounds:.2f}", f"{each.costs['llm_calls']:.2f}"]
        expected += [f"{each.costs['prompt_tokens']:,.0f}", "-"]
        expected += [f"{100 * delta.estimate:+.1f}", f"[{100 * delta.low:.1f},"]
        expected += [f"{100 * delta.high:.1f}]", f"{100 * each.retained:.1f}"]
        expected += [
            f"{100 * gain.estimate:+.1f}",
            f"[{100 * gain.low:.1f},",
            f"{100 * gain.high:.1f}]",
        ]
        assert [cell.replace("-0.0", "0.0") for cell in cells(table, each.name)] == [
            cell.replace("-0.0", "0.0") for cell in expected
        ]


def test_without_gold_answers_scores_are_unknown() -> None:
    bare = [replace(record, gold=Gold()) for record in oslo_records()]
    table = build_report(bare, ["fixed-1", "fixed-2"], cost="rounds").result.text()
    assert cells(table, "fixed-2") == ["-", "-", "-", "2.00", "1.00", "200", "-", "-", "-", "-"]
    assert "No question has gold answers" in table
    assert "(baseline)" not in table


def test_the_cost_asked_for_has_a_column_that_stays() -> None:
    """fixed-2 sees 200 prompt tokens at 0.5 USD a million."""
    table = build_report(oslo_records(), ["fixed-1", "fixed-2"], cost="usd").result.text(60)
    head, below = (line.split() for line in table.splitlines()[:2])
    assert "price" in head
    column = below.index("USD")
    assert cells(table, "fixed-2")[column - 1] == "0.000100"
    assert "price" not in table.partition("Left out for width:")[2].partition(".")[0]
    assert "at equal price" in " ".join(table.split())


def against(cost: str, low: float, high: float, fixed: str = "fixed-1/3") -> AgainstFixed:
    return AgainstFixed(
        cost=cost,
        fixed=fixed,
        gain=Interval(estimate=(low + high) / 2, low=low, high=high),
        held=Interval(estimate=(low + high) / 2, low=low, high=high),
    )


class TestLooping:
    """Whether stopping by signals pays, said before anything else."""

    def test_it_opens_with_every_policy_that_decides_by_what_it_reads(self) -> None:
        names = ["fixed-1", "fixed-3", "tasr", "oracle-f1"]
        result = build_report(oslo_records(), names, cost="usd").result
        table = result.tables()[0]
        assert table.name == "looping"
        assert [row[0] for row in table.rows] == ["tasr"]
        assert result.text().startswith(BY_SIGNALS)
        assert "fixed-2/4" in table.notes[0]
        fields = {policy.name: policy.to_json()["against_fixed"] for policy in result.policies}
        assert [fields[name] for name in ("fixed-1", "fixed-3", "oracle-f1")] == [[], [], []]
        assert [entry["cost"] for entry in fields["tasr"]] == ["evaluated_tokens", "usd"]
        assert set(fields["tasr"][0]) == {"cost", "fixed", "gain", "held"}
        assert set(fields["tasr"][0]["gain"]) == {"estimate", "low", "high"}

    def test_without_gold_nothing_is_said(self) -> None:
        bare = [replace(record, gold=Gold()) for record in oslo_records()]
        result = build_report(bare, ["fixed-1"], ["answer_stable"], cost="rounds").result
        assert [table.name for table in result.tables()] == ["policies"]

    def test_the_verdict_names_who_wins_and_who_loses(self) -> None:
        result = build_report(oslo_records(), ["tasr", "tasr-corrected"]).result
        first, second = result.policies[:2]
        wins, level = against("usd", 0.01, 0.05), against("seconds", -0.01, 0.03)
        loses = against("evaluated_tokens", -0.05, -0.01)

        def verdict(of_first: AgainstFixed, of_second: AgainstFixed) -> str:
            both = zip((first, second), (of_first, of_second), strict=True)
            told = [replace(policy, against_fixed=(of,)) for policy, of in both]
            return replace(result, policies=tuple(told)).verdict()

        assert verdict(level, level).startswith("Not shown")
        assert verdict(level, loses).endswith(f"; significantly worse: {second.name}.")
        chosen_anew = replace(loses, held=level.gain)  # below the best of each resample alone
        assert verdict(level, chosen_anew).endswith("at equal cost.")
        said = verdict(wins, wins)
        assert said == "Yes: tasr by +3.0 [1.0, 5.0] points at equal price (2 of 2 policies do)."
        assert verdict(loses, wins).startswith(f"Yes: {second.name} by ")
        assert verdict(loses, wins).endswith("(1 of 2 policies do).")
        exact = against(
            "usd", 0.0, 0.0, fixed="fixed-2"
        )  # an interval that ends at 0 shows nothing
        assert verdict(exact, exact).startswith("Not shown")
