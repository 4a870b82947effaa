"""What policies promise, of losses and of answer sets, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from suffice.errors import counted
from suffice.evaluation.choose.candidates import RANK
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.diagnose.report_data import LOSSES_TESTED
from suffice.evaluation.replay.answers import AnswerSetResult
from suffice.evaluation.replay.results import ReplayResult
from suffice.report.charts import Point, Scatter, scatter
from suffice.report.section import (
    Chart,
    Marked,
    Shown,
    label,
    label_of,
    labelled,
    legend,
    listed,
    plain,
    sentence,
    short_name,
    short_name_of,
)
from suffice.report.svg import Family
from suffice.results.formats import UNKNOWN, amount, count, decimal, p_value, percent, signed
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.results.table import Table

Terms = Mapping[str, Any]
_LONGEST = 300


def guarantees_section(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> Shown:
    return Shown(
        finding=_finding(guarantees, policies),
        blocks=[
            plain(
                "A proven policy lies on a path fixed before any label was read, or was fitted on other "
                "questions than those that prove it. Its promise is about the mean over questions drawn like "
                "these, with the same model, prompt and retriever; it says nothing about a single question."
            ),
            *(_block(guarantee, policies) for guarantee in guarantees),
        ],
    )


def promises(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> Iterator[Html]:
    """Yield every promise in a line: certified policies first, then policies' own words."""
    certified = {guarantee["policy"] for guarantee in guarantees}
    for guarantee in guarantees:
        yield join([label_of(guarantee["policy"], policies), " ", promise_in_words(guarantee)])
    for policy in policies:
        if policy.facts.promise and policy.result.name not in certified:
            yield join([label(policy), " ", sentence(policy.facts.promise)])


def _finding(guarantees: Sequence[Terms], policies: Sequence[Marked]) -> str:
    first = guarantees[0]
    name = short_name_of(first["policy"], policies)
    more = f"; {len(guarantees) - 1} more" if len(guarantees) > 1 else ""
    if first["fell_back"]:
        return f"{name}: nothing certified, takes the full budget{more}"
    if not first["allowed"] or first["confidence"] is None:
        return f"{name}: carries a promise{more}"
    return (
        f"{name}: {visible(first['allowed'])}, at confidence {100 * first['confidence']:g}%{more}"
    )


def _block(guarantee: Terms, policies: Sequence[Marked]) -> Html:
    facts = (
        element("div", element("dt", name), element("dd", value))
        for name, value in terms_in_words(guarantee)
    )
    return element(
        "div",
        element("h3", label_of(guarantee["policy"], policies)),
        element("p", element("code", shorten(visible(guarantee["rule"]), _LONGEST))),
        element("p", promise_in_words(guarantee), class_="promise"),
        plain(_holds(guarantee)),
        element("dl", *facts, class_="facts"),
        class_="guarantee",
    )


def promise_in_words(guarantee: Terms) -> str:
    if guarantee["fell_back"]:
        return "Nothing cheaper is proven, so the policy takes the full budget."
    if not guarantee["allowed"] or guarantee["confidence"] is None:
        return "The policy file states a promise without its terms."
    sure = f"{100 * guarantee['confidence']:g}% confidence"
    return f"It {visible(guarantee['allowed'])} (proven, {sure})."


def _holds(guarantee: Terms) -> str:
    source = "recorded traces that the file does not name"
    if guarantee["source"] is not None:
        split = "" if guarantee["split"] is None else f"split {visible(guarantee['split'])} of "
        source = f"{split}{shorten(visible(guarantee['source']), 120)}"
    elsewhere = (
        " These are other traces than those replayed here." if guarantee["elsewhere"] else ""
    )
    start = (
        "It was looked for on" if guarantee["fell_back"] else "It holds for questions drawn like"
    )
    return f"{start} those of {source}.{elsewhere}"


