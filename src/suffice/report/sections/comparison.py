"""The comparison: policies side by side, what each is, and what a reader must know."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.marks import Marked, label, short_name
from suffice.report.page.section import (
    Section,
    Shown,
    folded,
    listed,
    plain,
    two_lines,
    with_interval,
)
from suffice.results.formats import (
    UNKNOWN,
    amount,
    count,
    counted,
    decimal,
    percent,
    signed,
)
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_COSTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")
_IN_TABLE = frozenset({"rounds", "llm_calls", "prompt_tokens", "completion_tokens"})


def comparison_section(result: ReplayResult, policies: Sequence[Marked]) -> Shown:
    """The table, the policies' identities, the notes."""
    baseline = next((policy for policy in policies if policy.baseline), None)
    against = f" against {short_name(baseline)}" if baseline else ""
    own = () if result.cost.name in _IN_TABLE else (result.cost,)
    return Shown(
        finding=f"{policies_in_words(len(policies))}{against}",
        blocks=[
            plain(
                "Scores are means over questions with gold answers, rounds, "
                f"{''.join(f'{cost.label}, ' for cost in own)}calls and tokens are means per question. "
                f"F1 over fixed-k is at equal {result.cost.label}. In brackets: 95% intervals.",
            ),
            element("div", _table(result, policies, own), class_="comparison"),
            _identities(policies),
            element("h3", "Notes"),
            listed(_notes(result)),
        ],
    )


SECTION = Section(
    name="comparison",
    heading="Comparison",
    show=lambda material: comparison_section(material.data.result, material.policies),
    opened=True,
)


def policies_in_words(number: int) -> str:
    """How many policies."""
    return "1 policy" if number == 1 else f"{number:,} policies"


def _table(result: ReplayResult, policies: Sequence[Marked], own: Sequence[CostAxis]) -> Html:
    head = (
        *("Policy", "EM %", "F1 %", "Acc %", "Rounds", "Calls"),
        *(_cost_head(cost) for cost in own),
        two_lines("Prompt", "tokens"),
        two_lines("Completion", "tokens"),
        two_lines("F1 against", shorten(visible(result.baseline), 20)),
        two_lines("F1", "kept %"),
        two_lines("F1 over", "fixed-k"),
    )
    return data_table("Policies side by side", head, [_row(policy, own) for policy in policies])


def _cost_head(cost: CostAxis) -> Html:
    label = f"{cost.label[:1].upper()}{cost.label[1:]}"
    if cost.unit:
        return two_lines(f"{label},", cost.unit)
    first, _, last = label.rpartition(" ")
    return two_lines(first, last) if first else join([label])


def _row(policy: Marked, own: Sequence[CostAxis]) -> tuple[object, ...]:
    result, costs = policy.result, policy.result.costs
    return (
        label(policy),
        percent(result.em),
        with_interval(percent(result.f1), result.f1_interval),
        percent(result.acc),
        decimal(result.mean_rounds),
        decimal(costs.get("llm_calls")),
        *(amount(costs.get(cost.name)) for cost in own),
        count(costs.get("prompt_tokens")),
        count(costs.get("completion_tokens")),
        element("span", "baseline", class_="tag")
        if policy.baseline
        else _difference(result.delta_f1),
        percent(result.retained_f1),
        _difference(result.frontier_gain),
    )


def _difference(interval: Interval | None) -> Html:
    return with_interval(signed(None if interval is None else interval.estimate), interval)


def _identities(policies: Sequence[Marked]) -> Html:
    rows = [
        (
            label(policy, policy.result.name),
            policy.result.kind,
            policy.result.preset or UNKNOWN,
            element("code", policy.result.hash),
            element("code", policy.facts.summary or UNKNOWN),
            policy.result.beyond_record,
        )
        for policy in policies
    ]
    head = (
        "policy",
        "kind",
        "preset",
        "hash",
        "rule",
        two_lines("questions that", "end before its round"),
    )
    table = data_table("What each policy is", head, rows)
    summary = "What each policy is: names, hashes, rules"
    return folded(summary, element("div", table, class_="identities"))


def _notes(result: ReplayResult) -> list[str]:
    notes = list(result.notes)
    unlabelled = result.questions - result.labelled
    if not result.labelled:
        notes.append("No question has gold answers: scores and differences are unknown (-).")
    elif unlabelled:
        notes.append(
            f"{counted(unlabelled, 'question')} without gold answers: counted in costs, not in scores."
        )
    for name in _COSTS:
        without = [each.name for each in result.policies if each.costs.get(name) is None]
        if without:
            whom = "any policy" if len(without) == len(result.policies) else ", ".join(without)
            notes.append(f"{name} is not recorded for {whom}; unknown is shown as -.")
    if any(each.kind == "oracle" for each in result.policies):
        notes.append(
            "Oracles read the gold answers: they bound what is possible and cannot be deployed."
        )
    if result.labelled:
        notes.append(
            "Intervals come from resampling these questions. They say nothing about another data set, "
            "model, retriever or prompt, nor about what a rerun of this model would answer. With many "
            "policies, some differ from the baseline by chance."
        )
    return notes
