"""Policies side by side: the table, what each is and costs, the charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from suffice.errors import counted
from suffice.evaluation.replay.results import PolicyResult, ReplayResult
from suffice.measures.costs import CostAxis
from suffice.report.charts import Bar, BarRow, Bars, Point, Scatter, Segment, bars, scatter
from suffice.report.section import (
    Chart,
    Marked,
    Material,
    Shown,
    columns,
    folded,
    label,
    labelled,
    legend,
    listed,
    plain,
    short_name,
    two_lines,
)
from suffice.results.formats import UNKNOWN, amount, bracket, count, decimal, percent, points
from suffice.results.markup import Html, data_table, element, join
from suffice.stats.intervals import Interval

_COSTS = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens")


def comparison_section(material: Material) -> Shown:
    result, policies = material.data.result, material.policies
    baseline = next((policy for policy in policies if policy.baseline), None)
    against = f" against {short_name(baseline)}" if baseline else ""
    return Shown(
        finding=f"{policies_in_words(len(policies))}{against}",
        blocks=[
            *_looping(result, policies),
            element(
                "div",
                labelled(replace(result.table, title="Policies side by side"), policies),
                class_="comparison",
            ),
            *(table.html() for table in result.tables() if table.name == "cuts"),
            _identities(policies),
            element("h3", "Notes"),
            listed(_notes(result)),
        ],
    )


def policies_in_words(number: int) -> str:
    return "1 policy" if number == 1 else f"{number:,} policies"


def _looping(result: ReplayResult, policies: Sequence[Marked]) -> list[Html]:
    table = next((table for table in result.tables() if table.name == "looping"), None)
    if table is None:
        return []
    adaptive = [policy for policy in policies if policy.result.against_fixed]
    return [element("div", labelled(table, adaptive), class_="comparison looping")]


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
    notes = []
    unlabelled = result.questions - result.labelled if result.metric.gold else 0
    if result.labelled and unlabelled:
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
    known = [
        cost
        for cost in costs
        if any(policy.result.paid(cost.name) != UNKNOWN for policy in policies)
    ]
    unknown = [cost.label for cost in costs if cost not in known]
    rows = [
        (label(policy), *(policy.result.paid(cost.name) for cost in known)) for policy in policies
    ]
    heads = [two_lines(*cost.head) if cost.head[0] else cost.head[1] for cost in known]
    table = data_table("Every cost known here, mean per question", ("policy", *heads), rows)
    named = [plain(f"Unknown here: {', '.join(unknown)}.", small=True)] if unknown else []
    return Shown(
        finding=f"{len(known)} of {len(costs)} costs are known here",
        blocks=[
            plain("Means per question. A policy pays for what it reads; - is unknown."),
            table,
            *named,
        ],
    )


_CALLS = CostAxis(name="llm_calls", label="calls", unit="")
_TOKENS = {
    "evaluated": "prompt, uncached",
    "cached": "prompt, cached",
    "unsplit": "prompt, cached share not recorded",
    "output": "completion",
}


def charts_section(material: Material) -> Shown:
    result, policies = material.data.result, material.policies
    marks = (
        element("li", label(policy), element("small", "baseline") if policy.baseline else "")
        for policy in policies
    )
    return Shown(
        finding="scores against cost, where policies stop, what they pay",
        blocks=[
            plain(
                "Squares and numbers: fixed budgets. Circles and letters: policies. Diamonds: oracles."
            ),
            element("ul", *marks, class_="marks", aria_label="Key to the marks"),
            *score_charts(result, policies),
            stops_chart(result, policies),
            cost_chart(result, policies),
        ],
    )


# --- scores against cost -------------------------------------------------------------------------
def score_charts(result: ReplayResult, policies: Sequence[Marked]) -> list[Chart]:
    """Chart scores with paired intervals against mean cost, with the line of fixed budgets."""
    placed = [
        (policy, policy.result.score, _paid(policy, result))
        for policy in policies
        if policy.result.score is not None and not math.isnan(_paid(policy, result))
    ]
    if result.frontier is None or not placed:
        return []
    label, cost = result.metric.label, f"mean {result.cost.per_question}"
    drawn = [_point(policy, result, value, paid) for policy, value, paid in placed]
    best = _at_best(result)
    line = list(
        result.frontier.best
        if best
        else sorted((cost, score) for _, cost, score in result.frontier.known)
    )
    dearest = max(point.x for point in drawn)
    if dearest > line[-1][0]:
        line.append((dearest, line[-1][1]))  # beyond it the last score counts
    chart = Scatter(
        title=f"{label} against {cost}",
        description=f"{len(drawn)} policies; the key names the marks, the table has the numbers.",
        x_name=cost,
        y_name=f"{label}, %",
        points=drawn,
        frontier=line,
    )
    rows = [
        (
            *(policy.full_name, amount(paid), percent(value)),
            *(points(_gain(policy, result)), bracket(policy.result.interval)),
        )
        for policy, value, paid in placed
    ]
    rows += [
        (f"frontier, k = {number}", amount(cost), percent(value), "", "")
        for number, cost, value in result.frontier.known
    ]
    head = ("policy", cost, f"{label} %", "over the line [95%]", f"{label} alone [95%]")
    name = "the best fixed budget or mix of two" if best else "the fixed-k frontier"
    return [
        Chart(
            heading=f"{label} against cost",
            pictures=[scatter(chart)],
            caption=f"Up is better, left is cheaper. Line: {name} at each cost; a policy earns its place "
            "above it. Whiskers: 95% paired intervals of the difference to the line at the policy's own "
            f"cost, of {result.resamples} resamples of the questions: where one clears the line, the "
            "difference is shown.",
            table=data_table(f"{label} and cost of every policy", head, rows),
        )
    ]


def _paid(policy: Marked, result: ReplayResult) -> float:
    known = policy.result.costs.get(result.cost.name)
    return policy.result.mean_rounds if known is None else known


def _point(policy: Marked, result: ReplayResult, value: float, paid: float) -> Point:
    gain = None if policy.family == "fixed" else _gain(policy, result)
    line = value if gain is None else value - gain.estimate
    return Point(
        mark=policy.mark,
        family=policy.family,
        name=policy.full_name,
        said=f"{result.metric.label} {percent(value)}%, {amount(paid)} {result.cost.per_question}",
        x=paid,
        y=value,
        interval=None if gain is None else (line + gain.low, line + gain.high),
    )


def _at_best(result: ReplayResult) -> bool:
    compared = (against for policy in result.policies for against in policy.against_fixed)
    return any(against.cost == result.cost.name for against in compared)


def _gain(policy: Marked, result: ReplayResult) -> Interval | None:
    if not _at_best(result):
        return policy.result.frontier_gain
    compared = policy.result.against_fixed
    return next((against.gain for against in compared if against.cost == result.cost.name), None)


# --- where policies stop -------------------------------------------------------------------------
def stops_chart(result: ReplayResult, policies: Sequence[Marked]) -> Chart:
    numbers = range(1, result.max_rounds + 1)
    stops = {
        policy.mark: [policy.result.stop_counts.get(number, 0) for number in numbers]
        for policy in policies
    }
    rows = [
        _row(
            policy,
            [
                _stopped(policy, number, stopped, result.questions)
                for number, stopped in zip(numbers, stops[policy.mark], strict=True)
            ],
        )
        for policy in policies
    ]
    picture = bars(
        Bars(
            title="Where policies stop",
            description="One row a policy, one bar a round: the share of questions that stop there.",
            rows=rows,
            heads=numbers,
            x_name="stop round",
        )
    )
    head = ("policy", *(f"round {number}" for number in numbers), "mean", "95th percentile")
    of_rounds = [
        (
            *stops[policy.mark],
            policy.result.paid("rounds", decimal),
            decimal(None if math.isnan(p95 := policy.result.p95_rounds) else p95),
        )
        for policy in policies
    ]
    named = [(policy.full_name, *row) for policy, row in zip(policies, of_rounds, strict=True)]
    caption = "Share of the questions that stop at each round; a question stops once."
    if any(policy.result.at_stops.past is not None for policy in policies):
        caption += " Where questions were cut, explored ones are weighted to stand for them."
    return Chart(
        heading="Where policies stop",
        pictures=[picture],
        caption=caption,
        table=data_table("Questions that stop at each round", head, named),
    )


def _stopped(policy: Marked, number: int, stopped: float, questions: int) -> Bar:
    if not stopped:
        return Bar(label="")
    share = stopped / questions
    hint = f"{policy.result.label}: {stopped:g} of {questions} questions stop at round {number}"
    label = "<1%" if share < 0.005 else f"{100 * share:.0f}%"
    return Bar(label=label, segments=[Segment(size=share, class_=policy.family, hint=hint)])


def _row(policy: Marked, of_columns: Sequence[Bar]) -> BarRow:
    return BarRow(
        mark=policy.mark,
        family=policy.family,
        name=policy.result.label,
        hint=policy.full_name,
        bars=of_columns,
    )


# --- what they pay -------------------------------------------------------------------------------
def cost_chart(result: ReplayResult, policies: Sequence[Marked]) -> Chart:
    cost = _CALLS if result.cost.name in (_CALLS.name, "rounds") else result.cost
    rows = [
        _row(policy, [_cost_bar(policy, cost), _token_bar(policy.result)]) for policy in policies
    ]
    named = "model calls" if cost is _CALLS else ", ".join(filter(None, (cost.label, cost.unit)))
    picture = bars(
        Bars(
            title="What policies cost",
            description=f"One row a policy: mean {named} and mean tokens per question.",
            rows=rows,
            heads=(cost.label, "prompt + compl."),
            widths=(162, 136),
        )
    )
    used = {segment.class_ for row in rows for segment in row.bars[1].segments}
    means = (
        f"{named[:1].upper()}{named[1:]} and tokens, means per question, of what each policy reads."
    )
    swatches = legend((class_, name) for class_, name in _TOKENS.items() if class_ in used)
    return Chart(heading="What policies cost", pictures=[picture], caption=join([swatches, means]))


def _cost_bar(policy: Marked, cost: CostAxis) -> Bar:
    paid = policy.result.costs.get(cost.name)
    if paid is None:
        told = policy.result.paid(cost.name)
        return Bar(label="not recorded" if told == UNKNOWN else told)
    hint = f"{amount(paid)} {cost.unit or cost.label}"
    return Bar(label=amount(paid), segments=[Segment(size=paid, class_=policy.family, hint=hint)])


def _token_bar(policy: PolicyResult) -> Bar:
    segments = list(_token_parts(policy))
    if not segments:
        past = policy.at_stops.past
        return Bar(label="not seen" if past and past.unseen else "not recorded")
    prompt, completion = (
        "not recorded" if policy.costs.get(name) is None else count(policy.costs[name])
        for name in ("prompt_tokens", "completion_tokens")
    )
    return Bar(label=f"{prompt} + {completion}", segments=segments)


def _token_parts(policy: PolicyResult) -> Iterator[Segment]:
    prompt = policy.costs.get("prompt_tokens")
    cached = policy.costs.get("cached_tokens")
    completion = policy.costs.get("completion_tokens")
    parts: list[tuple[float, str, str]] = []
    if prompt is not None and cached is None:
        parts.append((prompt, "unsplit", "prompt tokens"))
    elif prompt is not None and cached is not None:
        parts.append((prompt - cached, "evaluated", "uncached prompt tokens"))
        parts.append((cached, "cached", "cached prompt tokens"))
    if completion is not None:
        parts.append((completion, "output", "completion tokens"))
    for size, class_, name in parts:
        yield Segment(size=size, class_=class_, hint=f"{policy.name}: {count(size)} {name}")