_TERMS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "path": ("Proven along path", str),
    "units": ("Questions", count),
    "tested": ("Policies tested", count),
    "certified": ("Policies proven", count),
    "correction": ("Corrected by", str),
    "min_rounds": ("Stops no earlier than round", count),
    "p_value": ("p-value", p_value),
    "mean_cost": ("Cost a question", amount),
    "full_budget_cost": ("Cost at the full budget", amount),
    "questions_needed": ("Labeled questions needed for a cheaper policy", count),
    "questions_needed_most": ("The same if one more lost all", count),
    "questions_at_least": ("Fewer prove no cheaper policy", count),
}
"""The terms of a promise as they are called here."""
_CHANGES = {"signed": "Measured mean change", "drop": "Measured mean change, gains not counted"}


def terms_in_words(guarantee: Terms) -> Iterator[tuple[str, str]]:
    """Yield every known term of a promise by name; a change of the score is negative for a loss."""
    for name, (heading, shown) in _TERMS.items():
        value = guarantee[name]
        if value is not None and not (guarantee["fell_back"] and name == "p_value"):
            yield heading, shorten(visible(shown(value)), _LONGEST)
    one = {"of": guarantee["loss"], "measured": guarantee["measured_loss"]}
    for bound in () if guarantee["fell_back"] else guarantee["bounds"] or [one]:
        if (measured := bound["measured"]) is not None:
            change = _CHANGES.get(bound["of"])
            told = f"{percent(measured)}%" if change is None else f"{signed(-measured)} points"
            yield change or "Measured share of wrong stops", told
    tested, missed = (guarantee[key] for key in LOSSES_TESTED)
    if tested:
        others, failed = (
            ", ".join(f"{100 * of:g}" for of in some or ()) for some in (tested, missed)
        )
        told = "" if missed is None else f"; not proven: {failed or 'none'}"
        yield "Tested together with", f"{others} points{told}"
    for name, term in (
        (name, term) for name, term in guarantee["more"].items() if term is not None
    ):
        yield shorten(visible(name), 60), shorten(visible(term), _LONGEST)


_LONGEST_NOTE = 400


Giving = Sequence[tuple[Marked, AnswerSetResult]]  # the policies that give sets, with their worth


def answer_sets_section(result: ReplayResult, policies: Sequence[Marked]) -> Shown | None:
    """Show every policy that gives answer sets; ``None``: there is none."""
    giving = [(policy, sets) for policy in policies if (sets := policy.result.sets) is not None]
    if not giving:
        return None
    return Shown(
        finding=_answer_sets_finding(giving),
        blocks=[
            plain(
                "These policies give a set of answers. A question is covered when its set holds the "
                'right answer, or says "Can\'t Answer" where no recorded round sampled it. The promise '
                "is about the mean over questions drawn like those that set the thresholds, and over "
                "which questions those were; so a coverage somewhat below it can be chance."
            ),
            _table(result.named("answer sets"), giving),
            *(_notes(policy, sets) for policy, sets in giving),
        ],
    )


def _answer_sets_finding(giving: Giving) -> str:
    policy, sets = giving[0]
    more = f"; {len(giving) - 1} more" if len(giving) > 1 else ""
    size = f"{decimal(sets.set_size.estimate)} answers a set"
    if sets.coverage is None:
        return f"{short_name(policy)}: {_promised(sets)}% promised, none measured; {size}{more}"
    measured = percent(sets.coverage.estimate)
    return f"{short_name(policy)}: {measured}% covered, {_promised(sets)}% promised; {size}{more}"


def _promised(sets: AnswerSetResult) -> str:
    return f"{100 * (1 - sets.alpha):.4g}"


def _table(table: Table, giving: Giving) -> Html:
    return labelled(
        table,
        [policy for policy, _ in giving],
        {
            "coverage": lambda number, shown: _coverage(giving[number][1], shown),
            "mean_rounds": lambda number, shown: _rounds(giving[number][0], shown),
        },
    )


