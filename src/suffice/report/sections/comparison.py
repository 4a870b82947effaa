"""The comparison: policies side by side, what each is and costs, and what a reader must know."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.measures.costs import CostAxis
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.marks import Marked, label, labelled, short_name
from suffice.report.page.section import (
    Shown,
    columns,
    folded,
    listed,
    plain,
    two_lines,
)
from suffice.results.formats import UNKNOWN, counted
from suffice.results.markup import Html, data_table, element, join

_COSTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")
_IN_TABLE = frozenset({"rounds", "llm_calls", "prompt_tokens", "completion_tokens"})


def comparison_section(result: ReplayResult, policies: Sequence[Marked]) -> Shown:
    """Whether looping pays, the table, the policies' identities, the notes."""
    baseline = next((policy for policy in policies if policy.baseline), None)
    against = f" against {short_name(baseline)}" if baseline else ""
    own = () if result.cost.name in _IN_TABLE else (result.cost,)
    return Shown(
        finding=f"{policies_in_words(len(policies))}{against}",
        blocks=[
            *_looping(result, policies),
            plain(
                f"Scores are means over questions {result.metric.scored}, rounds, "
                f"{''.join(f'{cost.label}, ' for cost in own)}calls and tokens are means per question. "
                f"{result.metric.label} over fixed-k is at equal {result.cost.label}, over the two "
                "nearest in cost; over the best fixed-k the best is taken anew in each resample, which "
                "favours fixed-k. In brackets: 95% intervals.",
            ),
            element(
                "div",
                labelled(result.table("policies").headed("Policies side by side"), policies),
                class_="comparison",
            ),
            *(table.html() for table in result.tables() if table.name == "cuts"),
            _identities(policies),
            element("h3", "Notes"),
            listed(_notes(result)),
        ],
    )


def policies_in_words(number: int) -> str:
    """How many policies."""
    return "1 policy" if number == 1 else f"{number:,} policies"


def _looping(result: ReplayResult, policies: Sequence[Marked]) -> list[Html]:
    """Whether looping pays at all, said first; nothing where no policy decides by what it reads."""
    table = next((table for table in result.tables() if table.name == "looping"), None)
    if table is None:
        return []
    adaptive = [policy for policy in policies if policy.result.against_fixed]
    caption = f"{result.metric.label} over the best fixed-k at equal cost"
    return [
        element("h3", table.title),
        element("div", labelled(table.headed(caption), adaptive), class_="comparison looping"),
    ]


def _identities(policies: Sequence[Marked]) -> Html:
    table = columns(
        "What each policy is",
        policies,
        ("policy", lambda policy: label(policy, policy.result.label)),
        ("kind", lambda policy: policy.result.kind),
        ("preset", lambda policy: policy.result.preset or UNKNOWN),
        ("hash", lambda policy: element("code", policy.result.hash)),
        ("rule", lambda policy: element("code", policy.facts.summary or UNKNOWN)),
        (
            two_lines("questions that", "end before its round"),
            lambda policy: policy.result.beyond_record,
        ),
    )
    summary = "What each policy is: names, hashes, rules"
    return folded(summary, element("div", table, class_="identities"))


def _notes(result: ReplayResult) -> list[str]:
    notes = list(result.notes)
    unlabelled = result.questions - result.labelled if result.metric.gold else 0
    if not result.labelled:
        notes.append(
            f"No question {result.metric.unscored}: scores and differences are unknown (-)."
        )
    elif unlabelled:
        notes.append(
            f"{counted(unlabelled, 'question')} without gold answers: counted in costs, not in scores."
        )
    for name in _COSTS:
        without = [policy.label for policy in result.policies if policy.paid(name) == UNKNOWN]
        if without:
            whom = "any policy" if len(without) == len(result.policies) else ", ".join(without)
            notes.append(f"{name} is not recorded for {whom}; unknown is shown as -.")
    if any(policy.kind == "oracle" for policy in result.policies):
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


# --- costs ---------------------------------------------------------------------------------------
def costs_section(costs: Sequence[CostAxis], policies: Sequence[Marked]) -> Shown:
    """Mean costs per question; those unknown for every policy are named below."""
    known = [
        cost
        for cost in costs
        if any(policy.result.paid(cost.name) != UNKNOWN for policy in policies)
    ]
    unknown = [cost.label for cost in costs if cost not in known]
    rows = [
        (label(policy), *(policy.result.paid(cost.name) for cost in known)) for policy in policies
    ]
    head = ("policy", *(_head(cost) for cost in known))
    table = data_table("Every cost known here, mean per question", head, rows)
    named = [plain(f"Unknown here: {', '.join(unknown)}.", small=True)] if unknown else []
    return Shown(
        finding=f"{len(known)} of {len(costs)} costs are known here",
        blocks=[
            plain("Means per question. A policy pays for what it reads; - is unknown."),
            table,
            *named,
        ],
    )


def _head(cost: CostAxis) -> Html:
    first, last = cost.head
    return two_lines(first, last) if first else join([last])
