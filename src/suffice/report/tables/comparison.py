"""The comparison as an aligned plain-text table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap

from suffice.measures.costs import CostAxis
from suffice.replay.run.answer_sets import AnswerSetResult
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.results.formats import UNKNOWN, amount, count, decimal, percent, points
from suffice.results.markup import shorten, visible

_WIDTH = 100
_NAME_WIDTH = 24
_NARROWEST = 40
_CALLS, _ROUNDS = "llm_calls", "rounds"
_NAMED = frozenset({_CALLS, _ROUNDS, "prompt_tokens", "completion_tokens"})


@dataclass(frozen=True, slots=True)
class _Column:
    """A column; those of the highest ``drop`` go first when the line is too long.

    ``cost`` is the name of the cost it holds, if it holds one.
    """

    head: tuple[str, str]
    cell: Callable[[PolicyResult], str]
    drop: int
    full_name: str
    cost: str | None = None


_COLUMNS = (
    _Column(("", "EM"), lambda each: percent(each.em), 2, "EM"),
    _Column(("", "F1"), lambda each: percent(each.f1), 0, "F1"),
    _Column(("", "Acc"), lambda each: percent(each.acc), 7, "Acc"),
    _Column(("", "rounds"), lambda each: decimal(each.mean_rounds), 1, "rounds", "rounds"),
    _Column(
        ("", "calls"), lambda each: decimal(each.costs.get("llm_calls")), 3, "calls", "llm_calls"
    ),
    _Column(
        ("prompt", "tokens"),
        lambda each: count(each.costs.get("prompt_tokens")),
        6,
        "prompt tokens",
        "prompt_tokens",
    ),
    _Column(
        ("compl.", "tokens"),
        lambda each: count(each.costs.get("completion_tokens")),
        9,
        "completion tokens",
        "completion_tokens",
    ),
    _Column(("delta F1", "[95%]"), lambda each: points(each.delta_f1), 4, "delta F1"),
    _Column(("F1", "kept"), lambda each: percent(each.retained_f1), 8, "F1 kept"),
    _Column(
        ("gain over", "fixed-k [95%]"),
        lambda each: points(each.frontier_gain),
        5,
        "gain over fixed-k",
    ),
)


def comparison_table(result: ReplayResult, *, width: int | None = None) -> str:
    """The policies side by side, then what the figures are, then the notes.

    Parameters
    ----------
    result
        What a replay found.
    width
        Characters a line of the table may have, at least 40 (default 100). Where it is too little for
        every column, the less important ones are left out, and a line says which.

    Returns
    -------
    Lines without colour codes and without a final line feed. Scores, ``F1 kept`` (of the full
    budget's F1) and differences are in percent; ``-``: unknown.
    """
    limit = _WIDTH if width is None else max(width, _NARROWEST)
    columns = _columns(result.cost)
    names = {each.name: visible(each.name).replace("\n", " ") for each in result.policies}
    room = min(_NAME_WIDTH, max((len(name) for name in names.values()), default=0))
    grid = _grid(result, columns)
    shown, gap = _fit(grid, columns, limit - max(room, len("policy")))
    labels = ["", "policy"] + [shorten(name, room, "...") for name in names.values()]
    lines = _lines(labels, [grid[number] for number in shown], gap)
    missing = [each.full_name for number, each in enumerate(columns) if number not in shown]
    lines.append("")
    if missing:
        lines.append(f"Left out for width: {', '.join(missing)}.")
    lines += _explained(result, limit)
    lines += [
        f"{shorten(name, room, '...')} is in full: {name}"
        for name in names.values()
        if len(name) > room
    ]
    lines += _answer_sets(result, limit)
    lines += [f"Note: {visible(note)}" for note in result.notes]
    return "\n".join(line.rstrip() for line in lines)


def _columns(axis: CostAxis) -> Sequence[_Column]:
    """The columns, among them that of the cost asked for, which goes after all others but F1."""
    held = [each.cost for each in _COLUMNS]
    if axis.name in (_CALLS, _ROUNDS):
        return _COLUMNS
    if axis.name in held:
        return [replace(each, drop=1) if each.cost == axis.name else each for each in _COLUMNS]
    own = _Column(
        axis.head, lambda each: amount(each.costs.get(axis.name)), 1, axis.label, axis.name
    )
    after = held.index(_CALLS) + 1
    return [*_COLUMNS[:after], own, *_COLUMNS[after:]]


def _grid(result: ReplayResult, columns: Sequence[_Column]) -> list[list[str]]:
    """Cells column by column, the two lines of the head first."""
    return [
        [
            *column.head,
            *(
                "(baseline)"
                if column.full_name == "delta F1"
                and each.name == result.baseline
                and each.delta_f1 is not None
                else column.cell(each)
                for each in result.policies
            ),
        ]
        for column in columns
    ]


def _fit(
    grid: Sequence[Sequence[str]], columns: Sequence[_Column], room: int
) -> tuple[list[int], int]:
    """Numbers of the columns that fit and the gap between them."""
    shown = sorted(range(len(grid)), key=lambda number: columns[number].drop)
    widths = [max(map(len, column)) for column in grid]
    while True:
        taken = sum(widths[number] for number in shown)
        for gap in (2, 1):
            if taken + gap * len(shown) <= room or len(shown) == 1:
                return sorted(shown), gap
        shown.pop()


def _lines(labels: list[str], columns: list[list[str]], gap: int) -> list[str]:
    first = max(map(len, labels))
    widths = [max(map(len, column)) for column in columns]
    rows = [
        label.ljust(first)
        + "".join(" " * gap + cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
        for label, cells in zip(labels, zip(*columns, strict=True), strict=True)
    ]
    rule = "-" * (first + sum(widths) + gap * len(widths))
    return [*rows[:2], rule, *rows[2:]]


def _means(axis: CostAxis) -> str:
    return "calls and tokens" if axis.name in _NAMED else f"calls, {axis.label} and tokens"


def _explained(result: ReplayResult, limit: int) -> list[str]:
    split = "all splits" if result.split is None else f"split {visible(result.split)}"
    first = (
        f"{result.questions} questions ({split}), {result.labelled} with gold answers, "
        f"at most {result.max_rounds} rounds."
    )
    if result.labelled:
        baseline = shorten(visible(result.baseline), _NAME_WIDTH, "...")
        second = (
            f"EM, F1 ({result.f1_kind}), Acc, F1 kept (of the full budget's F1) and differences in "
            f"percent; rounds, {_means(result.cost)} are means per question. delta F1 is against "
            f"{baseline}; gain over fixed-k is at equal {result.cost.label}; brackets are 95% "
            f"intervals of {result.resamples} paired resamples of the questions (seed {result.seed})."
        )
    else:
        second = "No question has gold answers, so scores and differences are unknown (-)."
    return [line for text in (first, second) for line in wrap(text, limit)]


def _answer_sets(result: ReplayResult, limit: int) -> list[str]:
    """A paragraph for every policy that gives a set of answers."""
    return [
        line
        for each in result.policies
        if each.sets is not None
        for line in wrap(
            f"{visible(each.name)}: {_worth(each.sets)}", limit, subsequent_indent="  "
        )
    ]


def _worth(sets: AnswerSetResult) -> str:
    covered, kept = sets.coverage, sets.retention
    measured = (
        f"coverage {UNKNOWN}"
        if covered is None
        else f"coverage {covered.estimate:.2f} [{covered.low:.2f}, {covered.high:.2f}]"
    )
    said = [
        f"{measured} of {decimal(1 - sets.alpha)} promised",
        f"set size {sets.set_size.estimate:.1f}",
        f"answer rate {sets.answer_rate:.2f}",
        f"objective {decimal(sets.objective)}",
    ]
    if kept is not None:
        said.append(
            f"filter keeps {decimal(kept.passages)} of right passages (all of them for {decimal(kept.all)} "
            f"of questions) and {decimal(kept.shown)} of all shown"
        )
    return "; ".join(said)