def _coverage(sets: AnswerSetResult, shown: str) -> object:
    if sets.coverage is None or sets.coverage.high >= 1 - sets.alpha:
        return shown
    return join([shown, " ", element("span", "below the promise", class_="tag")])


def _rounds(policy: Marked, shown: str) -> str:
    budget = policy.facts.max_rounds
    return shown if budget is None else f"{shown} of {budget}"


def _notes(policy: Marked, sets: AnswerSetResult) -> Html:
    facts = policy.facts
    notes = [
        shorten(visible(note), _LONGEST_NOTE) for note in dict.fromkeys([*sets.notes, *facts.notes])
    ]
    return element(
        "div",
        element("h3", label(policy)),
        element("p", element("code", facts.summary or UNKNOWN)),
        element("p", sentence(facts.promise), class_="promise") if facts.promise else "",
        listed(notes, small=True),
        class_="guarantee",
    )


def choice_charts(choice: Choice, policies: Sequence[Marked]) -> list[Chart]:
    """Chart the savings for each allowed loss, and all candidates by cost and score."""
    marks = {policy.result.name: policy.mark for policy in policies}
    several = choice.promised is not None and len(choice.promised.rows) > 1
    return [*(_allowed(choice, marks) if several else ()), *_placed(choice, marks)]


def _allowed(choice: Choice, marks: Mapping[str, str]) -> Iterator[Chart]:
    proven, drawn = [(0.0, 0.0)], list[Point]()
    for row, found in choice.savings():
        family: Family = "fixed" if found is None else "adaptive" if row.proven else "oracle"
        saved = 0.0 if found is None else choice.saved_by(found.candidate) or 0.0
        sure = "proven" if row.proven else "likely"
        point = Point(
            mark="" if found is None else marks.get(found.candidate.policy.name, ""),
            family=family,
            name="nothing proven" if found is None else found.title,
            said=row.more if found is None else f"saves {percent(saved)}%, {sure}",
            x=100 * (row.promise.max_loss or 0.0),
            y=saved,
        )
        drawn.append(point)
        proven.append((point.x, saved if row.proven else 0.0))
    named = f"Savings for each allowed loss ({choice.axis.label})"
    chart = Scatter(
        title=named,
        description=f"{len(drawn)} losses; the table has the numbers.",
        x_name=f"allowed loss, {choice.metric.label} points",
        y_name="saved, %",
        points=drawn,
        steps=proven,
    )
    keys = (("adaptive", "proven"), ("oracle", "likely, not proven"), ("fixed", "nothing shown"))
    yield Chart(heading=named, pictures=[scatter(chart)], caption=legend(keys))


def _placed(choice: Choice, marks: Mapping[str, str]) -> Iterator[Chart]:
    points, line = list[Point](), list[tuple[float, float]]()
    for candidate, cost, change, interval in choice.placed():
        fixed = candidate.group == "fixed"
        point = Point(
            mark="" if interval is None else marks.get(candidate.policy.name, ""),
            family="fixed" if fixed else "adaptive",
            name=candidate.title,
            said=f"{signed(change)} points at {percent(cost)}% of the cost",
            x=100 * cost,
            y=change,
            interval=None if fixed or interval is None else (interval.low, interval.high),
        )
        points.append(point)
        line += [(point.x, point.y)] if fixed else []
    named = f"Every candidate: change of {choice.metric.label} against cost"
    chart = Scatter(
        title=named,
        description=f"{len(points)} candidates, relative to {choice.all_rounds}.",
        x_name=f"{choice.axis.label}, % of {choice.all_rounds}",
        y_name=f"change of {choice.metric.label}, points",
        points=points,
        frontier=sorted(line),
    )
    caption = (
        "Letters: proven or likely, with 95% intervals. Squares: fixed numbers of rounds. Dots: fitted "
        f"candidates, on the {counted(choice.parts[RANK], 'question')} that rank them."
    )
    if line:
        yield Chart(heading=named, pictures=[scatter(chart)], caption=caption)
