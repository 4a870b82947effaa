"""Answer sets: what is promised of them, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from suffice.replay.run.answers import AnswerSetResult
from suffice.replay.run.results import ReplayResult
from suffice.report.draw.marks import Marked, label, labelled, short_name
from suffice.report.page.section import Shown, listed, plain, sentence
from suffice.results.formats import UNKNOWN, decimal, percent
from suffice.results.markup import Html, element, join, shorten, visible
from suffice.results.table import Table

_LONGEST = 400


Giving = Sequence[tuple[Marked, AnswerSetResult]]  # the policies that give sets, with their worth


def answer_sets_section(result: ReplayResult, policies: Sequence[Marked]) -> Shown | None:
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
            *_tables(result.table("answer sets"), giving),
            *(_notes(policy, sets) for policy, sets in giving),
        ],
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


def _tables(table: Table, giving: Giving) -> Iterator[Html]:
    policies = [policy for policy, _ in giving]
    worth = table.headed("What the answer sets are worth").picked(*_WORTH)
    yield labelled(
        worth,
        policies,
        {
            "coverage": lambda number, shown: _coverage(giving[number][1], shown),
            "mean_rounds": lambda number, shown: _rounds(giving[number][0], shown),
        },
    )
    yield plain(
        'Set size counts "Can\'t Answer". Answer rate: sets without it. Objective: mean rounds, less what '
        "stopping on questions that can be answered gains; low is good.",
        small=True,
    )
    kept = table.headed("What the passage filters keep").picked("policy", *_KEPT)
    rows = [row for row, (_, sets) in zip(kept.rows, giving, strict=True) if sets.retention]
    if rows:
        yield labelled(replace(kept, rows=rows), policies)
        yield plain("Over questions that retrieved a right passage.", small=True)
    else:
        yield plain("No passage filter can be replayed on these rounds.")


_WORTH = (
    *("policy", "promised", "coverage", "set_size", "answer_rate", "objective", "mean_rounds"),
)
_KEPT = ("right_kept", "all_right_kept", "shown_kept", "filtered")


def _coverage(sets: AnswerSetResult, shown: str) -> object:
    if sets.coverage is None or sets.coverage.high >= 1 - sets.alpha:
        return shown
    return join([shown, " ", element("span", "below the promise", class_="tag")])


def _rounds(policy: Marked, shown: str) -> str:
    budget = policy.facts.max_rounds
    return shown if budget is None else f"{shown} of {budget}"


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
        element("p", sentence(facts.promise), class_="promise") if facts.promise else "",
        listed(notes, small=True),
        class_="guarantee",
    )
