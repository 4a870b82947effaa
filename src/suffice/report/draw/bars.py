"""Where policies stop and what they cost, one row a policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from suffice.measures.costs import CostAxis
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.report.draw.marks import Marked
from suffice.report.draw.scatter import figure, legend, name_of
from suffice.report.draw.svg import badge, bar, canvas, line, text
from suffice.results.formats import amount, count, decimal
from suffice.results.markup import Html, data_table, element, join, shorten, visible

_WIDTH = 460.0
_NAMES = 144.0  # where bars begin, right of the policies' names
_TOKENS = 92.0  # where token bars begin, right of those of calls
_ROW = 46.0
_MOST_LABELLED_ROUNDS = 8
_MOST_TICKS = 12
_MOST_ROWS = 12
_LONGEST_HEAD = 13  # characters that fit above the bars of calls
_IN_TABLE = frozenset({"llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens"})
_CALLS = CostAxis(name="llm_calls", label="calls", unit="")


def _row_name(each: Marked, top: float) -> Html:
    label = shorten(visible(each.result.name), 14)
    return join(
        [
            badge((11, top + 24), each.mark, each.family),
            text((26, top + 28), join([element("title", name_of(each)), label]), "row-name"),
        ]
    )


def _drawn(policies: Sequence[Marked]) -> Sequence[Marked]:
    """The policies with a row of their own; of many, fixed budgets but the baseline have none."""
    if len(policies) <= _MOST_ROWS:
        return policies
    chosen = [each for each in policies if each.family != "fixed" or each.baseline]
    return chosen if len(chosen) > 1 else policies


def _left_to_table(policies: Sequence[Marked]) -> str:
    few = len(_drawn(policies)) < len(policies)
    return " Fixed budgets but the baseline are in the table only." if few else ""


def stops_figure(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    """How many questions every policy stops at in each round."""
    counts = {each.mark: each.result.to_json()["stop_rounds"] for each in policies}
    shown = _drawn(policies)
    rounds = range(1, result.max_rounds + 1)
    slot = (_WIDTH - _NAMES) / max(1, result.max_rounds)
    bottom = _ROW * len(shown) + 10
    drawn: list[Html] = []
    for row, each in enumerate(shown):
        drawn.append(_row_name(each, row * _ROW))
        drawn += _stops_row(result, each, counts[each.mark], (row * _ROW + 40, slot))
    drawn += [
        text((_NAMES + slot * (number - 0.5), bottom + 8), number, "tick mid")
        for number in rounds[:: max(1, -(-result.max_rounds // _MOST_TICKS))]
    ]
    drawn.append(text(((_NAMES + _WIDTH) / 2, bottom + 28), "stop round", "axis-name mid"))
    picture = canvas(
        (_WIDTH, bottom + 36),
        "Where policies stop",
        "One row a policy, one bar a round: the share of questions that stop there.",
        drawn,
    )
    table = data_table(
        "Questions that stop at each round",
        ("policy", *(f"round {number}" for number in rounds), "mean", "95th percentile"),
        [
            (
                name_of(each),
                *(counts[each.mark].get(str(number), 0) for number in rounds),
                decimal(each.result.mean_rounds),
                decimal(each.result.p95_rounds),
            )
            for each in policies
        ],
    )
    caption = "Share of the questions that stop at each round; a question stops once."
    return figure(picture, caption + _left_to_table(policies), table, "Where policies stop")


def _stops_row(
    result: ReplayResult, each: Marked, of_round: Mapping[str, int], at: tuple[float, float]
) -> list[Html]:
    floor, slot = at
    drawn = [line((_NAMES, floor), (_WIDTH, floor), "grid")]
    rounds = {int(key): value for key, value in of_round.items() if key != "0"}  # no closed book
    for number, stopped in rounds.items():
        share = stopped / result.questions
        left, height = _NAMES + slot * (number - 1), max(1.0, 24 * share)
        hint = (
            f"{each.result.name}: {stopped} of {result.questions} questions stop at round {number}"
        )
        corner, size = (left + slot * 0.16, floor - height), (slot * 0.68, height)
        drawn.append(bar(corner, size, f"bar {each.family}", hint))
        if result.max_rounds <= _MOST_LABELLED_ROUNDS:
            label = "<1%" if share < 0.005 else f"{100 * share:.0f}%"
            drawn.append(text((left + slot / 2, floor - 3 - height), label, "value mid"))
    return drawn


def cost_figure(result: ReplayResult, policies: Sequence[Marked]) -> Html:
    """What a question costs and its tokens, split by what the model had to evaluate.

    The first bars are those of the cost that policies are compared at; calls where that is rounds.
    """
    shown = _drawn(policies)
    cost = _CALLS if result.cost.name in (_CALLS.name, "rounds") else result.cost
    calls = [each.result.costs.get(cost.name) for each in shown]
    tokens = [_token_parts(each.result) for each in shown]
    most_calls = max((value for value in calls if value is not None), default=0.0)
    most_tokens = max((sum(size for size, _, _ in parts) for parts in tokens), default=0.0)
    drawn = [
        text((_NAMES, 12), _short(cost), "axis-name"),
        text((_NAMES + _TOKENS, 12), "prompt + completion", "axis-name"),
    ]
    for row, (each, paid, parts) in enumerate(zip(shown, calls, tokens, strict=True)):
        top = row * _ROW + 16
        drawn.append(_row_name(each, top))
        drawn += _paid_bar(each, paid, (most_calls, cost), top)
        drawn += _tokens_bar(each.result, parts, most_tokens, top)
    picture = canvas(
        (_WIDTH, _ROW * len(shown) + 24),
        "What policies cost",
        f"One row a policy: mean {_in_words(cost)} and mean tokens per question.",
        drawn,
    )
    keys = [
        ("evaluated", "prompt, evaluated"),
        ("cached", "prompt, cached"),
        ("unsplit", "prompt, cached share not recorded"),
        ("output", "completion"),
    ]
    used = {class_ for parts in tokens for _, class_, _ in parts}
    swatches = legend(key for key in keys if key[0] in used)
    named = _in_words(cost)
    means = (
        f"{named[:1].upper()}{named[1:]} and tokens, means per question, of what each policy reads."
    )
    caption = join([swatches, means + _left_to_table(policies)])
    return figure(picture, caption, _cost_table(policies, cost), "What policies cost")


def _named(cost: CostAxis) -> str:
    return f"{cost.label}, {cost.unit}" if cost.unit else cost.label


def _short(cost: CostAxis) -> str:
    """As much of the name as stands above the bars; the table has it in full."""
    name = _named(cost)
    return name if len(name) <= _LONGEST_HEAD else cost.label.partition(" ")[0]


def _in_words(cost: CostAxis) -> str:
    return "model calls" if cost is _CALLS else _named(cost)


def _cost_table(policies: Sequence[Marked], cost: CostAxis) -> Html:
    own = () if cost.name in _IN_TABLE else (cost,)
    head = (
        "policy",
        *(_named(each) for each in own),
        *("calls", "prompt tokens", "of these cached", "completion tokens"),
    )
    return data_table(
        "Mean cost per question",
        head,
        [
            (
                name_of(each),
                *(amount(each.result.costs.get(one.name)) for one in own),
                decimal(each.result.costs.get("llm_calls")),
                count(each.result.costs.get("prompt_tokens")),
                count(each.result.costs.get("cached_tokens")),
                count(each.result.costs.get("completion_tokens")),
            )
            for each in policies
        ],
    )


def _token_parts(policy: PolicyResult) -> list[tuple[float, str, str]]:
    """Segments (size, class, name) of the tokens bar; what is unknown has none."""
    prompt = policy.costs.get("prompt_tokens")
    cached = policy.costs.get("cached_tokens")
    completion = policy.costs.get("completion_tokens")
    parts: list[tuple[float, str, str]] = []
    if prompt is not None and cached is None:
        parts.append((prompt, "unsplit", "prompt tokens"))
    elif prompt is not None and cached is not None:
        parts.append((prompt - cached, "evaluated", "prompt tokens evaluated"))
        parts.append((cached, "cached", "prompt tokens cached"))
    if completion is not None:
        parts.append((completion, "output", "completion tokens"))
    return parts


def _paid_bar(
    each: Marked, paid: float | None, of: tuple[float, CostAxis], top: float
) -> list[Html]:
    if paid is None:
        return [text((_NAMES, top + 28), "not recorded", "value")]
    most, cost = of
    length = 76 * paid / most if most else 0.0
    hint = f"{amount(paid)} {cost.unit or cost.label}"
    return [
        bar((_NAMES, top + 22), (length, 14), f"bar {each.family}", hint),
        text((_NAMES, top + 17), amount(paid), "value"),
    ]


def _tokens_bar(
    policy: PolicyResult, parts: Sequence[tuple[float, str, str]], most: float, top: float
) -> list[Html]:
    left = _NAMES + _TOKENS
    if not parts:
        return [text((left, top + 28), "not recorded", "value")]
    prompt, completion = (
        "not recorded" if policy.costs.get(name) is None else count(policy.costs[name])
        for name in ("prompt_tokens", "completion_tokens")
    )
    drawn = [text((left, top + 17), f"{prompt} + {completion}", "value")]
    for size, class_, name in parts:
        length = (_WIDTH - _NAMES - _TOKENS - 2) * size / most if most else 0.0
        hint = f"{policy.name}: {count(size)} {name}"
        drawn.append(bar((left, top + 22), (length, 14), f"bar {class_}", hint))
        left += length
    return drawn
