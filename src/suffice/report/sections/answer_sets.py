"""Answer sets: what is promised of them, and what was measured."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.numbers.intervals.bootstrap import Interval
from suffice.replay.run.answer_sets import AnswerSetResult
from suffice.report.draw.marks import Marked, label, short_name
from suffice.report.page.section import (
    Section,
    Shown,
    columns,
    listed,
    plain,
    two_lines,
    with_interval,
)
from suffice.results.formats import UNKNOWN, decimal, percent
from suffice.results.markup import Html, element, join, shorten, visible

_LONGEST = 400


Giving = Sequence[tuple[Marked, AnswerSetResult]]  # the policies that give sets, with their worth


def answer_sets_section(policies: Sequence[Marked]) -> Shown | None:
    """A line for every policy that gives sets; ``None``: none does."""
    giving = [(policy, sets) for policy in policies if (sets := policy.result.sets) is not None]
    if not giving:
        return None
    return Shown(
        finding=_finding(giving),
        blocks=[
            plain(
                "These policies give a set of answers. A question is covered when its set holds the "
                'right answer, or says "Can\'t Answer" where no recorded round sampled it. The promise '
                "is about the mean over questions drawn like those that set the thresholds, and over "
                "which questions those were; so a coverage somewhat below it can be chance."
            ),
            *_worth(giving),
            *_kept(giving),
            *(_notes(policy, sets) for policy, sets in giving),
        ],
    )


SECTION = Section(
    name="answer-sets",
    heading="Answer sets",
    show=lambda material: answer_sets_section(material.policies),
)


def _finding(giving: Giving) -> str:
    policy, sets = giving[0]
    more = f"; {len(giving) - 1} more" if len(giving) > 1 else ""
    size = f"{decimal(sets.set_size.estimate)} answers a set"
    if sets.coverage is None:
        return f"{short_name(policy)}: {_promised(sets)}% promised, none measured; {size}{more}"
    measured = percent(sets.coverage.estimate)
    return f"{short_name(policy)}: {measured}% covered, {_promised(sets)}% promised; {size}{more}"


def _promised(sets: AnswerSetResult) -> str:
    return f"{100 * (1 - sets.alpha):.4g}"


def _worth(giving: Giving) -> list[Html]:
    table = columns(
        "What the answer sets are worth",
        giving,
        ("policy", lambda each: label(each[0])),
        ("promised %", lambda each: _promised(each[1])),
        ("covered % [95%]", lambda each: _coverage(each[1])),
        ("set size [95%]", lambda each: _decimals(each[1].set_size)),
        ("answer rate %", lambda each: percent(each[1].answer_rate)),
        ("objective", lambda each: decimal(each[1].objective)),
        ("rounds", lambda each: _rounds(each[0])),
    )
    note = (
        'Set size counts "Can\'t Answer". Answer rate: sets without it. Objective: mean rounds, less what '
        "stopping on questions that can be answered gains; low is good."
    )
    return [table, plain(note, small=True)]


def _coverage(sets: AnswerSetResult) -> Html:
    if sets.coverage is None:
        return join([UNKNOWN])
    shown = with_interval(percent(sets.coverage.estimate), sets.coverage)
    if sets.coverage.high >= 1 - sets.alpha:
        return shown
    return join([shown, " ", element("span", "below the promise", class_="tag")])


def _decimals(interval: Interval) -> Html:
    ends = f"[{decimal(interval.low)}, {decimal(interval.high)}]"
    return join([decimal(interval.estimate), " ", element("small", ends)])


def _rounds(policy: Marked) -> str:
    budget = policy.facts.max_rounds
    taken = decimal(policy.result.mean_rounds)
    return taken if budget is None else f"{taken} of {budget}"


def _kept(giving: Giving) -> list[Html]:
    """What the policies' passage filters leave."""
    filtered = [(policy, kept) for policy, sets in giving if (kept := sets.retention) is not None]
    if not filtered:
        return [plain("No passage filter can be replayed on these rounds.")]
    table = columns(
        "What the passage filters keep",
        filtered,
        ("policy", lambda each: label(each[0])),
        (two_lines("right passages", "kept %"), lambda each: percent(each[1].passages)),
        (two_lines("questions that", "keep all %"), lambda each: percent(each[1].all)),
        (two_lines("passages", "still shown %"), lambda each: percent(each[1].shown)),
        ("questions", lambda each: each[1].questions),
    )
    note = "Over questions that retrieved a right passage."
    return [table, plain(note, small=True)]


def _notes(policy: Marked, sets: AnswerSetResult) -> Html:
    """The promise in words, and what goes with it."""
    facts = policy.facts
    notes = [
        shorten(visible(note), _LONGEST) for note in dict.fromkeys([*sets.notes, *facts.notes])
    ]
    return element(
        "div",
        element("h3", label(policy)),
        element("p", element("code", facts.summary or UNKNOWN)),
        element("p", _sentence(facts.promise), class_="promise") if facts.promise else "",
        listed(notes, small=True),
        class_="guarantee",
    )


def _sentence(text: str) -> str:
    shown = shorten(visible(text), _LONGEST)
    return f"{shown[:1].upper()}{shown[1:]}{'' if shown.endswith('.') else '.'}"
